//! Waiting times of Services during storms of other calls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_budget::{BucketConfig, Call, Class, Config, RateLimit, Time};

use crate::world::{Job, Random, World, call, config, percentile, services, storm};

#[derive(Debug)]
struct Fared {
    /// 99th percentile of the time for which the calls of Services were queued.
    wait: Duration,
    /// 99th percentile of the total time of a Service.
    ensure: Duration,
}

/// Runs a storm (the first jobs) and the Services at the same time.
fn fared(config: Config, jobs: &[Job], storm: usize, until: Duration) -> Fared {
    let mut world = World::new(config, jobs.to_vec());
    world.run(until);
    let services = &world.courses[storm..];
    let waits = services.iter().flat_map(|course| course.waits.iter().copied()).collect();
    let took = services.iter().map(|course| course.took.expect("ended")).collect();
    Fared { wait: percentile(waits, 99), ensure: percentile(took, 99) }
}

/// Runs the same jobs in one first-in, first-out queue.
fn fifo(jobs: &[Job]) -> Vec<Job> {
    let plain = |call: &Call| Call {
        class: Class::Background,
        controller: "all",
        namespace: Arc::from(""),
        object: Arc::from("all"),
        reserve: true,
        ..call.clone()
    };
    jobs.iter().map(|job| Job { call: plain(&job.call), ..job.clone() }).collect()
}

const STORM: usize = 5_000;
const STORM_ENDS: Duration = Duration::from_secs(500);
const LONG: Duration = Duration::from_hours(2);

/// P3 and P4: a storm of calls hardly delays Services, even if the calls have the class of Services and come from another controller. A
/// first-in, first-out queue delays Services by minutes.
#[test]
fn services_do_not_wait_for_a_storm_of_nodes() {
    for (class, seed) in [(Class::Background, 3), (Class::Lifecycle, 3), (Class::Interactive, 4)] {
        let mut jobs = storm(STORM, class, "node");
        jobs.extend(services(&mut Random(seed), 0.2, 3, STORM_ENDS));
        let budget = fared(config(10.0, 20), &jobs, STORM, LONG);
        let plain = fared(config(10.0, 20), &fifo(&jobs), STORM, LONG);
        println!("P3 and P4, {class:?}: budget {budget:?}, first in first out {plain:?}");
        assert!(budget.wait <= Duration::from_millis(500), "{class:?}: {budget:?}");
        assert!(budget.ensure <= Duration::from_secs(2), "{class:?}: {budget:?}");
        assert!(plain.wait >= Duration::from_mins(5), "{plain:?}");
    }
}

/// P5: with a slow vendor, the reserve protects Services during a storm.
#[test]
fn the_reserve_protects_services_with_a_slow_vendor() {
    let mut jobs = storm(200, Class::Interactive, "node");
    jobs.extend(services(&mut Random(5), 0.02, 6, Duration::from_hours(3)));
    let ours = fared(config(1.0, 60), &jobs, 200, Duration::from_hours(4));
    println!("P5: {ours:?}");
    assert!(ours.ensure <= Duration::from_secs(3), "{ours:?}");

    let mut during = Vec::new();
    let mut without = Vec::new();
    for seed in 0..200 {
        let mut jobs = storm(200, Class::Interactive, "node");
        jobs.extend(services(&mut Random(seed), 0.02, 6, Duration::from_secs(150)));
        for (reserve, took) in [(0.3, &mut during), (0.0, &mut without)] {
            let mut world = World::new(Config { reserve, ..config(1.0, 60) }, jobs.clone());
            world.run(LONG);
            took.extend(world.courses[200..].iter().map(|course| course.took.expect("ended")));
        }
    }
    let (with, without) = (percentile(during, 99), percentile(without, 99));
    println!("P5, only during storms: with the reserve {with:?}, without {without:?}");
    assert!(with <= Duration::from_secs(3), "{with:?}");
    assert!(without > with * 2, "the reserve makes the difference: {without:?}");
}

