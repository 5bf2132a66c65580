//! The checks that wait for a lane.

use std::sync::{Mutex, PoisonError};

use crate::check::Check;

/// One repetition of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) check: Check,
    pub(super) repetition: u32,
}

/// Those that may take longest come first, so that none of them is left for the end.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Vec<Task>>);

impl Queue {
    pub(super) fn new(mut tasks: Vec<Task>) -> Self {
        tasks.sort_by_key(|task| std::cmp::Reverse(task.check.limit));
        Self(Mutex::new(tasks))
    }

    /// The next that is wanted.
    pub(super) fn take(&self, wanted: impl Fn(&Check) -> bool) -> Option<Task> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tasks.iter().position(|task| wanted(&task.check))?;
        Some(tasks.remove(at))
    }
}
