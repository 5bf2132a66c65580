use std::time::Duration;

use super::Follower;
use crate::{Adaptive, Hint, Time};

const S: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// Settings: ceiling 10/s, floor 0.2/s; a throttle reduces the rate to 70 %.
fn follower() -> Follower {
    Follower::new(10.0, Some(Adaptive::default()))
}

/// Runs a whole episode: a throttle at `now` without a requested pause, and an answer right after the pause.
#[track_caller]
fn episode(follower: &mut Follower, now: f64) -> f64 {
    assert!(follower.throttled(at(now), None, 0.0), "the first throttle of an episode");
    follower.succeeded(at(now + 1.0));
    assert!(follower.paused_until().is_none() && !follower.probing());
    now + 1.0
}

fn rate_at(follower: &mut Follower, now: f64) -> f64 {
    follower.tick(at(now));
    follower.rate()
}

#[track_caller]
fn assert_near(got: f64, wanted: f64) {
    assert!((got - wanted).abs() < 1e-6, "got {got}, expected {wanted}");
}

#[test]
fn only_the_first_throttle_of_an_episode_lowers_the_rate() {
    let mut follower = follower();
    assert_near(follower.rate(), 10.0);
    assert!(follower.throttled(at(100.0), None, 0.5));
    assert_near(follower.rate(), 7.0);
    assert_eq!(follower.knee(), Some(10.0));
    assert!(!follower.throttled(at(100.0), None, 0.5), "the call was sent before the pause");
    assert!(!follower.throttled(at(101.0), None, 0.5), "the call is the probe");
    assert_near(follower.rate(), 7.0);
}

#[test]
fn the_rate_never_falls_below_the_floor() {
    let mut follower = Follower::new(10.0, Some(Adaptive { floor: 6.0, decrease: 0.5 }));
    follower.throttled(at(0.0), None, 0.0);
    assert_near(follower.rate(), 6.0);
}

#[test]
fn the_knee_is_the_mean_of_the_old_one_and_the_throttled_rate() {
    let mut follower = follower();
    let now = episode(&mut follower, 0.0);
    follower.throttled(at(now), None, 0.0);
    assert_eq!(follower.knee(), Some(8.5), "the knee is between 10/s and 7/s");
}

#[test]
fn a_pause_is_what_the_vendor_asks_for_and_never_less() {
    for (name, asked, jitter, seconds) in [
        ("exactly", S * 7, 0.0, 7.0),
        ("at most a fifth more", S * 10, 1.0, 12.0),
        ("at most 15 minutes", S * 3600, 0.0, 900.0),
        ("jitter included", S * 890, 1.0, 900.0),
        ("a requested pause of zero", Duration::ZERO, 1.0, 0.0),
    ] {
        let mut follower = follower();
        follower.throttled(at(1.0), Some(asked), jitter);
        assert_eq!(follower.paused_until(), Some(at(1.0 + seconds)), "{name}");
    }
}

#[test]
fn unrequested_pauses_double_up_to_a_minute() {
    let mut follower = follower();
    let mut now = 0.0;
    for seconds in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
        follower.throttled(at(now), None, 1.0);
        assert_eq!(follower.paused_until(), Some(at(now + seconds)));
        now += seconds;
    }
    follower.succeeded(at(now));
    follower.throttled(at(now), None, 1.0);
    assert_eq!(follower.paused_until(), Some(at(now + 1.0)), "a success restarts the doubling");
}

#[test]
fn after_the_pause_it_probes_until_a_call_succeeds() {
    let mut follower = follower();
    follower.throttled(at(0.0), Some(S * 5), 0.0);
    follower.tick(at(4.9));
    assert!(!follower.probing());
    follower.succeeded(at(4.9));
    assert_eq!(follower.paused_until(), Some(at(5.0)), "the call was sent before the pause");
    follower.tick(at(5.0));
    assert!(follower.probing());
    assert_eq!(follower.paused_until(), None);
    assert!(!follower.throttled(at(5.5), Some(S), 0.0), "a throttled probe belongs to the episode");
    assert_eq!(follower.paused_until(), Some(at(6.5)));
    follower.succeeded(at(7.0));
    assert!(!follower.probing());
    assert!(follower.throttled(at(8.0), None, 0.0), "a new episode begins");
}

#[test]
fn throttles_prolong_a_pause_only_on_request() {
    let mut follower = follower();
    follower.throttled(at(0.0), Some(S * 10), 0.0);
    for (asked, until) in [(None, 10.0), (Some(S), 10.0), (Some(S * 20), 22.0)] {
        follower.throttled(at(2.0), asked, 0.0);
        assert_eq!(follower.paused_until(), Some(at(until)), "{asked:?}");
    }
}

