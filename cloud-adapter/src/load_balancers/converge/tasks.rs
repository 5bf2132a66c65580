//! The running tasks. Their number is bounded, because each task keeps its desired state in memory while it waits.

use std::collections::BTreeMap;

use cloud_api_proto::{AdapterError, Reason};

use super::super::memory::KeyName;

/// Maximum number of tasks, which equals the default number of calls that may be queued.
const TASKS_MAX: usize = 8192;

#[derive(Debug)]
pub(super) struct Tasks<H>(BTreeMap<KeyName, H>);

impl<H> Default for Tasks<H> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<H> Tasks<H> {
    pub(super) fn get(&self, name: &KeyName) -> Option<&H> {
        self.0.get(name)
    }

    pub(super) fn by_name(&self) -> impl Iterator<Item = (&KeyName, &H)> {
        self.0.iter()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &H> {
        self.0.values()
    }

    /// Checks that another task may start.
    ///
    /// Returns `QUEUE_FULL` if the limit is reached.
    pub(super) fn check_place(&self) -> Result<(), AdapterError> {
        if self.0.len() < TASKS_MAX {
            return Ok(());
        }
        let text = format!("{TASKS_MAX} load balancer tasks are running: retry later");
        Err(AdapterError::new(Reason::QueueFull, text))
    }

    pub(super) fn insert(&mut self, name: KeyName, handle: H) {
        self.0.insert(name, handle);
    }

    pub(super) fn remove(&mut self, name: &KeyName) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> KeyName {
        ("c".to_owned(), number.to_string())
    }

    #[test]
    fn a_task_starts_when_another_has_ended() {
        let mut tasks = Tasks::default();
        for number in 0..TASKS_MAX {
            tasks.check_place().expect("below the limit");
            tasks.insert(key(number), ());
        }
        assert_eq!(tasks.check_place().expect_err("full").reason, Reason::QueueFull);
        assert!(tasks.get(&key(7)).is_some(), "running tasks can be joined");
        tasks.remove(&key(7));
        tasks.check_place().expect("one has ended");
    }
}
