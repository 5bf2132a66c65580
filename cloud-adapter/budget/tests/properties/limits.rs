//! Properties of pauses, reloads and shadow mode.

use std::{cell::Cell, rc::Rc, time::Duration};

use cloud_budget::{Adaptive, Class, Config, Mode, Outcome, RateLimit, Time};

use crate::{
    audit::Audit,
    world::{Random, World, config, services, storm},
};

/// P13: the vendor's Retry-After is respected exactly, both for queued and for new calls.
#[test]
fn nothing_is_sent_before_a_pause_ends() {
    let mut config = config(10.0, 20);
    config.buckets.get_mut("compute").expect("there").adaptive = Some(Adaptive::default());
    let mut jobs = storm(2_000, Class::Background, "node");
    jobs.extend(services(&mut Random(13), 0.5, 3, Duration::from_mins(3)));
    let mut world = World::new(config, jobs);
    let pauses = Rc::new(Cell::new((Time::ZERO, Time::ZERO, 0)));
    let seen = Rc::clone(&pauses);
    let mut random = Random(14);
    world.vendor = Box::new(move |now, _| {
        let (_, until, count) = seen.get();
        if now < until || random.below(30) > 0 {
            return Outcome::Answered;
        }
        let retry_after = Duration::from_nanos(random.below(20_000_000_000));
        seen.set((now, now + retry_after, count + 1));
        Outcome::Throttled { retry_after: Some(retry_after), bucket: None }
    });
    let mut checked = 0;
    for millis in 1..300_000 {
        world.run(Duration::from_millis(millis));
        let (from, until, _) = pauses.get();
        for (at, _) in world.sent.iter().skip(checked) {
            assert!(*at <= from || *at >= until, "sent at {at:?} in the pause from {from:?} until {until:?}");
        }
        checked = world.sent.len();
    }
    assert!(pauses.get().2 > 5, "{} pauses", pauses.get().2);
}

/// P20: shadow mode counts the delays that enforcing would cause, and does not delay calls.
#[test]
fn shadow_mode_counts_what_enforcing_delays() {
    let mut jobs = storm(1_000, Class::Background, "node");
    // Each call is a separate job, because in a chain a delay would change when the next call is submitted.
    jobs.extend(services(&mut Random(20), 8.0, 1, Duration::from_mins(10)));
    let limits = Config { concurrency: [("compute".to_owned(), 10_000)].into(), ..config(10.0, 20) };
    let mut enforce = World::new(limits.clone(), jobs.clone());
    enforce.run(Duration::from_mins(30));
    let mut shadow = World::new(Config { mode: Mode::Shadow, ..limits }, jobs.clone());
    shadow.run(Duration::from_mins(30));

    let delays: Vec<_> =
        enforce.courses.iter().flat_map(|course| &course.waits).filter(|w| !w.is_zero()).collect();
    let (count, time) = (delays.len() as f64, delays.into_iter().sum::<Duration>().as_secs_f64());
    let report = shadow.scheduler.report(shadow.now);
    let (would, would_for) =
        (report.buckets[0].would_delay as f64, report.buckets[0].would_delay_for.as_secs_f64());
    println!("P20: enforced {count} delays of {time} s in all, shadow {would} of {would_for} s");
    assert!(count > 1_000.0);
    assert!((would - count).abs() <= 0.01 * count, "{would} and {count}");
    assert!((would_for - time).abs() <= 0.01 * time, "{would_for} and {time}");
    assert_eq!(shadow.sent.len(), jobs.len());
    assert!(shadow.courses.iter().flat_map(|course| &course.waits).all(Duration::is_zero));
}

/// P21: a reload keeps the order of queued calls, and exceeds neither the old limit nor the new one.
#[test]
fn a_reload_keeps_the_order_and_both_limits() {
    let limits = [(10.0, 20), (3.0, 5), (12.0, 40), (12.0, 2), (0.5, 60), (20.0, 20)];
    let jobs = || {
        let mut jobs = storm(300, Class::Background, "node");
        jobs.extend(storm(300, Class::Interactive, "service"));
        jobs
    };
    let mut unchanged = World::new(config(10.0, 20), jobs());
    unchanged.run(Duration::from_hours(1));
    let order = |world: &World| world.sent.iter().map(|(_, job)| *job).collect::<Vec<_>>();

    let mut world = World::new(config(10.0, 20), jobs());
    let mut audit = Audit::default();
    let mut checked = 0;
    for (index, (rate, burst)) in limits.into_iter().enumerate() {
        let now = world.now;
        audit.limit(now, RateLimit { rate, burst });
        world.scheduler.configure(now, config(rate, burst));
        world.run(Duration::from_secs(7 * (u64::try_from(index).expect("small") + 1)));
        for (at, _) in &world.sent[checked..] {
            assert_eq!(audit.spend(*at, 1), Ok(()), "limit {index}");
        }
        checked = world.sent.len();
    }
    assert!(checked < 600, "calls are queued at the last reload");
    world.run(Duration::from_hours(1));
    assert_eq!(order(&world).len(), 600);
    for class in [0..300, 300..600] {
        let of = |world| order(world).into_iter().filter(|job| class.contains(job)).collect::<Vec<_>>();
        assert_eq!(of(&world), of(&unchanged));
    }
}