#[test]
fn rate_recovers_below_the_knee_waits_and_explores_slowly() {
    let mut follower = follower();
    let now = episode(&mut follower, 0.0);
    assert_near(rate_at(&mut follower, now), 7.0);
    assert_near(rate_at(&mut follower, now + 5.0), 8.0);
    assert_near(rate_at(&mut follower, now + 10.0), 9.0);
    assert_near(rate_at(&mut follower, now + 70.0), 9.0);
    assert_near(rate_at(&mut follower, now + 80.0), 9.2);
    assert_near(rate_at(&mut follower, now + 119.0), 9.98);
    assert_eq!((follower.knee(), follower.burst_share()), (Some(10.0), 0.25));
    assert_near(rate_at(&mut follower, now + 120.1), 10.0);
    assert_eq!((follower.knee(), follower.burst_share()), (None, 1.0), "the knee is cleared at the ceiling");
}

#[test]
fn a_knee_that_is_disproved_is_forgotten_and_recovery_goes_on() {
    let mut follower = Follower::new(100.0, Some(Adaptive::default()));
    let mut now = 0.0;
    while follower.rate() > 10.0 {
        now = episode(&mut follower, now);
    }
    let knee = follower.knee().unwrap();
    // The rate rises by 0.2/s from 0.9 to 1.5 times the knee, and by 2/s from then on.
    let explored = now + (knee * 0.9 - follower.rate()) / 2.0 + 60.0 + knee * 0.6 / 0.2;
    assert_near(rate_at(&mut follower, explored - 0.01), knee * 1.5 - 0.002);
    assert_eq!(follower.knee(), Some(knee));
    assert_near(rate_at(&mut follower, explored + 1.0), knee * 1.5 + 2.0);
    assert_eq!((follower.knee(), follower.burst_share()), (None, 1.0));
    assert_near(rate_at(&mut follower, explored + 100.0), 100.0);
}

#[test]
fn one_long_tick_arrives_where_many_short_ones_do() {
    for seconds in [3.0, 10.5, 69.0, 75.0, 90.0, 200.0] {
        let (mut long, mut short) = (follower(), follower());
        let now = episode(&mut long, 0.0).max(episode(&mut short, 0.0));
        for step in 0..1000 {
            short.tick(at(now + seconds * f64::from(step) / 1000.0));
        }
        let (long, short) = (rate_at(&mut long, now + seconds), rate_at(&mut short, now + seconds));
        assert!((long - short).abs() < 1e-3, "after {seconds} s: {long} and {short}");
    }
}

#[test]
fn the_rate_does_not_climb_during_an_episode() {
    let mut follower = follower();
    follower.throttled(at(0.0), Some(S * 100), 0.0);
    assert_near(rate_at(&mut follower, 99.0), 7.0);
    assert_near(rate_at(&mut follower, 200.0), 7.0);
    follower.succeeded(at(200.0));
    assert_near(rate_at(&mut follower, 201.0), 7.2);
}

#[test]
fn a_throttled_exploration_doubles_the_next_plateau() {
    let mut follower = follower();
    // The vendor allows 6/s, and throttles as soon as the rate is above 6/s.
    let (mut now, mut plateaus, mut since) = (0.0, Vec::new(), None);
    while plateaus.len() < 6 {
        now += 0.5;
        let rate = rate_at(&mut follower, now);
        match (follower.climb, since) {
            (super::RatePhase::Plateau { .. }, None) => since = Some(now),
            (super::RatePhase::Exploring, Some(began)) => {
                plateaus.push(Duration::from_secs_f64(now - began).as_secs());
                since = None;
            }
            _ => (),
        }
        if rate > 6.0 {
            since = None;
            now = episode(&mut follower, now);
        }
    }
    assert_eq!(plateaus, [60, 120, 240, 480, 600, 600]);
}

#[test]
fn a_throttle_on_the_plateau_does_not_make_the_next_one_longer() {
    let mut follower = follower();
    let now = episode(&mut follower, 0.0);
    follower.tick(at(now + 20.0));
    let now = episode(&mut follower, now + 20.0);
    // The rate needs 11.25 s to reach 0.9 x 9.5; then there is a plateau of one minute again.
    assert_near(rate_at(&mut follower, now + 71.0), 8.55);
    assert_near(rate_at(&mut follower, now + 81.25), 8.75);
}

#[test]
fn a_bucket_that_does_not_adapt_still_pauses_and_probes() {
    let mut follower = Follower::new(10.0, None);
    assert!(follower.throttled(at(0.0), Some(S * 3), 0.0));
    assert_eq!(follower.paused_until(), Some(at(3.0)));
    follower.tick(at(3.0));
    assert!(follower.probing());
    assert_eq!((follower.knee(), follower.burst_share()), (None, 1.0));
    assert_near(follower.rate(), 10.0);
}

