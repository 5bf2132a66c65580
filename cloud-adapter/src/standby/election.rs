//! Sets the duty of this replica according to the state of the Lease, and limits how long vendor calls may be sent.

use std::{sync::Arc, time::SystemTime};

use anyhow::Context as _;
use cloud_lease::{Elector, Leadership};
use k8s_openapi::jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::peer::Peer;
use crate::{config::Options, rpc::Rpc, wrong_usage::WrongUsage};

/// No request is sent before `run` is called.
#[derive(Debug)]
pub(crate) struct Election {
    elector: Elector,
    leadership: watch::Receiver<Leadership>,
    pub(crate) peer: Peer,
}

impl Election {
    /// Validates the flags of a replica.
    ///
    /// Returns faults of the flags as [`WrongUsage`].
    pub(crate) async fn prepare(
        options: &Options,
        instance_id: &str,
        wall: SystemTime,
    ) -> anyhow::Result<Self> {
        let (replicas, security) = (&options.replicas, &options.security);
        let identity = replicas.identity(instance_id)?;
        let peer = Peer::new(replicas.security(security)?, &identity)?;
        let (client, settings) = replicas.lease(security.kubeconfig.as_deref(), identity).await?;
        let wall = Timestamp::try_from(wall).context("the clock is wrong")?;
        let (elector, leadership) = Elector::new(client, settings, wall).map_err(|error| {
            WrongUsage(format!("--lease-namespace, --lease-name, --advertise-address: {error}"))
        })?;
        Ok(Self { elector, leadership, peer })
    }

    /// Takes part in the election and sets the duties, until the caller asks to release the Lease.
    pub(crate) async fn run(self, rpc: Rpc, release: CancellationToken) {
        let Self { elector, leadership, .. } = self;
        tokio::join!(elector.run(release), follow(leadership, &rpc));
    }
}

/// Sets the duty after each change of the leadership, until the leadership is no longer published.
async fn follow(mut leadership: watch::Receiver<Leadership>, rpc: &Rpc) {
    loop {
        let verdict = leadership.borrow_and_update().clone();
        let more = match verdict {
            Leadership::Leader { valid_until, epoch, .. } if valid_until > Instant::now() => {
                lead(rpc, epoch, valid_until);
                tokio::select! {
                    changed = leadership.changed() => changed,
                    () = sleep_until(valid_until) => Ok(()),
                }
            }
            Leadership::Leader { .. } => {
                // From this replica's point of view the Lease has expired, but a renewal may still be in progress.
                stand_by(rpc, None);
                leadership.changed().await
            }
            Leadership::Follower { holder } => {
                stand_by(rpc, holder.map(Arc::from));
                leadership.changed().await
            }
        };
        if more.is_err() {
            return;
        }
    }
}

fn lead(rpc: &Rpc, epoch: u64, valid_until: Instant) {
    if rpc.replica.drains() {
        // The Lease is kept until the last call has ended. No new calls are sent.
        return;
    }
    if !rpc.replica.leads() {
        // The previous leader may have used up the budget, so a term begins with empty buckets.
        rpc.vendor.start_empty();
    }
    rpc.vendor.allow_until(valid_until);
    rpc.replica.lead(epoch);
    rpc.metrics.leader(rpc.replica.leads());
}

fn stand_by(rpc: &Rpc, leader: Option<Arc<str>>) {
    rpc.vendor.halt();
    if let Some(leader) = leader.as_deref() {
        tracing::info!(leader, "This replica is a standby; following the leader");
    }
    rpc.replica.stand_by(leader);
    rpc.metrics.leader(false);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use cloud_api_proto::v1alpha1::Priority;

    use super::*;
    use crate::{
        driver::{Classify, Fault, VendorError},
        metrics::Metrics,
        vendor::{Family, Operation, Purpose, Vendor, VendorResponse},
    };

    struct Never;

    impl Classify for Never {
        fn classify(&self, _: Operation, _: &VendorResponse) -> Option<VendorError> {
            None
        }
    }

    fn rpc() -> Rpc {
        let vendor = Vendor::new(&cloud_budget::Config::default(), Arc::new(Never), &Metrics::new());
        Rpc::testing(Arc::new(vendor.expect("TLS")), None)
    }

    /// Makes this replica the leader for nine seconds, as the election does.
    async fn elected(rpc: &Rpc) {
        let valid_until = Instant::now() + Duration::from_secs(9);
        let (verdicts, leadership) =
            watch::channel(Leadership::Leader { valid_until, epoch: 1, since: 1, uid: Arc::from("u") });
        drop(verdicts);
        follow(leadership, rpc).await;
    }

    async fn call(rpc: &Rpc) -> Fault {
        let session = rpc.vendor.session(Purpose::own(Priority::Interactive, "test"));
        let request = http::Request::get("http://127.0.0.1:1/").body(Bytes::new()).expect("a request");
        let read = Operation::read(Family::Compute, "ListInstances");
        session.call(read, request).await.expect_err("connection refused").fault
    }

    #[tokio::test]
    async fn renewal_does_not_resume_calls_of_a_stopping_leader() {
        let rpc = rpc();
        elected(&rpc).await;
        assert_eq!(call(&rpc).await, Fault::Unavailable, "leading, so the call is sent");
        rpc.replica.drain();
        rpc.vendor.halt();
        elected(&rpc).await;
        assert_eq!(call(&rpc).await, Fault::NotLeader, "calls stay halted");
    }
}
