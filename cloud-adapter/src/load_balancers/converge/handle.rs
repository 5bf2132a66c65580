//! A running task, as RPCs use it: they join the task, wait for its end, and read its progress.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Priority};
use telemetry::traces::Origin;
use tokio::{sync::watch, time::Instant};

use super::{super::decide::End, Failure, Order};
use crate::vendor::{Meter, QueuePosition};

#[derive(Clone, Debug)]
pub(crate) struct Handle<D> {
    pub(super) orders: watch::Sender<Order>,
    /// The priority of the task. A higher priority also applies to the task's queued vendor calls.
    pub(super) priority: watch::Sender<Priority>,
    pub(super) progress: watch::Receiver<Progress<D>>,
    /// The trace of the call that started the task.
    pub(super) origin: Origin,
    /// Counts the vendor calls of the task. Each answer reports the calls since the last answer.
    pub(super) meter: Arc<Meter>,
    pub(super) position: QueuePosition,
    pub(super) began: Instant,
}

#[derive(Clone, Debug)]
pub(crate) enum Progress<D> {
    /// The task is running.
    ///
    /// If `failure` is set, the last write failed and the task will try it again.
    Working { done: u32, total: u32, waits_for: String, failure: Option<Failure> },
    /// The task has ended for the order with this number.
    Ended { order: u64, done: u32, result: Result<End<D>, AdapterError> },
}

impl<D: Clone> Handle<D> {
    pub(crate) fn position(&self) -> &QueuePosition {
        &self.position
    }

    /// Waits until the task has ended, but no longer than until `until`. Returns the progress of the task, and adds its cost to the
    /// caller's meter.
    ///
    /// Returns `OPERATION_CONFLICT` as soon as a newer desired state replaces the order with this number.
    pub(crate) async fn wait(
        mut self,
        number: u64,
        until: Instant,
        payer: &Meter,
    ) -> Result<Progress<D>, AdapterError> {
        let mut orders = self.orders.subscribe();
        let ended = |progress: &Progress<D>| matches!(progress, Progress::Ended { .. });
        tokio::select! {
            // When the time limit is reached, the task continues in the background.
            () = tokio::time::sleep_until(until) => (),
            _ = self.progress.wait_for(ended) => (),
            () = newer(&mut orders, number) => (),
        }
        payer.absorb(&self.meter);
        let progress = self.progress.borrow().clone();
        match progress {
            Progress::Ended { order, .. } if order == number => Ok(progress),
            Progress::Working { .. } if orders.borrow().number == number => Ok(progress),
            Progress::Ended { .. } | Progress::Working { .. } => {
                let text = "a newer request has replaced the desired state of this load balancer";
                Err(AdapterError::new(Reason::OperationConflict, text))
            }
        }
    }
}

/// Waits for an order with another number. Waits forever if there are no senders, which happens only after a panic.
pub(super) async fn newer(orders: &mut watch::Receiver<Order>, number: u64) {
    if orders.wait_for(|order| order.number != number).await.is_err() {
        std::future::pending::<()>().await;
    }
}
