use proptest::prelude::*;

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn timing() -> Timing {
    Timing::default()
}

/// A seat held by `holder`, as observed by this replica.
fn seen_by(me: &str, seat: &Seat, now: Instant) -> View {
    let ours = seat.holder.as_deref() == Some(me);
    View {
        holder: seat.holder.clone(),
        free_from: Some(if seat.holder.is_none() { seat.freed } else { now + timing().duration }),
        ours,
        released: seat.holder.is_none(),
        wish: seat.wish.clone(),
        ..View::default()
    }
}

/// The state of a seat.
#[derive(Clone, Debug)]
struct Seat {
    holder: Option<String>,
    freed: Instant,
    wish: Option<(String, Instant)>,
}

/// Replicas that all observe the same state, and act one after the other.
struct Model {
    now: Instant,
    seats: Vec<Seat>,
    alive: Vec<&'static str>,
    moves: usize,
}

impl Model {
    fn new(seats: usize) -> Self {
        let now = Instant::now();
        let seat = Seat { holder: None, freed: now, wish: None };
        Self { now, seats: vec![seat; seats], alive: Vec::new(), moves: 0 }
    }

    fn with<T>(&self, me: &str, act: impl FnOnce(&Shares<'_>) -> T) -> T {
        let views: Vec<_> = self.seats.iter().map(|seat| seen_by(me, seat, self.now)).collect();
        let refused = BTreeMap::new();
        act(&Shares { me, timing: timing(), seats: views.iter().collect(), refused: &refused })
    }

    /// Lets this replica act once on this seat, if an action is due.
    fn act(&mut self, me: &str, at: usize) -> bool {
        let now = self.now;
        let seat = self.seats[at].clone();
        let wished = seat.wish.as_ref().is_some_and(|(by, _)| by == me);
        match &seat.holder {
            None if self.with(me, |shares| shares.take(at, now)) == Take::Now => {
                self.seats[at] = Seat { holder: Some(me.into()), freed: now, wish: None };
                self.moves += 1;
            }
            Some(holder) if holder == me => {
                if self.with(me, |shares| shares.grant(at, now).is_none()) {
                    return false;
                }
                self.seats[at] = Seat { holder: None, freed: now, ..seat };
            }
            Some(_) if self.with(me, |shares| shares.asks(now).contains(&at)) != wished => {
                self.seats[at].wish = (!wished).then(|| (me.to_owned(), now));
            }
            Some(_) | None => return false,
        }
        true
    }

    /// Lets all replicas act, in an order given by the numbers, until none of them has an action.
    fn settle(&mut self, order: &[usize]) {
        let mut order = order.iter().copied().cycle();
        for _ in 0..100 {
            let mut acts: Vec<(&str, usize)> =
                self.alive.iter().flat_map(|me| (0..self.seats.len()).map(move |at| (*me, at))).collect();
            let mut idle = true;
            while !acts.is_empty() {
                let (me, at) = acts.swap_remove(order.next().expect("endless") % acts.len());
                idle &= !self.act(me, at);
            }
            if idle && self.seats.iter().all(|seat| seat.holder.is_some()) {
                return;
            }
            self.now += timing().retry / 4;
        }
        panic!("does not converge: {:?}", self.seats);
    }

    fn held(&self, name: &str) -> usize {
        self.seats.iter().filter(|seat| seat.holder.as_deref() == Some(name)).count()
    }

    fn leave(&mut self, at: usize) {
        let name = self.alive.remove(at);
        for seat in self.seats.iter_mut().filter(|seat| seat.holder.as_deref() == Some(name)) {
            *seat = Seat { holder: None, freed: self.now, ..seat.clone() };
        }
    }
}

proptest! {
    #[test]
    fn shares_become_fair_in_any_order_and_moves_end(
        seats in 1..=12_usize,
        comings in prop::collection::vec((0..5_usize, any::<bool>()), 1..10),
        order in prop::collection::vec(any::<usize>(), 50..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut model = Model::new(seats);
            for (who, comes) in comings {
                let place = model.alive.iter().position(|name| *name == NAMES[who]);
                match place {
                    Some(at) if !comes && model.alive.len() > 1 => model.leave(at),
                    None if comes || model.alive.is_empty() => model.alive.push(NAMES[who]),
                    Some(_) | None => (),
                }
                let free = model.seats.iter().filter(|seat| seat.holder.is_none()).count();
                model.moves = 0;
                model.settle(&order);
                let held: Vec<_> = model.alive.iter().map(|name| model.held(name)).collect();
                let (fewest, most) = (held.iter().min().expect("some"), held.iter().max().expect("some"));
                assert!(most - fewest <= 1, "{held:?}");
                let fair = seats / model.alive.len() + 1;
                assert!(model.moves <= 2 * free + fair, "{} moves for {free} free seats: {held:?}", model.moves);
            }
        });
    }
}

