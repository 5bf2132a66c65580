//! What the scheduler wants done.

use std::time::Duration;

use crate::{Refusal, Ticket, Time};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Send the call now, and hand its answer in.
    Send {
        /// Which one.
        ticket: Ticket,
        /// How long it stood in the queue.
        waited: Duration,
    },
    /// Tell whoever waits for the call that it is not going to be sent. It is forgotten here.
    Refuse(Ticket, Refusal),
    /// Nothing until then, unless something is handed in before. `None`: nothing until something is handed in.
    Wait(Option<Time>),
}

/// What becomes of a call that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is done; the ticket is forgotten.
    Done,
    /// It was throttled for the first time and stands at the head of its flow again: it comes out once more, or is refused.
    Again,
}
