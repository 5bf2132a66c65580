//! The queue of checks that wait for a lane.

use std::sync::{Mutex, PoisonError};

use crate::check::Check;

#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) check: Check,
    pub(super) repetition: u32,
}

/// Checks with the longest time limits come first, so that the run does not end with one of them running alone.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Vec<Task>>);

impl Queue {
    pub(super) fn new(mut tasks: Vec<Task>) -> Self {
        tasks.sort_by_key(|task| std::cmp::Reverse(task.check.limit));
        Self(Mutex::new(tasks))
    }

    pub(super) fn take(&self, wanted: impl Fn(&Check) -> bool) -> Option<Task> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tasks.iter().position(|task| wanted(&task.check))?;
        Some(tasks.remove(at))
    }
}
