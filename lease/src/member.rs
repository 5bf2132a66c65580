//! One seat's part in the sharing: what its candidate is to do, given what all others of this process see.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use crate::{
    candidate::{Candidate, Step},
    layout::{self, Division, Opening, Place, Run},
    record::{self, BEFORE, Notes, Record, SHARDS, WANTED_BY},
    seat::Gate,
    settings::{Settings, Timing},
    share::{DRAIN, Shares, Take, View},
};

/// What all seats of a process know together.
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
    /// Over how many shards we divide the work.
    pub(crate) shards: u16,
    /// All Leases of our division, and those beyond them that another one has.
    pub(crate) places: Vec<Place>,
    refused: BTreeMap<String, Instant>,
    began: Instant,
    /// It was told that another division is in force.
    told: bool,
    /// So many Leases could not be read, as it was told.
    unread: Vec<usize>,
    /// This process takes nothing any more, and gives back what it has.
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
            places: vec![Place::default(); shards.into()],
            refused: BTreeMap::new(),
            began: now,
            told: false,
            unread: Vec::new(),
            leaving: false,
            changed: false,
        };
        Self { table: Mutex::new(table), changes: watch::Sender::new(()) }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// From now on nothing is taken, and what is ours is given back as soon as nothing is under way in it.
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
        let seats = self.places.iter().take(self.ours()).map(|place| &place.view).collect();
        Shares { me: &self.me, timing: self.timing, seats, refused: &self.refused }
    }

    fn division(&self) -> Division {
        self.places.first().map(|first| first.division).unwrap_or_default()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.division().is_settled(self.shards)
    }

    /// Whether enough is known to judge what is fair. A Lease that cannot be read does not hold up the others for long.
    fn is_ready(&self, now: Instant) -> bool {
        let seen = |place: &Place| place.view.free_from.is_some();
        now >= self.began + self.timing.retry || self.places.iter().take(self.ours()).all(seen)
    }

    /// When time alone may change what to do.
    fn next(&self, now: Instant) -> Option<Instant> {
        let began = Some(self.began + self.timing.retry).filter(|at| *at > now);
        let others = self.places.iter().skip(self.ours()).filter_map(|place| place.view.free_from);
        self.shares().next(now).into_iter().chain(began).chain(others.filter(|at| *at > now)).min()
    }

    /// Says once which Leases the work waits for that cannot be read.
    fn tell_unread(&mut self, now: Instant) {
        let unread: Vec<usize> = (0..self.places.len())
            .filter(|at| self.places.get(*at).is_some_and(|place| place.division == Division::Unknown))
            .collect();
        if now < self.began + 2 * self.timing.retry || unread == self.unread {
            return;
        }
        if !unread.is_empty() {
            let leases =
                unread.iter().map(|at| record::name_of(&self.lease, *at)).collect::<Vec<_>>().join(", ");
            tracing::warn!(leases, "Nothing begins before these Leases could be read");
        }
        self.unread = unread;
    }

    fn place(&mut self, at: usize) -> Option<&mut Place> {
        self.places.get_mut(at)
    }

    fn ask_look(&mut self, at: usize, from: Instant) {
        if let Some(place) = self.place(at) {
            let due = place.is_look_due();
            place.ask_look(from);
            self.changed |= !due && self.places.get(at).is_some_and(Place::is_look_due);
        }
    }

    fn set_closing(&mut self, at: usize, to: Option<String>) {
        if let Some(place) = self.place(at).filter(|place| place.view.closing != to) {
            place.view.closing = to;
            self.changed = true;
        }
    }

    fn set_taking(&mut self, at: usize) {
        if let Some(place) = self.place(at) {
            place.view.taking = true;
            self.changed = true;
        }
    }

    /// What its candidate knows of a Lease.
    fn publish(&mut self, at: usize, candidate: &Candidate, now: Instant) {
        let Some(place) = self.place(at) else { return };
        let view = view(&place.view, candidate, now);
        let division = Division::of(candidate);
        place.until = candidate.term().map(|(_, until)| until);
        place.missing = candidate.record().is_some() && candidate.version().is_none();
        let epoch = candidate.record().map(Record::epoch).unwrap_or_default();
        let since = candidate.term().map_or(epoch, |_| candidate.since());
        place.run = Run { since, epoch };
        let free = |view: &View| (view.free_from.is_some(), view.is_free(now));
        let same = place.division == division
            && free(&view) == free(&place.view)
            && View { free_from: place.view.free_from, ..view.clone() } == place.view;
        place.view = view;
        place.division = division;
        self.changed |= !same;
    }
}

