//! The last writes to the vendor, for the status page. All writes are in the log with the target `audit`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

use super::error::VendorError;
use super::{Purpose, audit::object, job::Job};

const KEPT: usize = 50;

/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes(Arc<Mutex<VecDeque<Write>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Time at which the write was answered.
    pub(crate) at: Instant,
    /// The vendor's name of the operation.
    pub(crate) operation: &'static str,
    pub(crate) object: Option<String>,
    pub(crate) controller: &'static str,
    pub(crate) error: Option<String>,
}

impl Writes {
    pub(super) fn note(&self, job: &Job, error: Option<&VendorError>) {
        if !job.operation.write {
            return;
        }
        let Purpose { object: about, caller, .. } = &job.purpose;
        let write = Write {
            at: Instant::now(),
            operation: job.operation.name,
            object: object(about).map(str::to_owned),
            controller: caller.role.word(),
            error: error.map(ToString::to_string),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.push_front(write);
    }

    /// The newest write comes first.
    pub(super) fn all(&self) -> Vec<Write> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
