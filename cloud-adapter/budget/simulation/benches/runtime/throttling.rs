//! Benchmark: five clients against vendors that allow less than the clients' configured rate.

use std::time::Duration;

use cloud_budget_simulation::{
    Vendor, batch,
    throttling::{CEILING, Figures, LEARNT, Strategy, lowered, raised, saturated},
};
use doc_tools::bench::{Row, time};

const LOCKOUT: Duration = Duration::from_secs(30);

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = strategies();
    let [_, learnt] = saturated(Strategy::Ours, Vendor::new(6.0));
    rows.push(
        Row::told("P12", "vendor allows 60 % of what is configured, after 5 min", figure(learnt))
            .promised("<= 1 throttle/min, >= 95 % used", learnt.throttled <= 1.0 && learnt.used >= 0.95),
    );
    let [foreign, _] =
        saturated(Strategy::Ours, Vendor::new(CEILING).with_foreign(CEILING / 2.0).with_headers());
    rows.push(
        Row::told("P24", "others spend half of the account, the vendor tells its count", figure(foreign))
            .promised("<= 1 throttle/min", foreign.throttled <= 1.0),
    );
    rows.extend(changes());
    let calls = batch::throttled();
    rows.push(
        Row::told("P11", "calls until the pause is over, batch of 500 throttled", calls.to_string())
            .promised("<= 2", calls <= 2),
    );
    rows
}

/// Runs each client against each vendor; the figures are for the whole run.
fn strategies() -> Vec<Row> {
    let locking = || Vendor::new(6.0).with_lockout(LOCKOUT);
    let vendors = [
        ("6/s", Vendor::new(6.0)),
        ("2/s", Vendor::new(2.0)),
        ("6/s, locks out 30 s", locking()),
        ("6/s, locks out 30 s and says so", locking().with_retry_after()),
    ];
    let row = |(allowed, vendor): &(&str, Vendor), strategy: Strategy| {
        let [all, _] = saturated(strategy, vendor.clone());
        Row::told("rates", format!("vendor allows {allowed}: {}", strategy.name()), figure(all))
    };
    vendors.iter().flat_map(|vendor| Strategy::ALL.map(|strategy| row(vendor, strategy))).collect()
}

/// The vendor changes its limit during the run. The duration of the rise depends on the client's plateau, which doubles with each failed
/// exploration.
fn changes() -> Vec<Row> {
    let raise = |minutes: u64| {
        let found = raised(4.0, Duration::from_mins(minutes));
        let what = format!("limit raised from 4/s to 10/s after {minutes} min: all of it used after");
        (found, Row::told("rates", what, time(found)))
    };
    let (found, first) = raise(5);
    let after = lowered(4.0, LEARNT);
    vec![
        first.promised("<= 300 s", found <= Duration::from_mins(5)),
        raise(10).1,
        raise(30).1,
        Row::told("rates", "limit lowered from 10/s to 4/s, the 30 min after", figure(after))
            .promised("<= 1 throttle/min, >= 97 % used", after.throttled <= 1.0 && after.used >= 0.97),
    ]
}

fn figure(figures: Figures) -> String {
    format!("{:.1} throttles/min, {:.1} % used", figures.throttled, figures.used.min(1.0) * 100.0)
}