/// The seat as its candidate sees it, after it was seen like that.
fn view(last: &View, candidate: &Candidate, now: Instant) -> View {
    let record = candidate.record();
    let holder = candidate.holder().map(str::to_owned);
    let released = record.is_some_and(|record| record.released);
    let wish = record.and_then(|record| record.wanted_by.clone()).map(|by| match &last.wish {
        Some((known, since)) if *known == by && last.holder == holder => (by, *since),
        Some(_) | None => (by, now),
    });
    let ours = candidate.term().is_some();
    // Each look at a free Lease proves anew that it is free: since when counts.
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

/// What comes next for a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Step(Step),
    /// Keep it, and write this as well.
    RenewWith {
        version: String,
        notes: Notes,
    },
    /// Write this on somebody else's.
    Note {
        version: String,
        notes: Notes,
    },
    /// Work here is over: give it back.
    GiveBack {
        why: &'static str,
    },
}

/// The part of one seat.
#[derive(Debug)]
pub(crate) struct Member {
    at: usize,
    board: Arc<Board>,
    changes: watch::Receiver<()>,
    gate: Gate,
    held: Option<Held>,
    /// The epoch of the first Lease's term in which we knew last, while this one was ours, by which division we work.
    divided_in: Option<u64>,
    /// The epoch of our first term here since which nobody worked by another division.
    since: u64,
    /// What an acquisition says of another division.
    before: Option<u16>,
    /// Nothing is written on somebody else's Lease before.
    write_from: Instant,
    /// No look that others ask for before.
    look_from: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// When we knew that it was ours.
    taken: Instant,
    /// Nobody works by another division.
    confirmed: bool,
    /// It is to be handed over then, or sooner.
    closes: Option<Instant>,
    /// It is given back as soon as nothing is under way.
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
            look_from: now,
        }
    }

    /// Returns when what others see may have changed what is to be done here.
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

    /// Whether work may begin in a seat that we hold.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.held.is_some_and(|held| held.confirmed)
    }

    /// The candidate looked or wrote, and that began at `started`.
    pub(crate) fn looked(&mut self, candidate: &Candidate, started: Instant) {
        let (at, now) = (self.at, Instant::now());
        self.look_from = now;
        self.board.with(|table| {
            table.publish(at, candidate, now);
            if let Some(place) = table.place(at) {
                let due = place.is_look_due();
                place.looked(started);
                table.changed |= due;
            }
        });
        if candidate.term().is_some() && self.held.is_none() {
            self.held = Some(Held { taken: now, confirmed: false, closes: None, leaving: false });
        }
    }

    /// The candidate relies on its Lease no more.
    pub(crate) fn resigned(&mut self, candidate: &Candidate) {
        self.held = None;
        self.board.with(|table| table.publish(self.at, candidate, Instant::now()));
    }

    /// The epoch of our first term since which nobody worked by another division, who needs no term of this Lease for that.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// What an acquisition says beside who holds it.
    pub(crate) fn notes(&self, transitions: u32) -> Notes {
        let shards = self.board.with(|table| table.shards);
        let said = (shards > 1).then(|| record::shards_in_term(shards, transitions));
        let mut notes = Notes::from([(WANTED_BY, None), (SHARDS, said)]);
        if self.at == 0 {
            notes.insert(BEFORE, self.before.map(|before| before.to_string()));
        }
        notes
    }

    /// What comes next.
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
            if let Act::Step(Step::Wait(until)) = act {
                let closes = self.held.and_then(|held| held.closes);
                Act::Step(Step::Wait(table.next(now).into_iter().chain(closes).fold(until, Instant::min)))
            } else {
                act
            }
        })
    }

    fn keep(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Act {
        let step = candidate.decide(now);
        let Some(mut held) = self.held.filter(|_| !matches!(step, Step::Lost(_))) else {
            return Act::Step(step);
        };
        let mine = table.shards;
        if self.at > 0 && self.is_divided_anew(table, held.taken, now) {
            return Act::GiveBack { why: "the work is divided into another number of shards" };
        }
        if table.leaving {
            self.gate.set_closed(true);
            held.leaving = true;
            // Whoever asked for it has it as soon as nothing is under way, too: there is no other time to wait for.
            held.closes = None;
            self.held = Some(held);
            // Nothing is under way either where nothing was begun yet.
            let over = !held.confirmed || self.gate.is_empty();
            return if over { Act::GiveBack { why: "this replica stops" } } else { Act::Step(step) };
        }
        if self.at > 0 {
            let first = table.places.first();
            if let Some(run) = first.and_then(|first| layout::confirmed_in(mine, first, held.taken, now)) {
                // Who works by another division does so without this Lease.
                let gap = !held.confirmed && !self.divided_in.is_some_and(|epoch| run.goes_on_from(epoch));
                if let (true, Some((epoch, _))) = (gap, candidate.term()) {
                    self.since = epoch;
                }
                self.divided_in = Some(run.epoch);
                held.confirmed = true;
            }
            if !held.confirmed {
                let settled =
                    table.is_settled() && table.places.first().is_some_and(|first| !first.is_look_due());
                // That another division is over may be seen after the look that was asked for first.
                table.ask_look(0, if settled { now } else { held.taken });
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

    /// Whether the first Lease is known to say another division: what was seen of it before we took this one is over.
    fn is_divided_anew(&self, table: &mut Table, taken: Instant, now: Instant) -> bool {
        let Some(first) = table.places.first() else { return false };
        let mine = table.shards;
        if first.looked_since(taken).is_some_and(|looked| looked.division.is_another(mine)) {
            return true;
        }
        // A watch may tell what is past.
        if first.division.is_another(mine) && !first.is_look_due() {
            table.ask_look(0, now);
        }
        false
    }

    /// The first Lease is ours: is another division over?
    fn settle(
        &mut self,
        table: &mut Table,
        candidate: &Candidate,
        taken: Instant,
        now: Instant,
    ) -> Option<Act> {
        if !layout::is_settled(table.shards, &table.places, taken, now) {
            for at in 1..table.places.len() {
                let from = table.places.get(at).and_then(|place| place.look_for(table.shards, taken, now));
                if let Some(from) = from {
                    table.ask_look(at, from);
                }
            }
            return None;
        }
        let version = candidate.version().filter(|_| candidate.is_current() && now >= self.write_from)?;
        self.write_from = now + table.timing.retry;
        Some(Act::RenewWith { version: version.to_owned(), notes: Notes::from([(BEFORE, None)]) })
    }

    fn hand_over(&mut self, table: &mut Table, mut held: Held, step: Step, now: Instant) -> Act {
        let Some(view) = table.places.get(self.at).map(|place| &place.view) else { return Act::Step(step) };
        let (closing, wish) = (view.closing.clone(), view.wish.as_ref().map(|(by, _)| by.as_str()));
        let to = if closing.is_some() && closing.as_deref() == wish {
            closing
        } else {
            // Whoever else asks for it now: what is under way had its time already.
            table.set_closing(self.at, None);
            table.shares().grant(self.at, now).map(str::to_owned)
        };
        held.closes = to.as_ref().map(|_| held.closes.unwrap_or(now + DRAIN));
        self.gate.set_closed(to.is_some());
        table.set_closing(self.at, to);
        self.held = Some(held);
        if held.closes.is_some_and(|at| now >= at || self.gate.is_empty()) {
            Act::GiveBack { why: "a replica with fewer asks for it" }
        } else {
            Act::Step(step)
        }
    }

    fn stand_by(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Act {
        if now >= self.look_from && table.places.get(self.at).is_some_and(Place::is_look_due) {
            self.look_from = now + table.timing.retry;
            return Act::Step(Step::Look);
        }
        if let Some(act) = self.ask(table, candidate, now) {
            return act;
        }
        let step = candidate.decide_if(self.may_take(table, now), now);
        if let Step::Acquire(_) = step {
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
        match layout::opening(table.shards, &table.places, now) {
            Opening::Ours => {
                table.told = false;
                take(table)
            }
            Opening::New { before } => {
                self.before = before;
                true
            }
            Opening::No => {
                table.tell_unread(now);
                let another = table.division();
                if another.is_another(table.shards) && !table.told {
                    table.told = true;
                    let Division::Set { shards, .. } = another else { return false };
                    tracing::info!(
                        shards = table.shards,
                        others = shards,
                        "Other replicas divide the work into another number of shards: waiting until they have given back all Leases"
                    );
                }
                false
            }
        }
    }

    /// Asks the holder of this seat for it, or no longer.
    fn ask(&mut self, table: &mut Table, candidate: &Candidate, now: Instant) -> Option<Act> {
        let view = table.places.get(self.at).map(|place| &place.view)?;
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
