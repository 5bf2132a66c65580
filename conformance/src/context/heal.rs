//! Ends what an adapter remembers of faults, so that no check pays for another.

use std::time::{Duration, SystemTime};

use cloud_api_proto::v1alpha1::{WatchStatusResponse, breaker::State};

use super::Context;
use crate::{api::Role, check::Stop, hooks::Hook, lane::FIRST_ANSWER};

/// A status comes from memory.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// Of what is configured: a bucket that grants less has learned from a vendor who throttled.
const LEARNED: f64 = 0.9;

impl Context {
    /// Waits until vendor calls of all kinds pass again, after faults that an adapter remembers: rejected credentials, open breakers,
    /// pauses, and rates that it has lowered. Starts the adapter anew, which is quicker and forgets them all, if the parameter file has
    /// the commands; else rates may stay low.
    ///
    /// # Errors
    /// If they do not within `timings.heal`.
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

    /// Whether the adapter says that it still remembers a fault, or has died of it.
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

    /// A read of each kind.
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

/// Whether calls do not pass: because of a pause, a breaker, or the credentials.
#[expect(clippy::disallowed_methods, reason = "the adapter tells a time of the wall clock")]
fn is_held_up(status: &WatchStatusResponse) -> bool {
    let now = SystemTime::now();
    let paused = status.budgets.iter().any(|bucket| {
        let until = bucket.paused_until.and_then(|until| SystemTime::try_from(until).ok());
        until.is_some_and(|until| until > now)
    });
    let open = |state| matches!(state, State::Open | State::HalfOpen);
    paused || status.self_check_error.is_some() || status.breakers.iter().any(|breaker| open(breaker.state()))
}

/// Whether a bucket grants less than is configured.
fn is_slowed(status: &WatchStatusResponse) -> bool {
    status.budgets.iter().any(|bucket| bucket.rate < bucket.ceiling * LEARNED)
}
