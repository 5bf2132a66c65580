//! Decides the next action of one shard's candidate. The replicas share the Leases of all shards fairly, so the decision uses the
//! observations of all shards of this process. A division is the number of shards; see `layout`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use crate::{
    candidate::{Action, Candidate},
    layout::{self, Division, LeaseState, Opening, Run},
    record::{self, BEFORE, Notes, Record, SHARDS, WANTED_BY},
    settings::{Settings, Timing},
    shard_handle::Gate,
    share::{DRAIN, Shares, Take, View},
};

/// State shared by all shards of a process.
#[derive(Debug)]
pub(crate) struct Board {
    table: Mutex<Table>,
    changes: watch::Sender<()>,
}

#[derive(Debug)]
pub(crate) struct Table {
    me: String,
    /// The name of the first shard's Lease.
    lease: String,
    timing: Timing,
    /// Number of shards into which this process divides the work.
    pub(crate) shards: u16,
    /// All Leases of this division, and further Leases that belong only to another division.
    pub(crate) leases: Vec<LeaseState>,
    refused: BTreeMap<String, Instant>,
    began: Instant,
    /// Whether a log line has reported that another division is in force.
    logged: bool,
    /// The unreadable Leases in the last log line about unreadable Leases.
    unread: Vec<usize>,
    /// Whether this process takes no more Leases, and releases the Leases that it holds.
    leaving: bool,
    changed: bool,
}

impl Board {
    pub(crate) fn new(settings: &Settings, shards: u16, now: Instant) -> Self {
        let table = Table {
            me: settings.identity.clone(),
            lease: settings.name.clone(),
            timing: settings.timing,
            shards,
            leases: vec![LeaseState::default(); shards.into()],
            refused: BTreeMap::new(),
            began: now,
            logged: false,
            unread: Vec::new(),
            leaving: false,
            changed: false,
        };
        Self { table: Mutex::new(table), changes: watch::Sender::new(()) }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Stops taking Leases. Each Lease of this process is released as soon as no work is in progress in its shard.
    pub(crate) fn leave(&self) {
        self.with(|table| {
            table.changed |= !table.leaving;
            table.leaving = true;
        });
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut table: MutexGuard<'_, Table> = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut table);
        if std::mem::take(&mut table.changed) {
            drop(table);
            self.changes.send_replace(());
        }
        result
    }
}

impl Table {
    fn ours(&self) -> usize {
        self.shards.into()
    }

    fn shares(&self) -> Shares<'_> {
        let shards = self.leases.iter().take(self.ours()).map(|lease| &lease.view).collect();
        Shares { me: &self.me, timing: self.timing, shards, refused: &self.refused }
    }

    fn division(&self) -> Division {
        self.leases.first().map(|first| first.division).unwrap_or_default()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.division().is_settled(self.shards)
    }

    /// Whether enough is known to compute fair shares. A Lease that cannot be read delays the other Leases only briefly.
    fn is_ready(&self, now: Instant) -> bool {
        let seen = |lease: &LeaseState| lease.view.free_from.is_some();
        now >= self.began + self.timing.retry || self.leases.iter().take(self.ours()).all(seen)
    }

    /// Returns the next time at which the decision may change without a new observation.
    fn next(&self, now: Instant) -> Option<Instant> {
        let began = Some(self.began + self.timing.retry).filter(|at| *at > now);
        let others = self.leases.iter().skip(self.ours()).filter_map(|lease| lease.view.free_from);
        self.shares().next(now).into_iter().chain(began).chain(others.filter(|at| *at > now)).min()
    }

