//! Waits until the adapter has recovered from injected faults, so that the faults do not affect the next check.

use std::time::{Duration, SystemTime};

use cloud_api_proto::v1alpha1::{WatchStatusResponse, breaker::State};

use super::Context;
use crate::{api::Role, hooks::Hook, lane::FIRST_ANSWER, verdict::Stop};

/// Limit for a status report, which the adapter has in memory.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// A rate below this fraction of the configured rate means that the adapter has lowered it, because the vendor throttled calls.
const LEARNED: f64 = 0.9;

impl Context {
    /// Waits until vendor calls of all kinds succeed again after faults that an adapter remembers: rejected credentials, open breakers,
    /// pauses, and lowered rates. Restarts the adapter if the parameter file has the commands, which is faster and clears all of these;
    /// otherwise rates may stay low.
    /// Returns an error if the calls do not succeed within `timings.heal`.
    pub async fn heal(&self) -> Result<(), Stop> {
        if !self.is_marked().await && self.well().await.is_ok() {
            return Ok(());
        }
        let hooks = &self.lane.hooks;
        if hooks.has(Hook::KillAdapter) && hooks.has(Hook::StartAdapter) {
            for replica in 0..self.lane.params.replicas.len().max(1) {
                self.replica_process(replica).restart().await?;
            }
        }
        let wants = "the adapter recovers when the vendor does";
        self.until(self.params.timings.heal, wants, || async {
            let held_up = self.status().await.is_some_and(|status| is_held_up(&status));
            Ok(if held_up { None } else { self.well().await.ok() })
        })
        .await
    }

    /// Whether the adapter reports an effect of an earlier fault, or does not answer.
    pub(crate) async fn is_marked(&self) -> bool {
        match self.status().await {
            Some(status) => is_held_up(&status) || is_slowed(&status),
            None => self.lane.ask(FIRST_ANSWER).await.is_err(),
        }
    }

    async fn status(&self) -> Option<WatchStatusResponse> {
        let api = self.api(Role::Operator).ok()?.within(STATUS_WITHIN);
        let mut watch = api.watch_status(&self.cluster().context()).await.ok()?;
        watch.next(STATUS_WITHIN).await.ok()?
    }

    async fn well(&self) -> Result<(), Stop> {
        let cluster = self.cluster();
        if self.can("instances") {
            self.instances().await?;
        }
        if self.can("loadbalancers") {
            self.load_balancers(&cluster).await?;
        }
        if self.can("routes") {
            self.routes(&cluster).await?;
        }
        Ok(())
    }
}

/// Whether a pause, a breaker or rejected credentials block vendor calls.
#[expect(clippy::disallowed_methods, reason = "the adapter reports times of the wall clock")]
fn is_held_up(status: &WatchStatusResponse) -> bool {
    let now = SystemTime::now();
    let paused = status.budgets.iter().any(|bucket| {
        let until = bucket.paused_until.and_then(|until| SystemTime::try_from(until).ok());
        until.is_some_and(|until| until > now)
    });
    let open = |state| matches!(state, State::Open | State::HalfOpen);
    paused || status.self_check_error.is_some() || status.breakers.iter().any(|breaker| open(breaker.state()))
}

/// Whether the adapter has lowered the rate of a bucket below its configured rate.
fn is_slowed(status: &WatchStatusResponse) -> bool {
    status.budgets.iter().any(|bucket| bucket.rate < bucket.ceiling * LEARNED)
}
