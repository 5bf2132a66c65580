//! The decisions that the scheduler returns.

use std::time::Duration;

use crate::{Refusal, Ticket, Time};

/// What the caller of the scheduler must do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Send the call now and report its answer.
    Send {
        /// The ticket of the call.
        ticket: Ticket,
        /// How long the call waited in the queue.
        waited: Duration,
    },
    /// Report to the callers that the call was refused. The scheduler has already removed the call.
    Refuse(Ticket, Refusal),
    /// Do nothing until this time, unless there is new input earlier. `None`: wait for new input.
    Wait(Option<Time>),
}

/// What the scheduler does with a call that returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCall {
    /// The call is finished and its ticket is no longer valid.
    Done,
    /// The call was throttled for the first time and is again at the head of its queue; the scheduler will send it once more or refuse it.
    Again,
}