fn view(holder: &str, now: Instant) -> View {
    let holder = (!holder.is_empty()).then(|| holder.to_owned());
    View {
        ours: holder.as_deref() == Some("me"),
        free_from: Some(holder.as_ref().map_or(now, |_| now + timing().duration)),
        holder,
        ..View::default()
    }
}

fn views<const N: usize>(holders: [&str; N], now: Instant) -> [View; N] {
    holders.map(|holder| view(holder, now))
}

fn shares<'a>(seats: &'a [View], refused: &'a BTreeMap<String, Instant>) -> Shares<'a> {
    Shares { me: "me", timing: timing(), seats: seats.iter().collect(), refused }
}

#[tokio::test(start_paused = true)]
async fn a_free_seat_goes_first_to_the_replica_with_the_fewest() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let later = now + timing().retry;
    for (holders, due) in
        [(["", "you", "you", "me"], true), (["", "you", "me", "she"], true), (["", "me", "me", "you"], false)]
    {
        let seats = views(holders, now);
        let shares = shares(&seats, &none_refused);
        assert_eq!(shares.take(0, now), if due { Take::Now } else { Take::From(later) }, "{holders:?}");
        assert_eq!(shares.take(0, later), Take::Now, "{holders:?}");
        assert_ne!(shares.take(1, now), Take::Now, "held: {holders:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_seat_is_reserved_for_its_new_holder() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let latest = now + 2 * timing().retry;
    for (to, take) in [("me", Take::Now), ("you", Take::From(latest))] {
        let mut seats = views(["", "you", "you"], now);
        seats[0].released = true;
        seats[0].wish = Some((to.to_owned(), now));
        assert_eq!(shares(&seats, &none_refused).take(0, now), take, "{to}");
        assert_eq!(shares(&seats, &none_refused).take(0, latest), Take::Now, "{to}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_two_fewer_seats_asks_for_its_share() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let asked =
        |holders, refused: &BTreeMap<_, _>| shares(&views::<6>(holders, now), refused).asks(now).len();
    assert_eq!(asked(["you"; 6], &none_refused), 3);
    assert_eq!(asked(["you", "you", "you", "she", "she", "she"], &none_refused), 2);
    assert_eq!(asked(["you", "you", "you", "you", "me", "me"], &none_refused), 1);
    assert_eq!(asked(["you", "you", "you", "me", "me", "she"], &none_refused), 0);
    assert_eq!(asked(["", "", "", "you", "you", "you"], &none_refused), 0, "the free seats are enough");
    let refused = BTreeMap::from([("you".to_owned(), now + timing().retry)]);
    assert_eq!(asked(["you"; 6], &refused), 0);
    assert_eq!(asked(["you", "you", "you", "you", "she", "she"], &refused), 1);
}

#[tokio::test(start_paused = true)]
async fn a_seat_requested_by_another_replica_is_not_requested() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let mut seats = views(["you", "you"], now);
    for seat in &mut seats {
        seat.wish = Some(("she".to_owned(), now));
    }
    assert!(shares(&seats, &none_refused).asks(now).is_empty());
    for seat in &mut seats {
        seat.free_from = Some(now + 3 * timing().duration);
    }
    assert_eq!(shares(&seats, &none_refused).asks(now + timing().duration).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_granted_to_replicas_with_two_fewer() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let granted = |holders: [&str; 6], wishes: [&str; 3], later: Duration| {
        let mut seats = views(holders, now);
        for (seat, by) in seats.iter_mut().zip(wishes) {
            seat.wish = Some((by.to_owned(), now));
            seat.free_from = Some(now + 9 * timing().duration);
        }
        let shares = shares(&seats, &none_refused);
        (0..6).filter_map(|at| Some((at, shares.grant(at, now + later)?.to_owned()))).collect::<Vec<_>>()
    };
    let grant = |at, to: &str| (at, to.to_owned());
    let zero = Duration::ZERO;
    assert_eq!(
        granted(["me", "me", "me", "me", "me", "me"], ["you", "you", "you"], zero),
        [grant(0, "you"), grant(1, "you"), grant(2, "you")]
    );
    assert_eq!(granted(["me", "me", "me", "you", "she", "he"], ["you", "she", "he"], zero), [grant(2, "he")]);
    assert_eq!(
        granted(["me", "me", "me", "you", "you", "she"], ["you", "you", "she"], zero),
        [grant(2, "she")]
    );
    assert_eq!(granted(["me", "me", "me", "you", "you", "you"], ["you", "you", "you"], zero), []);
    assert_eq!(
        granted(["me"; 6], ["you", "you", "you"], timing().duration),
        [],
        "the replica that asks may be dead"
    );
}
