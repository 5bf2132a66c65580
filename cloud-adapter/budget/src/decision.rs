//! Decisions of the scheduler.

use std::time::Duration;

use crate::{Refusal, Ticket, Time};

/// What the caller of the scheduler must do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Send the call now and report its answer.
    Send {
        /// The call.
        ticket: Ticket,
        /// How long the call waited in the queue.
        waited: Duration,
    },
    /// Report to the callers that the call was refused. The scheduler has dropped it.
    Refuse(Ticket, Refusal),
    /// Do nothing until this time, unless there is new input before. `None`: wait for new input.
    Wait(Option<Time>),
}

/// What happens with a call that returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call is finished and its ticket forgotten.
    Done,
    /// The call was throttled for the first time and is at the head of its queue again; it will be sent once more or refused.
    Again,
}
