//! The simulated events: a cluster starts, users create Services during the start, nothing changes for an hour, and a node joins.

use std::time::Duration;

use cloud_budget::Time;

use crate::limits::{
    Advice, Question,
    advice::{self, advise},
    cases::{CONVERGENCE_MAX, Case, Kind, USERS},
    cloud::{Collection, Stock},
    cluster::{Cluster, LONGEST, Setup, settings},
    quantiles::{Quantiles, rounded},
    report::Report,
    results::{FamilyShare, Listed, Scenario, Steady, Users},
};

/// Length of the simulation from which an average hour is computed. It is long enough that listings in progress at its end do not matter.
const DAY: Duration = Duration::from_hours(24);

/// Candidates for the time that the calls of one bucket may take. Consecutive steps have to share the total time, so the first candidate
/// that is sufficient is used.
const WITHIN: [Duration; 5] = [
    CONVERGENCE_MAX,
    Duration::from_mins(4),
    Duration::from_mins(3),
    Duration::from_mins(2),
    Duration::from_mins(1),
];

/// The results of the simulated events after which the cluster converges. Each event begins with a new cluster.
struct Results {
    bootstrap: Scenario,
    users: Option<Users>,
    joins: Scenario,
    cases: [Case; 3],
}

pub(crate) fn simulate(question: &Question) -> Report {
    let results = run_all(question);
    let steady = steady(question);
    let (advice, advised_bootstrap) = advised(question, &results, &steady);
    Report {
        cloud: question.cloud,
        nodes: question.nodes,
        services: question.services,
        routes: question.routes,
        assumed: question.config.assumed.clone(),
        bootstrap: results.bootstrap,
        users: results.users,
        steady,
        joins: results.joins,
        advice,
        advised_bootstrap,
    }
}

fn run_all(question: &Question) -> Results {
    let bootstrap = bootstrap(question);
    let (users, with_users) = match bootstrap.converged_seconds {
        Some(lasts) => users(question, Duration::from_secs_f64(lasts)),
        None => (None, bootstrap.clone()),
    };
    let joins = joins(question);
    let ready = users.as_ref().map(|users| users.ready.p99_seconds);
    let cases = [
        Case::of(question, Kind::Start, &bootstrap, bootstrap.converged_seconds, self::bootstrap),
        Case::of(question, Kind::Users, &with_users, ready, |other| self::users(other, CONVERGENCE_MAX).1),
        Case::of(question, Kind::Joins, &joins, joins.converged_seconds, self::joins),
    ];
    Results { bootstrap, users, joins, cases }
}

/// Returns the advice, and a start with all of it followed. If no rate is sufficient, other limits or the latency of the calls determine
/// the duration.
fn advised(question: &Question, results: &Results, steady: &Steady) -> (Vec<Advice>, Option<Scenario>) {
    let refused = results.bootstrap.refused.max(results.joins.refused);
    let mut first = None;
    for within in WITHIN {
        let advice = advise(question, &results.cases, within, refused, steady);
        let after = advice::applied(question, &advice).map(|better| run_all(&better));
        let cases = &after.as_ref().unwrap_or(results).cases;
        let late = cases.iter().any(|case| case.late);
        let result = (advice, after.map(|after| after.bootstrap));
        if !late {
            return result;
        }
        first.get_or_insert(result);
    }
    first.unwrap_or_default()
}

/// Simulates a start: the adapter and its controllers start; all nodes and Services already exist.
fn bootstrap(question: &Question) -> Scenario {
    let mut cluster = Cluster::new(question, &beginning(question));
    cluster.converge(Time::ZERO + LONGEST);
    Scenario::of(&cluster, question)
}

/// Simulates a start like [`bootstrap`], during which users create Services. `lasts`: the duration of the start.
fn users(question: &Question, lasts: Duration) -> (Option<Users>, Scenario) {
    let users = (1..=USERS).map(|user| lasts * user / (USERS + 1)).collect();
    let mut cluster = Cluster::new(question, &Setup { users, ..beginning(question) });
    cluster.converge(Time::ZERO + LONGEST);
    let (wait, ready) =
        (Quantiles::of(&cluster.world.tally.user_waits), Quantiles::of(&cluster.user_times()));
    let users = wait.zip(ready).map(|(wait, ready)| Users { services: USERS, wait, ready });
    (users, Scenario::of(&cluster, question))
}

fn beginning(question: &Question) -> Setup {
    let &Question { nodes, services, routes, .. } = question;
    let stock = Stock { nodes, ..Stock::default() };
    Setup { starts: true, stock, create: services, routes, ..Setup::default() }
}

/// Simulates an average hour, in which nothing changes and every collection is listed periodically.
fn steady(question: &Question) -> Steady {
    let mut cluster = Cluster::new(question, &Setup { stock: settled(question), ..Setup::default() });
    let listings = Collection::ALL.map(|what| {
        let period = cluster.period(what);
        let size = settings(&question.config.cache, what).page_size;
        let calls = (question.cloud.model().listing)(what, settled(question), size);
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

/// Simulates a node that joins a cluster that has converged.
fn joins(question: &Question) -> Scenario {
    let stock = settled(question);
    let stock = Stock { nodes: stock.nodes + 1, ..stock };
    let routes = u32::from(question.routes > 0);
    let setup = Setup { stock, node: true, join: question.services, routes, ..Setup::default() };
    let mut cluster = Cluster::new(question, &setup);
    cluster.converge(Time::ZERO + LONGEST);
    Scenario::of(&cluster, question)
}

fn settled(question: &Question) -> Stock {
    Stock { nodes: question.nodes, balancers: question.services, routes: question.routes, unread: 0 }
}
