//! These tests run electors with a fake API server that has one Lease.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails at the first unexpected result"
)]

mod divisions;
mod handover;
mod history;
mod leaving;
mod one_shard;
mod server;
mod shards;
mod trouble;
mod world;

use std::{num::NonZeroU16, time::Duration};

use cloud_lease::{Elector, Leadership, Settings, ShardElector, Timing};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use self::server::FakeServer;

/// The second in which each fake API server is created.
const BEGIN: u64 = 1_800_000_000;

/// Dropping this value ends the elector as if it was killed.
struct Running {
    leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

fn settings(identity: &str) -> Settings {
    Settings {
        namespace: "kube-system".into(),
        name: "cloud-adapter".into(),
        identity: identity.into(),
        timing: Timing::default(),
    }
}

fn start_one_shard(server: &FakeServer, identity: &str) -> Running {
    let elector = ShardElector::new(server.client(), settings(identity), NonZeroU16::MIN, server.wall());
    let (elector, handles) = elector.expect("valid");
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    task.spawn(elector.run(stop.clone(), stop.clone()));
    Running { leadership: handles.first().expect("one shard").leadership(), stop, task }
}

fn start(server: &FakeServer, identity: &str) -> Running {
    let (elector, leadership) =
        Elector::new(server.client(), settings(identity), server.wall()).expect("valid");
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    task.spawn(elector.run(stop.clone()));
    Running { leadership, stop, task }
}

impl Running {
    /// Waits until this elector leads. Returns the epoch, and the time until which this elector may rely on the lease.
    async fn leads(&mut self) -> (u64, Instant) {
        let leads = |now: &Leadership| matches!(now, Leadership::Leader { .. });
        let now = tokio::time::timeout(Duration::from_mins(5), self.leadership.wait_for(leads)).await;
        match &*now.expect("it leads in time").expect("runs") {
            Leadership::Leader { valid_until, epoch, .. } => (*epoch, *valid_until),
            Leadership::Follower { .. } => panic!("waited for a leader"),
        }
    }

    /// The epoch of the first of this elector's consecutive terms. Panics if this elector does not lead.
    fn since(&self) -> u64 {
        match &*self.leadership.borrow() {
            Leadership::Leader { since, .. } => *since,
            Leadership::Follower { .. } => panic!("asked for a leader"),
        }
    }

    async fn follows(&mut self, holder: Option<&str>) {
        let wanted = Leadership::Follower { holder: holder.map(str::to_owned) };
        let now = self.leadership.wait_for(|now| *now == wanted);
        tokio::time::timeout(Duration::from_mins(5), now).await.expect("it follows in time").expect("runs");
    }
}