    /// Logs once the unreadable Leases that delay the work.
    fn log_unread(&mut self, now: Instant) {
        let unread: Vec<usize> = (0..self.leases.len())
            .filter(|at| self.leases.get(*at).is_some_and(|lease| lease.division == Division::Unknown))
            .collect();
        if now < self.began + 2 * self.timing.retry || unread == self.unread {
            return;
        }
        if !unread.is_empty() {
            let leases =
                unread.iter().map(|at| record::name_of(&self.lease, *at)).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                leases,
                "Cannot read the Leases yet; waiting, because they decide how many shards this replica takes"
            );
        }
        self.unread = unread;
    }

    fn lease_mut(&mut self, at: usize) -> Option<&mut LeaseState> {
        self.leases.get_mut(at)
    }

    fn request_read(&mut self, at: usize, from: Instant) {
        if let Some(lease) = self.lease_mut(at) {
            let due = lease.is_read_due();
            lease.request_read(from);
            self.changed |= !due && self.leases.get(at).is_some_and(LeaseState::is_read_due);
        }
    }

    fn set_closing(&mut self, at: usize, to: Option<String>) {
        if let Some(lease) = self.lease_mut(at).filter(|lease| lease.view.closing != to) {
            lease.view.closing = to;
            self.changed = true;
        }
    }

    fn set_taking(&mut self, at: usize) {
        if let Some(lease) = self.lease_mut(at) {
            lease.view.taking = true;
            self.changed = true;
        }
    }

    /// Publishes what the candidate has observed about its Lease.
    fn publish(&mut self, at: usize, candidate: &Candidate, now: Instant) {
        let Some(lease) = self.lease_mut(at) else { return };
        let view = view(&lease.view, candidate, now);
        let division = Division::of(candidate);
        lease.until = candidate.term().map(|(_, until)| until);
        lease.missing = candidate.record().is_some() && candidate.version().is_none();
        let epoch = candidate.record().map(Record::epoch).unwrap_or_default();
        let since = candidate.term().map_or(epoch, |_| candidate.since());
        lease.run = Run { since, epoch };
        let free = |view: &View| (view.free_from.is_some(), view.is_free(now));
        let same = lease.division == division
            && free(&view) == free(&lease.view)
            && View { free_from: lease.view.free_from, ..view.clone() } == lease.view;
        lease.view = view;
        lease.division = division;
        self.changed |= !same;
    }
}

