use proptest::prelude::*;

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn timing() -> Timing {
    Timing::default()
}

fn seen_by(me: &str, shard: &Shard, now: Instant) -> View {
    let ours = shard.holder.as_deref() == Some(me);
    View {
        holder: shard.holder.clone(),
        free_from: Some(if shard.holder.is_none() { shard.freed } else { now + timing().duration }),
        ours,
        released: shard.holder.is_none(),
        wish: shard.wish.clone(),
        ..View::default()
    }
}

#[derive(Clone, Debug)]
struct Shard {
    holder: Option<String>,
    freed: Instant,
    wish: Option<(String, Instant)>,
}

/// A model of replicas that all observe the same state, and act one after the other.
struct Model {
    now: Instant,
    shards: Vec<Shard>,
    alive: Vec<&'static str>,
    moves: usize,
}

impl Model {
    fn new(shards: usize) -> Self {
        let now = Instant::now();
        let shard = Shard { holder: None, freed: now, wish: None };
        Self { now, shards: vec![shard; shards], alive: Vec::new(), moves: 0 }
    }

    fn with<T>(&self, me: &str, act: impl FnOnce(&Shares<'_>) -> T) -> T {
        let views: Vec<_> = self.shards.iter().map(|shard| seen_by(me, shard, self.now)).collect();
        let refused = BTreeMap::new();
        act(&Shares { me, timing: timing(), shards: views.iter().collect(), refused: &refused })
    }

    /// Lets this replica act once on this shard, if an action is due.
    fn act(&mut self, me: &str, at: usize) -> bool {
        let now = self.now;
        let shard = self.shards[at].clone();
        let wished = shard.wish.as_ref().is_some_and(|(by, _)| by == me);
        match &shard.holder {
            None if self.with(me, |shares| shares.take(at, now)) == Take::Now => {
                self.shards[at] = Shard { holder: Some(me.into()), freed: now, wish: None };
                self.moves += 1;
            }
            Some(holder) if holder == me => {
                if self.with(me, |shares| shares.grant(at, now).is_none()) {
                    return false;
                }
                self.shards[at] = Shard { holder: None, freed: now, ..shard };
            }
            Some(_) if self.with(me, |shares| shares.asks(now).contains(&at)) != wished => {
                self.shards[at].wish = (!wished).then(|| (me.to_owned(), now));
            }
            Some(_) | None => return false,
        }
        true
    }

    /// Lets all replicas act until none of them has an action. The numbers in `order` determine the sequence of the actions.
    fn settle(&mut self, order: &[usize]) {
        let mut order = order.iter().copied().cycle();
        for _ in 0..100 {
            let mut acts: Vec<(&str, usize)> =
                self.alive.iter().flat_map(|me| (0..self.shards.len()).map(move |at| (*me, at))).collect();
            let mut idle = true;
            while !acts.is_empty() {
                let (me, at) = acts.swap_remove(order.next().expect("endless") % acts.len());
                idle &= !self.act(me, at);
            }
            if idle && self.shards.iter().all(|shard| shard.holder.is_some()) {
                return;
            }
            self.now += timing().retry / 4;
        }
        panic!("does not converge: {:?}", self.shards);
    }

    fn held(&self, name: &str) -> usize {
        self.shards.iter().filter(|shard| shard.holder.as_deref() == Some(name)).count()
    }

    fn leave(&mut self, at: usize) {
        let name = self.alive.remove(at);
        for shard in self.shards.iter_mut().filter(|shard| shard.holder.as_deref() == Some(name)) {
            *shard = Shard { holder: None, freed: self.now, ..shard.clone() };
        }
    }
}

proptest! {
    #[test]
    fn shares_become_fair_in_any_order_and_moves_end(
        shards in 1..=12_usize,
        comings in prop::collection::vec((0..5_usize, any::<bool>()), 1..10),
        order in prop::collection::vec(any::<usize>(), 50..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut model = Model::new(shards);
            for (who, comes) in comings {
                let place = model.alive.iter().position(|name| *name == NAMES[who]);
                match place {
                    Some(at) if !comes && model.alive.len() > 1 => model.leave(at),
                    None if comes || model.alive.is_empty() => model.alive.push(NAMES[who]),
                    Some(_) | None => (),
                }
                let free = model.shards.iter().filter(|shard| shard.holder.is_none()).count();
                model.moves = 0;
                model.settle(&order);
                let held: Vec<_> = model.alive.iter().map(|name| model.held(name)).collect();
                let (fewest, most) = (held.iter().min().expect("some"), held.iter().max().expect("some"));
                assert!(most - fewest <= 1, "{held:?}");
                let fair = shards / model.alive.len() + 1;
                assert!(model.moves <= 2 * free + fair, "{} moves for {free} free shards: {held:?}", model.moves);
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

fn shares<'a>(shards: &'a [View], refused: &'a BTreeMap<String, Instant>) -> Shares<'a> {
    Shares { me: "me", timing: timing(), shards: shards.iter().collect(), refused }
}

#[tokio::test(start_paused = true)]
async fn a_free_shard_goes_first_to_the_replica_with_the_fewest() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let later = now + timing().retry;
    for (holders, due) in
        [(["", "you", "you", "me"], true), (["", "you", "me", "she"], true), (["", "me", "me", "you"], false)]
    {
        let shards = views(holders, now);
        let shares = shares(&shards, &none_refused);
        assert_eq!(shares.take(0, now), if due { Take::Now } else { Take::From(later) }, "{holders:?}");
        assert_eq!(shares.take(0, later), Take::Now, "{holders:?}");
        assert_ne!(shares.take(1, now), Take::Now, "held: {holders:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_shard_is_reserved_for_its_new_holder() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let latest = now + 2 * timing().retry;
    for (to, take) in [("me", Take::Now), ("you", Take::From(latest))] {
        let mut shards = views(["", "you", "you"], now);
        shards[0].released = true;
        shards[0].wish = Some((to.to_owned(), now));
        assert_eq!(shares(&shards, &none_refused).take(0, now), take, "{to}");
        assert_eq!(shares(&shards, &none_refused).take(0, latest), Take::Now, "{to}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_two_fewer_shards_asks_for_its_share() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let asked =
        |holders, refused: &BTreeMap<_, _>| shares(&views::<6>(holders, now), refused).asks(now).len();
    assert_eq!(asked(["you"; 6], &none_refused), 3);
    assert_eq!(asked(["you", "you", "you", "she", "she", "she"], &none_refused), 2);
    assert_eq!(asked(["you", "you", "you", "you", "me", "me"], &none_refused), 1);
    assert_eq!(asked(["you", "you", "you", "me", "me", "she"], &none_refused), 0);
    assert_eq!(asked(["", "", "", "you", "you", "you"], &none_refused), 0, "the free shards are enough");
    let refused = BTreeMap::from([("you".to_owned(), now + timing().retry)]);
    assert_eq!(asked(["you"; 6], &refused), 0);
    assert_eq!(asked(["you", "you", "you", "you", "she", "she"], &refused), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shard_requested_by_another_replica_is_not_requested() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let mut shards = views(["you", "you"], now);
    for shard in &mut shards {
        shard.wish = Some(("she".to_owned(), now));
    }
    assert!(shares(&shards, &none_refused).asks(now).is_empty());
    for shard in &mut shards {
        shard.free_from = Some(now + 3 * timing().duration);
    }
    assert_eq!(shares(&shards, &none_refused).asks(now + timing().duration).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_granted_to_replicas_with_two_fewer() {
    let (now, none_refused) = (Instant::now(), BTreeMap::new());
    let granted = |holders: [&str; 6], wishes: [&str; 3], later: Duration| {
        let mut shards = views(holders, now);
        for (shard, by) in shards.iter_mut().zip(wishes) {
            shard.wish = Some((by.to_owned(), now));
            shard.free_from = Some(now + 9 * timing().duration);
        }
        let shares = shares(&shards, &none_refused);
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