/// P6: whatever calls are queued, the whole rate is used.
#[test]
fn a_backlog_of_any_kind_uses_the_rate() {
    let kinds: [&[(Class, &'static str)]; 4] = [
        &[(Class::Background, "node")],
        &[(Class::Interactive, "service")],
        &[(Class::Background, "node"), (Class::Lifecycle, "node"), (Class::Interactive, "node")],
        &[(Class::Background, "node"), (Class::Traffic, "route"), (Class::Interactive, "service")],
    ];
    for kinds in kinds {
        let jobs = kinds.iter().flat_map(|(class, controller)| storm(2_000, *class, controller)).collect();
        let mut world = World::new(config(10.0, 20), jobs);
        world.run(Duration::from_mins(3));
        for start in 0..120 {
            let window = Duration::from_secs(start)..Duration::from_secs(start + 60);
            let sent = world.sent.iter().filter(|(at, _)| window.contains(&at.since(Default::default())));
            let sent = sent.count();
            assert!(sent >= 588, "{kinds:?}: {sent} of 600 from second {start}");
        }
    }
}

/// P7: under full load of all other classes, background work gets its share: 1/20, or 1/28 if a class has two controllers.
#[test]
fn background_work_is_never_starved() {
    let mut leaves = vec![
        (Class::Background, "node"),
        (Class::Lifecycle, "node"),
        (Class::Interactive, "service"),
        (Class::Traffic, "service"),
    ];
    for weights in [20, 28] {
        let storms = leaves.iter().map(|(class, controller)| storm(6_000, *class, controller));
        let mut world = World::new(config(10.0, 20), storms.flatten().collect());
        world.run(Duration::from_mins(10));
        let background = world.sent.iter().filter(|(_, job)| *job < 6_000).count();
        let least = 0.9 / f64::from(weights) * 10.0 * 600.0;
        assert!(background as f64 >= least, "{background} of {least}");
        leaves.push((Class::Traffic, "route"));
    }
}

/// The calls of a leaf in one family do not reduce its share in another family.
#[test]
fn a_leaf_that_is_busy_in_one_family_is_not_starved_in_another() {
    let bucket = |rate| BucketConfig { parent: None, limit: RateLimit { rate, burst: 10 }, adaptive: None };
    let buckets = [("account", 20.0), ("compute", 1.0), ("network", 10.0)];
    let buckets = BTreeMap::from(buckets.map(|(name, rate)| (name.to_owned(), bucket(rate))));
    let mut jobs = storm(1_000, Class::Interactive, "node");
    jobs.extend(storm(1_000, Class::Interactive, "route"));
    let network = |job: Job| Job { call: Call { family: "network", ..job.call }, ..job };
    jobs.extend(storm(8_000, Class::Interactive, "node").into_iter().map(network));
    let mut world = World::new(Config { buckets, ..config(1.0, 10) }, jobs);
    world.run(Duration::from_mins(10));
    let sent = |jobs: std::ops::Range<usize>| world.sent.iter().filter(|(_, job)| jobs.contains(job)).count();
    let (one, other, network) = (sent(0..1_000), sent(1_000..2_000), sent(2_000..10_000));
    assert!(one.abs_diff(other) <= 10, "{one} and {other} calls to compute");
    assert!(one + other >= 600, "{one} and {other} calls to compute");
    assert!(network >= 5_990, "{network} calls to network");
}

/// One Service with many concurrent calls does not delay the other Services in its leaf.
#[test]
fn objects_of_a_leaf_take_turns() {
    let busy = Job {
        begins: Duration::ZERO,
        call: call(Class::Interactive, "service", "busy"),
        calls: 1,
        max_wait: None,
    };
    let mut jobs = vec![busy; 200];
    jobs.extend(services(&mut Random(6), 0.5, 1, Duration::from_secs(30)));
    let mut world = World::new(config(2.0, 1), jobs);
    world.run(LONG);
    let waits: Vec<_> = world.courses[200..].iter().map(|course| course.waits[0]).collect();
    assert!(waits.len() > 5);
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(5)), "{waits:?}");
}

