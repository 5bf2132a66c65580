//! What is made to happen: a cluster starts, a user makes a Service meanwhile, nothing changes for an hour, a node joins.

use std::time::Duration;

use cloud_budget::Time;

use crate::{
    Question,
    advice::{self, advise},
    cloud::{Collection, Stock},
    cluster::{Cluster, LONGEST, Plot, settings},
    quantiles::{Quantiles, rounded, seconds},
    report::{FamilyShare, Listed, Report, Scenario, Steady, Users},
};

/// Services that users make while the cluster starts, at equal distances.
const USERS: u32 = 20;
/// Long enough that it does not matter which listings are under way at its end.
const DAY: Duration = Duration::from_hours(24);

/// Lets it all happen, and says what to change.
#[must_use]
pub fn simulate(question: &Question) -> Report {
    let bootstrap = bootstrap(question);
    let users = users(question, &bootstrap);
    let steady = steady(question);
    let joins = joins(question);
    let advice = advise(question, (&bootstrap, &joins), &steady);
    let advised = advice::applied(question, &advice).map(|advised| self::bootstrap(&advised));
    Report {
        cloud: question.cloud,
        nodes: question.nodes,
        services: question.services,
        routes: question.routes,
        assumed: question.config.assumed.clone(),
        bootstrap,
        users,
        steady,
        joins,
        advice,
        advised_bootstrap: advised,
    }
}

/// The adapter and its controllers start, and all nodes and Services are there.
fn bootstrap(question: &Question) -> Scenario {
    let mut cluster = Cluster::new(question, &beginning(question));
    cluster.converge(Time::ZERO + LONGEST);
    Scenario::of(&cluster, question)
}

/// The same, and users make Services meanwhile.
fn users(question: &Question, bootstrap: &Scenario) -> Option<Users> {
    let lasts = Duration::from_secs_f64(bootstrap.converged_seconds?);
    let users = (1..=USERS).map(|user| lasts * user / (USERS + 1)).collect();
    let mut cluster = Cluster::new(question, &Plot { users, ..beginning(question) });
    cluster.converge(Time::ZERO + LONGEST);
    let (wait, ready) = (&cluster.world.tally.user_waits, &cluster.user_times());
    Some(Users { services: USERS, wait: Quantiles::of(wait)?, ready: Quantiles::of(ready)? })
}

fn beginning(question: &Question) -> Plot {
    let &Question { nodes, services, routes, .. } = question;
    let stock = Stock { nodes, ..Stock::default() };
    Plot { starts: true, stock, create: services, lay: routes, ..Plot::default() }
}

/// Nothing changes, and everything is listed again and again: a mean hour.
fn steady(question: &Question) -> Steady {
    let mut cluster = Cluster::new(question, &Plot { stock: settled(question), ..Plot::default() });
    let listings = Collection::ALL.map(|what| {
        let period = cluster.period(what);
        let size = settings(&question.config.cache, what).page_size;
        let calls = question.cloud.listing(what, settled(question), size);
        Listed::new(what, period, &calls)
    });
    cluster.run(Time::ZERO + DAY);
    let limits = &question.config.limits.buckets;
    let families = cluster.world.tally.families.iter().map(|(family, calls)| {
        let rate = limits.get(family.word()).map_or(f64::INFINITY, |bucket| bucket.limit.rate);
        let calls = f64::from(calls.reads + calls.writes);
        let share = rounded(calls / (rate * DAY.as_secs_f64()), 1_000.0);
        let calls_per_hour = rounded(calls / 24.0, 1.0);
        FamilyShare { family: family.word(), calls_per_hour, share }
    });
    Steady { families: families.collect(), listings: listings.into() }
}

/// A node joins a cluster that is as it shall be, and all that follows.
fn joins(question: &Question) -> Scenario {
    let stock = settled(question);
    let stock = Stock { nodes: stock.nodes + 1, ..stock };
    let lay = u32::from(question.routes > 0);
    let plot = Plot { stock, node: true, join: question.services, lay, ..Plot::default() };
    let mut cluster = Cluster::new(question, &plot);
    cluster.converge(Time::ZERO + LONGEST);
    Scenario::of(&cluster, question)
}

fn settled(question: &Question) -> Stock {
    Stock { nodes: question.nodes, balancers: question.services, routes: question.routes, unread: 0 }
}

/// Of use to people: a time in the largest unit that has figures.
#[must_use]
pub(crate) fn in_words(time: f64) -> String {
    match time {
        short if short < 1.0 => format!("{} ms", (short * 1_000.0).round()),
        some if some < 120.0 => format!("{} s", rounded(some, 10.0)),
        long if long < 7_200.0 => format!("{} min", rounded(long / 60.0, 10.0)),
        longest => format!("{} h", rounded(longest / 3_600.0, 10.0)),
    }
}

/// As [`in_words`].
pub(crate) fn span(time: Duration) -> String {
    in_words(seconds(time))
}
