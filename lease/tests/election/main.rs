//! Whole electors against a fake API server that knows one Lease.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where something unexpected happens"
)]

mod handover;
mod server;
mod trouble;

use std::time::Duration;

use cloud_lease::{Elector, Leadership, Settings, Timing};
use k8s_openapi::jiff::Timestamp;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use self::server::FakeServer;

/// A running elector. Dropped, it ends as if killed.
struct Running {
    leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

fn start(server: &FakeServer, identity: &str) -> Running {
    let settings = Settings {
        namespace: "kube-system".into(),
        name: "cloud-adapter".into(),
        identity: identity.into(),
        timing: Timing::default(),
    };
    let wall = Timestamp::from_second(1_800_000_000).expect("in range");
    let (elector, leadership) = Elector::new(server.client(), settings, wall).expect("valid");
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    task.spawn(elector.run(stop.clone()));
    Running { leadership, stop, task }
}

impl Running {
    /// Waits until it leads; returns the epoch and until when.
    async fn leads(&mut self) -> (u32, Instant) {
        let leads = |now: &Leadership| matches!(now, Leadership::Leader { .. });
        let now = tokio::time::timeout(Duration::from_mins(5), self.leadership.wait_for(leads)).await;
        match &*now.expect("in time").expect("runs") {
            Leadership::Leader { valid_until, epoch } => (*epoch, *valid_until),
            Leadership::Follower { .. } => panic!("waited for a leader"),
        }
    }

    /// Waits until it follows this holder.
    async fn follows(&mut self, holder: Option<&str>) {
        let wanted = Leadership::Follower { holder: holder.map(str::to_owned) };
        let now = self.leadership.wait_for(|now| *now == wanted);
        tokio::time::timeout(Duration::from_mins(5), now).await.expect("in time").expect("runs");
    }
}