/// The new view of a shard, after the candidate's latest observation.
fn view(last: &View, candidate: &Candidate, now: Instant) -> View {
    let record = candidate.record();
    let holder = candidate.holder().map(str::to_owned);
    let released = record.is_some_and(|record| record.released);
    let wish = record.and_then(|record| record.wanted_by.clone()).map(|by| match &last.wish {
        Some((known, since)) if *known == by && last.holder == holder => (by, *since),
        Some(_) | None => (by, now),
    });
    let ours = candidate.term().is_some();
    // Each read of a free Lease would restart the time for which the Lease has been free, so only the first read counts.
    let same = last.holder == holder && last.released == released && !last.ours;
    let first = last.free_from.filter(|from| same && *from <= now);
    let free_from = candidate.free_from().map(|from| first.filter(|_| from <= now).unwrap_or(from));
    View {
        holder,
        free_from,
        ours,
        taking: false,
        closing: last.closing.clone().filter(|_| ours),
        released,
        wish,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Step(Action),
    RenewWith {
        version: String,
        notes: Notes,
    },
    /// Write these annotations on a Lease of another process.
    Note {
        version: String,
        notes: Notes,
    },
    /// Release the lease, because this process may start no more work in the shard.
    Release {
        why: &'static str,
    },
}

/// The state of one shard of this process.
#[derive(Debug)]
pub(crate) struct Member {
    at: usize,
    board: Arc<Board>,
    changes: watch::Receiver<()>,
    gate: Gate,
    held: Option<Held>,
    /// While this process holds this shard: epoch of the first shard's Lease when the division was last confirmed.
    divided_in: Option<u64>,
    /// Epoch of the first term of this shard since which no process used another division.
    since: u64,
    /// Number of Leases of another division that an acquisition must record.
    before: Option<u16>,
    /// Earliest time of the next write on a Lease of another process.
    write_from: Instant,
    /// Earliest time of the next read requested by other shards.
    read_from: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// The time at which this process learnt that it holds the lease.
    taken: Instant,
    /// Whether it is confirmed that no process uses another division any more.
    confirmed: bool,
    /// Time by which the Lease is released for the replica that asked for it. `None`: no such release is due.
    closes: Option<Instant>,
    /// Whether the lease is released as soon as no work is in progress.
    leaving: bool,
}

impl Member {
    pub(crate) fn new(at: usize, board: &Arc<Board>, gate: Gate, now: Instant) -> Self {
        let (board, changes) = (Arc::clone(board), board.changes());
        Self {
            at,
            board,
            changes,
            gate,
            held: None,
            divided_in: None,
            since: 0,
            before: None,
            write_from: now,
            read_from: now,
        }
    }

    /// Returns when observations of other shards may have changed the next action of this shard.
    pub(crate) fn woken(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut changes, gate) = (self.changes.clone(), self.gate.clone());
        let closes = self.held.is_some_and(|held| held.closes.is_some() || held.leaving);
        async move {
            tokio::select! {
                _ = changes.changed() => (),
                () = gate.empty(), if closes => (),
            }
        }
    }

    /// Whether work may begin in a shard held by this process.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.held.is_some_and(|held| held.confirmed)
    }

    /// Records a read or write of the candidate that was started at `started`.
    pub(crate) fn observed(&mut self, candidate: &Candidate, started: Instant) {
        let (at, now) = (self.at, Instant::now());
        self.read_from = now;
        self.board.with(|table| {
            table.publish(at, candidate, now);
            if let Some(lease) = table.lease_mut(at) {
                let due = lease.is_read_due();
                lease.record_read(started);
                table.changed |= due;
            }
        });
        if candidate.term().is_some() && self.held.is_none() {
            self.held = Some(Held { taken: now, confirmed: false, closes: None, leaving: false });
        }
    }

    /// Records that the candidate no longer relies on its Lease.
    pub(crate) fn resigned(&mut self, candidate: &Candidate) {
        self.held = None;
        self.board.with(|table| table.publish(self.at, candidate, Instant::now()));
    }

    /// Returns the epoch of the first term of this shard since which no process used another division. The terms of this Lease do not show
    /// that, because a process with another division works without this Lease.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Returns the annotations that an acquisition writes.
    pub(crate) fn notes(&self, transitions: u32) -> Notes {
        let shards = self.board.with(|table| table.shards);
        let annotation = (shards > 1).then(|| record::shards_in_term(shards, transitions));
        let mut notes = Notes::from([(WANTED_BY, None), (SHARDS, annotation)]);
        if self.at == 0 {
            notes.insert(BEFORE, self.before.map(|before| before.to_string()));
        }
        notes
    }

    pub(crate) fn decide(&mut self, candidate: &Candidate, now: Instant) -> Act {
        self.changes.mark_unchanged();
        let board = Arc::clone(&self.board);
        board.with(|table| {
            table.publish(self.at, candidate, now);
            let act = if candidate.term().is_some() {
                self.keep(table, candidate, now)
            } else {
                self.held = None;
                self.gate.set_closed(table.leaving);
                self.stand_by(table, candidate, now)
            };
            if let Act::Step(Action::Wait(until)) = act {
                let closes = self.held.and_then(|held| held.closes);
                Act::Step(Action::Wait(table.next(now).into_iter().chain(closes).fold(until, Instant::min)))
            } else {
                act
            }
        })
    }

    fn keep(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Act {
        let step = candidate.decide(now);
        let Some(mut held) = self.held.filter(|_| !matches!(step, Action::Lost(_))) else {
            return Act::Step(step);
        };
        let mine = table.shards;
        if self.at > 0 && self.is_divided_again(table, held.taken, now) {
            return Act::Release { why: "a different number of shards is in effect" };
        }
        if table.leaving {
            self.gate.set_closed(true);
            held.leaving = true;
            // A replica that asked for the shard gets it as soon as no work is in progress, so this case needs no deadline.
            held.closes = None;
            self.held = Some(held);
            // Work begins only after the confirmation, so without it no work can be in progress.
            let over = !held.confirmed || self.gate.is_empty();
            return if over {
                Act::Release { why: "this replica is shutting down" }
            } else {
                Act::Step(step)
            };
        }
        if self.at > 0 {
            let first = table.leases.first();
            if let Some(run) = first.and_then(|first| layout::confirmed_in(mine, first, held.taken, now)) {
                // A process with another division works without this Lease, so this Lease does not show such a gap.
                let gap = !held.confirmed && !self.divided_in.is_some_and(|epoch| run.goes_on_from(epoch));
                if let (true, Some((epoch, _))) = (gap, candidate.term()) {
                    self.since = epoch;
                }
                self.divided_in = Some(run.epoch);
                held.confirmed = true;
            }
            if !held.confirmed {
                let settled =
                    table.is_settled() && table.leases.first().is_some_and(|first| !first.is_read_due());
                // Another read may be needed before the end of another division is observed.
                table.request_read(0, if settled { now } else { held.taken });
            }
        } else if !held.confirmed {
            held.confirmed = table.is_settled();
            if !held.confirmed
                && let Some(act) = self.settle(table, candidate, held.taken, now)
            {
                return act;
            }
        }
        self.held = Some(held);
        if held.confirmed { self.hand_over(table, held, step, now) } else { Act::Step(step) }
    }

    /// Whether the first Lease states another division. Observations made before this Lease was taken do not count.
    fn is_divided_again(&self, table: &mut Table, taken: Instant, now: Instant) -> bool {
        let Some(first) = table.leases.first() else { return false };
        let mine = table.shards;
        if first.read_since(taken).is_some_and(|read| read.division.is_another(mine)) {
            return true;
        }
        // The watch event may be outdated, so another read is needed.
        if first.division.is_another(mine) && !first.is_read_due() {
            table.request_read(0, now);
        }
        false
    }

    /// While this process holds the first Lease, checks whether other divisions have ended.
    fn settle(
        &mut self,
        table: &mut Table,
        candidate: &Candidate,
        taken: Instant,
        now: Instant,
    ) -> Option<Act> {
        if !layout::is_settled(table.shards, &table.leases, taken, now) {
            for at in 1..table.leases.len() {
                let from =
                    table.leases.get(at).and_then(|lease| lease.helpful_read(table.shards, taken, now));
                if let Some(from) = from {
                    table.request_read(at, from);
                }
            }
            return None;
        }
        let version = candidate.version().filter(|_| candidate.is_current() && now >= self.write_from)?;
        self.write_from = now + table.timing.retry;
        Some(Act::RenewWith { version: version.to_owned(), notes: Notes::from([(BEFORE, None)]) })
    }

    fn hand_over(&mut self, table: &mut Table, mut held: Held, step: Action, now: Instant) -> Act {
        let Some(view) = table.leases.get(self.at).map(|lease| &lease.view) else { return Act::Step(step) };
        let (closing, wish) = (view.closing.clone(), view.wish.as_ref().map(|(by, _)| by.as_str()));
        let to = if closing.is_some() && closing.as_deref() == wish {
            closing
        } else {
            // If another replica asks for the shard now, the work in progress has already had its time to finish.
            table.set_closing(self.at, None);
            table.shares().grant(self.at, now).map(str::to_owned)
        };
        held.closes = to.as_ref().map(|_| held.closes.unwrap_or(now + DRAIN));
        self.gate.set_closed(to.is_some());
        table.set_closing(self.at, to);
        self.held = Some(held);
        if held.closes.is_some_and(|at| now >= at || self.gate.is_empty()) {
            Act::Release { why: "a replica with fewer shards requested the Lease" }
        } else {
            Act::Step(step)
        }
    }

    fn stand_by(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Act {
        if now >= self.read_from && table.leases.get(self.at).is_some_and(LeaseState::is_read_due) {
            self.read_from = now + table.timing.retry;
            return Act::Step(Action::Read);
        }
        if let Some(act) = self.ask(table, candidate, now) {
            return act;
        }
        let step = candidate.decide_if(self.may_take(table, now), now);
        if let Action::Acquire(_) = step {
            table.set_taking(self.at);
        }
        Act::Step(step)
    }

    fn may_take(&mut self, table: &mut Table, now: Instant) -> bool {
        if self.at >= table.ours() || !table.is_ready(now) || table.leaving {
            return false;
        }
        let take = |table: &Table| table.shares().take(self.at, now) == Take::Now;
        self.before = None;
        if self.at > 0 {
            return table.is_settled() && take(table);
        }
        match layout::opening(table.shards, &table.leases, now) {
            Opening::Ours => {
                table.logged = false;
                take(table)
            }
            Opening::New { before } => {
                self.before = before;
                true
            }
            Opening::No => {
                table.log_unread(now);
                let another = table.division();
                if another.is_another(table.shards) && !table.logged {
                    table.logged = true;
                    let Division::Set { shards, .. } = another else { return false };
                    tracing::info!(
                        shards = table.shards,
                        others = shards,
                        "Other replicas use a different number of shards; waiting until those replicas have released all Leases"
                    );
                }
                false
            }
        }
    }

    /// Asks the holder to hand this shard over, or withdraws that request.
    fn ask(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Option<Act> {
        let view = table.leases.get(self.at).map(|lease| &lease.view)?;
        let version = candidate.version().filter(|_| candidate.is_current() && now >= self.write_from)?;
        let holder = view.holder.clone().filter(|holder| *holder != table.me)?;
        let asked = view.wish.as_ref().filter(|(by, _)| *by == table.me).map(|(_, since)| *since);
        let leaving = table.leaving && asked.is_some();
        let asks = self.at < table.ours() && table.is_settled() && table.is_ready(now) && !table.leaving;
        if view.is_free(now) || !asks && !leaving {
            return None;
        }
        if asked.is_some_and(|since| now >= since + table.timing.duration + DRAIN) {
            table.refused.insert(holder, now + table.timing.duration);
            table.changed = true;
        }
        table.refused.retain(|_, until| *until > now);
        let wanted = !leaving && table.shares().asks(now).contains(&self.at);
        if wanted == asked.is_some() {
            return None;
        }
        self.write_from = now + table.timing.retry;
        let by = wanted.then(|| table.me.clone());
        Some(Act::Note { version: version.to_owned(), notes: Notes::from([(WANTED_BY, by)]) })
    }
}