/// Returns a Service in this namespace that makes a chain of calls.
fn of_namespace(namespace: &str, index: usize, calls: u32) -> Job {
    let call =
        Call { namespace: Arc::from(namespace), ..call(Class::Interactive, "service", &index.to_string()) };
    Job { begins: Duration::ZERO, call, calls, max_wait: None }
}

/// For each call of a job, the number of other calls that were sent while the call was queued.
fn sent_before(world: &World, job: usize) -> Vec<usize> {
    let waits = &world.courses[job];
    let calls = waits.sent.iter().zip(&waits.waits);
    let before = |(sent, waited): (&Time, &Duration)| {
        let while_queued = |at: Time| at < *sent && sent.since(at) < *waited;
        world.sent.iter().filter(|(at, other)| *other != job && while_queued(*at)).count()
    };
    calls.map(before).collect()
}

/// P25: at most one call of each other namespace is served before a call, whatever the number of Services in that namespace.
#[test]
fn a_namespace_with_many_services_delays_no_other() {
    for others in [1, 5, 20] {
        let evil = |namespace: usize| {
            (0..1_000 / others).map(move |index| of_namespace(&format!("evil-{namespace}"), index, 20))
        };
        let mut jobs: Vec<Job> = (0..others).flat_map(evil).collect();
        let victim = jobs.len();
        jobs.push(Job { begins: Duration::from_secs(30), ..of_namespace("a", 0, 10) });
        let mut world = World::new(config(10.0, 1), jobs);
        world.run(Duration::from_mins(10));
        let before = sent_before(&world, victim);
        println!("P25: {others} other namespaces, calls before: {before:?}");
        assert_eq!(before.len(), 10, "all calls of the namespace were sent");
        assert!(before.iter().all(|before| *before <= others), "{others} other namespaces: {before:?}");
    }
}

/// P25: the calls of other namespaces cause no refusal of a call that would be in time.
#[test]
fn a_namespace_with_many_services_makes_no_other_late() {
    let max_wait = Some(Duration::from_secs(10));
    let mut jobs: Vec<Job> = (0..1_000).map(|index| of_namespace("evil", index, 1)).collect();
    let victim = jobs.len();
    jobs.push(Job { begins: Duration::from_secs(5), max_wait, ..of_namespace("a", 0, 10) });
    let late = jobs.len();
    jobs.push(Job { begins: Duration::from_secs(5), max_wait, ..of_namespace("evil", 1_000, 1) });
    let mut world = World::new(config(1.0, 1), jobs);
    world.run(Duration::from_mins(2));
    let refusals = |job: usize| world.courses[job].refusals.len();
    assert_eq!((refusals(victim), world.courses[victim].sent.len()), (0, 10));
    assert!(refusals(late) > 0, "a call would be late if the other calls of its namespace were served first");
}

/// The calls of a namespace in one family do not delay its calls in another family.
#[test]
fn a_namespace_busy_in_one_family_is_not_starved_in_another() {
    let bucket = |rate| BucketConfig { parent: None, limit: RateLimit { rate, burst: 1 }, adaptive: None };
    let buckets = [("compute", 100.0), ("network", 1.0)];
    let buckets = BTreeMap::from(buckets.map(|(name, rate)| (name.to_owned(), bucket(rate))));
    let network = |job: Job| Job { call: Call { family: "network", ..job.call }, ..job };
    let storm = |namespace: &'static str| (0..400).map(move |index| of_namespace(namespace, index, 1));
    let mut jobs: Vec<Job> = storm("a").chain(storm("b")).map(network).collect();
    jobs.extend((400..30_400).map(|index| of_namespace("a", index, 1)));
    let mut world = World::new(Config { buckets, ..config(1.0, 1) }, jobs);
    world.run(Duration::from_mins(5));
    let sent = |jobs: std::ops::Range<usize>| world.sent.iter().filter(|(_, job)| jobs.contains(job)).count();
    let (one, other) = (sent(0..400), sent(400..800));
    assert!(one.abs_diff(other) <= 2 && one + other >= 290, "{one} and {other} calls to network");
}
