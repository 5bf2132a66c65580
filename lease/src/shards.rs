//! Many Leases that divide the work into fair shares.

use std::{num::NonZeroU16, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    elector::Elector,
    layout::{self, LeaseState},
    member::{Board, Member},
    record::{self, MOST_SHARDS},
    settings::{Settings, SettingsError},
    shard_handle::{Gate, ShardHandle},
};

/// Takes part in the elections for all shards, and ensures that each replica holds its fair share of the shards.
///
/// With a single shard, this elector works like [`Elector`], but also respects replicas that use another number of shards.
pub struct ShardElector {
    client: Client,
    settings: Settings,
    wall: (Timestamp, Instant),
    board: Arc<Board>,
    electors: Vec<Elector>,
    gates: Vec<Gate>,
}

impl std::fmt::Debug for ShardElector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardElector").field("electors", &self.electors).finish_non_exhaustive()
    }
}

impl ShardElector {
    /// Creates an elector without sending a request. The settings name the first shard's Lease; the Lease of shard `i` has the suffix `-i`.
    pub fn new(
        client: Client,
        settings: Settings,
        shards: NonZeroU16,
        wall: Timestamp,
    ) -> Result<(Self, Vec<ShardHandle>), SettingsError> {
        let shards = shards.get();
        if shards > MOST_SHARDS {
            let fix = format!(
                "invalid value {shards}: must be 1 to {MOST_SHARDS}, since each \
                 replica reads the Lease of each shard"
            );
            return Err(SettingsError { field: "shards", fix });
        }
        settings.check()?;
        of_shard(&settings, MOST_SHARDS).check()?;
        let now = Instant::now();
        let board = Arc::new(Board::new(&settings, shards, now));
        let gates: Vec<_> = (0..shards).map(|_| Gate::default()).collect();
        let electors = Vec::new();
        let mut this = Self { client, settings, wall: (wall, now), board, electors, gates: gates.clone() };
        let (electors, handles) = (0..shards).zip(gates).map(|(at, gate)| this.elector(at, gate)).unzip();
        this.electors = electors;
        Ok((this, handles))
    }

    fn elector(&self, at: u16, gate: Gate) -> (Elector, ShardHandle) {
        let now = Instant::now();
        let settings = of_shard(&self.settings, at);
        let name = settings.name.clone();
        let member = Member::new(at.into(), &self.board, gate.clone(), now);
        let (elector, leadership) = Elector::of(self.client.clone(), settings, self.wall(now), Some(member));
        let handle = ShardHandle::behind(gate, &name, leadership, elector.beats());
        (elector, handle)
    }

    fn wall(&self, now: Instant) -> Timestamp {
        let (wall, since) = self.wall;
        wall.checked_add(now.duration_since(since)).unwrap_or(wall)
    }

    /// Takes part in the elections until `leaving` is cancelled. From then on this process takes no Lease, and its shards admit no work.
    /// Each Lease is released as soon as no work is in progress in its shard. When `release` is cancelled, the remaining Leases are
    /// released at once.
    ///
    /// Cost: the cost of one [`Elector`] for each shard, plus one read per acquisition and one write per request for a shard.
    pub async fn run(mut self, leaving: CancellationToken, release: CancellationToken) {
        let mut changes = self.board.changes();
        let electors = std::mem::take(&mut self.electors);
        let mut running: FuturesUnordered<BoxFuture<'static, ()>> =
            electors.into_iter().map(|elector| elector.run(release.clone()).boxed()).collect();
        // These electors only observe Leases that replicas with another number of shards may hold.
        let mut watching = FuturesUnordered::new();
        let mut left = false;
        loop {
            changes.mark_unchanged();
            if leaving.is_cancelled() && !left {
                left = true;
                self.gates.iter().for_each(|gate| gate.set_closed(true));
                self.board.leave();
            }
            match self.beyond() {
                Beyond::Observe(more) => {
                    watching.extend(
                        more.map(|at| self.elector(at, Gate::default()).0.run(release.clone()).boxed()),
                    );
                }
                Beyond::Forget => {
                    watching.clear();
                    self.board.with(|table| table.leases.truncate(table.shards.into()));
                }
                Beyond::Same => (),
            }
            tokio::select! {
                ended = running.next() => if ended.is_none() { return },
                Some(()) = watching.next() => (),
                Ok(()) = changes.changed() => (),
                () = leaving.cancelled(), if !left => (),
            }
        }
    }

    fn beyond(&self) -> Beyond {
        self.board.with(|table| {
            let known = u16::try_from(table.leases.len()).unwrap_or(MOST_SHARDS);
            let extent = layout::extent(table.shards, &table.leases);
            if table.is_settled() {
                return if known > table.shards { Beyond::Forget } else { Beyond::Same };
            }
            if extent <= known {
                return Beyond::Same;
            }
            table.leases.resize(extent.into(), LeaseState::default());
            Beyond::Observe(known..extent)
        })
    }
}

/// The additional Leases to observe, because replicas with another number of shards may hold them.
enum Beyond {
    Observe(std::ops::Range<u16>),
    Forget,
    Same,
}

fn of_shard(settings: &Settings, at: u16) -> Settings {
    Settings { name: record::name_of(&settings.name, at.into()), ..settings.clone() }
}
