//! Benchmark: waiting times during a storm, with the budget and with one plain queue.

use std::time::Duration;

use cloud_budget::Class;
use cloud_budget_simulation::{
    queue::{Budget, Fifo},
    share,
    storm::{FAST, SLOW, SLOW_VENDOR, Times, Weather, blow, nodes_at_once},
};
use doc_tools::bench::{Row, time};

pub(crate) fn rows() -> Vec<Row> {
    let half_a_second = Duration::from_millis(500);
    let two_seconds = Duration::from_secs(2);
    let storm = "5,000 node calls at once";
    let mut rows = Vec::new();
    for (id, what, class) in [
        ("P3", storm.to_owned(), Class::Lifecycle),
        ("P4", format!("{storm}, same class as Services"), Class::Interactive),
    ] {
        let (ours, plain) = both(&nodes_at_once(class), FAST);
        rows.extend(compared(
            id,
            &format!("{what}: Service call wait p99"),
            ours.wait,
            plain.wait,
            half_a_second,
        ));
        rows.extend(compared(
            id,
            &format!("{what}: Service ensure p99"),
            ours.ensure,
            plain.ensure,
            two_seconds,
        ));
    }
    let (ours, plain) = both(&SLOW_VENDOR, SLOW);
    let what = "200 node calls at 1/s: Service ensure p99";
    rows.extend(compared("P5", what, ours.ensure, plain.ensure, Duration::from_secs(3)));
    rows.extend(shares());
    rows
}

fn both(weather: &Weather, (rate, burst): (f64, u32)) -> (Times, Times) {
    (blow(weather, Budget::new(rate, burst)), blow(weather, Fifo::new(rate, burst)))
}

fn compared(id: &str, what: &str, ours: Duration, plain: Duration, bound: Duration) -> [Row; 3] {
    let ratio = plain.as_secs_f64() / ours.as_secs_f64().max(1e-9);
    let ratio = if ours.is_zero() { "no wait at all".to_owned() } else { format!("{ratio:.0} times less") };
    [
        Row::told(id, what, time(ours)).promised(format!("<= {}", time(bound)), ours <= bound),
        Row::told(id, format!("{what}, one plain queue"), time(plain)),
        Row::told(id, format!("{what}, ours beside it"), ratio),
    ]
}

fn shares() -> Vec<Row> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let used = Class::ALL.map(share::alone).into_iter().fold(f64::INFINITY, f64::min);
    let background = share::background_under_load();
    vec![
        Row::told("P6", "part of the rate that is used, one class alone, the worst", percent(used))
            .promised(">= 98 %", used >= 0.98),
        Row::told("P7", "part of its share that background work gets under full load", percent(background))
            .promised(">= 90 %", background >= 0.9),
    ]
}