#[test]
fn new_settings_keep_the_state_that_remains_valid() {
    for (name, ceiling, adaptive, rate, knee) in [
        (
            "with a higher ceiling, the rate rises from its current value",
            20.0,
            Some(Adaptive::default()),
            7.0,
            Some(10.0),
        ),
        (
            "with a ceiling below the rate, the rate is lowered to the ceiling",
            5.0,
            Some(Adaptive::default()),
            5.0,
            None,
        ),
        ("the rate is no longer adaptive", 20.0, None, 20.0, None),
    ] {
        let mut follower = follower();
        episode(&mut follower, 0.0);
        follower.configure(ceiling, adaptive);
        assert_near(follower.rate(), rate);
        assert_eq!(follower.knee(), knee, "{name}");
    }
    let mut follower = follower();
    follower.configure(20.0, Some(Adaptive::default()));
    assert_near(follower.rate(), 20.0);
    follower.throttled(at(0.0), Some(S), 0.0);
    follower.configure(10.0, None);
    assert_eq!(follower.paused_until(), Some(at(1.0)), "a pause continues");
}

fn hint(remaining: u64, limit: Option<u64>, reset: Option<u64>) -> Hint {
    Hint { bucket: None, remaining, limit, reset: reset.map(Duration::from_secs) }
}

#[test]
fn tokens_are_capped_by_the_vendors_count_minus_the_floor() {
    for (name, hint, tokens) in [
        ("limit known", hint(60, Some(100), None), 40.0),
        ("limit unknown: a share of the remaining calls", hint(60, None, None), 48.0),
        ("below the floor", hint(10, Some(100), None), 0.0),
        ("below the floor, but regained before the reset", hint(10, Some(100), Some(60)), -10.0),
        ("below the floor, but the reset is near", hint(0, Some(1000), Some(3)), -30.0),
    ] {
        let got = follower().hint(at(1.0), &hint, 0.2, 0);
        assert!((got - tokens).abs() < 1e-6, "{name}: {got}");
    }
}

#[test]
fn foreign_calls_in_a_window_reduce_the_rate() {
    let mut follower = follower();
    // The vendor's window allows 3,600 calls an hour. This client sends 2/s, other clients send 3/s.
    let mut seen = Vec::new();
    for second in 0_u64..=60 {
        follower.hint(
            at(0.0) + S * u32::try_from(second).unwrap(),
            &hint(3600 - 5 * second, Some(3600), Some(3600 - second)),
            0.2,
            2 * second,
        );
        seen.push(follower.foreign_rate());
    }
    assert_near(seen[4], 0.0);
    assert!((2.99..3.01).contains(&seen[60]), "{seen:?}");
    assert!((6.99..7.01).contains(&follower.rate()));
    // The next window begins: its larger remaining count must not change the estimate of the other clients' rate.
    follower.hint(at(66.0), &hint(3600, Some(3600), Some(3600)), 0.2, 132);
    assert!((2.99..3.01).contains(&follower.foreign_rate()));
}

#[test]
fn foreign_calls_of_a_bucket_are_measured() {
    let mut follower = follower();
    // The vendor's bucket holds 100 and regains 10/s; this client sends 6/s and others 4/s. So the bucket stays half full, 5 s from full.
    for second in 0_u32..=60 {
        follower.hint(at(0.0) + S * second, &hint(50, Some(100), Some(5)), 0.2, u64::from(6 * second));
    }
    assert!((3.99..4.01).contains(&follower.foreign_rate()), "{}", follower.foreign_rate());
}

#[test]
fn own_calls_do_not_count_as_foreign() {
    let mut follower = follower();
    for second in 0_u64..=60 {
        follower.hint(
            at(0.0) + S * u32::try_from(second).unwrap(),
            &hint(3600 - 9 * second, Some(3600), None),
            0.2,
            9 * second,
        );
    }
    assert_near(follower.foreign_rate(), 0.0);
    assert_near(follower.rate(), 10.0);
}

#[test]
fn foreign_rate_is_forgotten_a_minute_after_the_last_hint() {
    let mut follower = follower();
    follower.hint(at(0.0), &hint(100, Some(100), None), 0.2, 0);
    follower.hint(at(10.0), &hint(50, Some(100), None), 0.2, 0);
    assert!(follower.foreign_rate() > 2.0);
    follower.tick(at(69.0));
    assert!(follower.foreign_rate() > 2.0);
    follower.tick(at(70.0));
    assert_near(follower.foreign_rate(), 0.0);
}

#[test]
fn foreign_calls_respect_the_floor_and_fixed_rates() {
    for (adaptive, rate) in [(Some(Adaptive::default()), 0.2), (None, 10.0)] {
        let mut follower = Follower::new(10.0, adaptive);
        follower.hint(at(0.0), &hint(1000, Some(1000), None), 0.2, 0);
        follower.hint(at(10.0), &hint(0, Some(1000), None), 0.2, 0);
        assert_near(follower.rate(), rate);
    }
}
