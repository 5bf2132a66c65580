//! The report for the status page: the load balancers that are being converged, and what the task of each load balancer waits for.

use std::sync::PoisonError;

use tokio::time::Instant;

use super::{Converger, Handle, Progress};
use crate::{driver::Driver, vendor::Vendor};

#[derive(Clone, Debug)]
pub(crate) struct TaskReport {
    /// The UID of the owner.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) waits_for: String,
    /// The time at which the change was first requested. Each retry after a failure is a new task.
    pub(crate) began: Instant,
    pub(crate) done: u32,
    pub(crate) total: u32,
}

impl<D: Driver> Converger<D> {
    /// Returns at most `most` running tasks, the oldest first, and the number of the remaining tasks.
    pub(crate) fn report(&self, most: usize) -> (Vec<TaskReport>, usize) {
        let mut running: Vec<_> = {
            let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let one = |((_cluster, uid), handle): (&(String, String), &Handle<D::Detail>)| {
                (handle.began, uid.clone(), handle.clone())
            };
            tasks.by_name().map(one).collect()
        };
        running.sort_by(|(began, uid, _), (other, other_uid, _)| (began, uid).cmp(&(other, other_uid)));
        let more = running.len().saturating_sub(most);
        running.truncate(most);
        let reports = running.into_iter().map(|(_, uid, handle)| report(uid, &handle, &self.vendor));
        (reports.collect(), more)
    }
}

fn report<T>(key: String, handle: &Handle<T>, vendor: &Vendor) -> TaskReport {
    let (done, total, waits_for) = match &*handle.progress.borrow() {
        Progress::Working { done, total, waits_for, .. } => (*done, *total, waits_for.clone()),
        Progress::Ended { done, .. } => (*done, *done, String::new()),
    };
    let budget = vendor.waits(&handle.position).map(|wait| wait.to_string());
    let object = handle.orders.borrow().purpose.object.clone();
    let name = crate::vendor::object(&object).unwrap_or_default().to_owned();
    TaskReport { key, name, waits_for: budget.unwrap_or(waits_for), began: handle.began, done, total }
}
