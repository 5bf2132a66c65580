//! Guarantees of the budget for calls that are queued during a storm.

use std::time::Duration;

use cloud_budget::Class;
use cloud_budget_simulation::{
    queue::{Budget, Fifo},
    share,
    storm::{FAST, SLOW, SLOW_VENDOR, Times, blow, nodes_at_once},
};

#[track_caller]
fn assert_at_most(times: Times, wait: Duration, ensure: Duration) {
    assert!(times.wait <= wait && times.ensure <= ensure, "{times:?}");
}

#[test]
fn a_storm_of_less_urgent_calls_does_not_delay_services() {
    let times = blow(&nodes_at_once(Class::Lifecycle), Budget::new(FAST.0, FAST.1));
    assert_at_most(times, Duration::from_millis(500), Duration::from_secs(2));
}

#[test]
fn an_equally_urgent_storm_does_not_delay_services() {
    let times = blow(&nodes_at_once(Class::Interactive), Budget::new(FAST.0, FAST.1));
    assert_at_most(times, Duration::from_millis(500), Duration::from_secs(2));
}

#[test]
fn a_slow_vendor_keeps_a_reserve_for_services() {
    let times = blow(&SLOW_VENDOR, Budget::new(SLOW.0, SLOW.1));
    assert_at_most(times, Duration::from_secs(3), Duration::from_secs(3));
}

/// Validates the model: a plain queue must show bad results.
#[test]
fn one_plain_queue_delays_services_by_minutes() {
    let times = blow(&nodes_at_once(Class::Lifecycle), Fifo::new(FAST.0, FAST.1));
    assert!(times.wait > Duration::from_mins(5), "{times:?}");
}

#[test]
fn a_single_class_gets_the_whole_rate() {
    for class in Class::ALL {
        let used = share::alone(class);
        assert!(used >= 0.98, "{class:?}: {used}");
    }
}

#[test]
fn background_work_gets_its_share_under_full_load() {
    let share = share::background_under_load();
    assert!(share >= 0.9, "{share}");
}
