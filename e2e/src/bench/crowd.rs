//! Users create many Services at once.

use super::numbers::{float, of_count};
use super::result::{Calls, Row, Target, Waits};
use super::stage::{RATE, Stage};

/// One new Service is created for this many existing Services.
const SHARE: usize = 2;
/// Minimum number of vendor writes for a Service: the load balancer, its port with the members, and the tag that marks it as complete.
const WRITES_EACH: u64 = 3;
/// The time for a single Service, in seconds.
const ALONE_SECONDS: f64 = 3.0;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let n = (stage.size.services / SHARE).max(1);
    let names: Vec<_> = (0..n).map(|number| format!("crowd-{number:04}")).collect();
    let before = stage.reading().await?;
    let waits = Waits::of(stage.progress.step("creating Services at once", stage.create(&names)).await?);
    let spent = stage.spent(&before).await?;
    let removed = stage.reading().await?;
    stage.progress.step("deleting these Services", stage.delete(&names)).await?;
    let removal = stage.calls_since(&removed).await?;
    stage.quiet().await?;
    Ok(Row {
        title: format!("{n} Services created at once"),
        targets: judge(n, &spent.vendor, &waits),
        notes: vec![
            format!(
                "{:.1} vendor calls per Service.",
                of_count(spent.vendor.families(&["loadbalancer"])) / float(n)
            ),
            format!("Removal of these Services: {} writes, {} reads.", removal.writes, removal.reads),
        ],
        waits: [("new Service has an address".to_owned(), waits)].into(),
        spent,
        ..Row::default()
    })
}

fn judge(n: usize, calls: &Calls, waits: &Waits) -> Vec<Target> {
    let least = WRITES_EACH.saturating_mul(n.try_into().unwrap_or(u64::MAX));
    // Route writes are not counted. They may delete the routes of nodes that left earlier, after a listing has shown that the instances are
    // gone.
    let writes = calls.writes.saturating_sub(calls.of("BatchRoutes"));
    let bound = ALONE_SECONDS + of_count(calls.families(&["loadbalancer"])) / f64::from(RATE);
    vec![
        Target::count("vendor writes except routes (minimum: 3 per Service)", writes, least),
        Target::at_most("last Service has an address (calls ahead / rate + 3 s)", waits.max, bound, "s"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Calls, Waits, judge};

    #[test]
    fn fourth_write_or_idle_budget_misses_the_target() {
        let met = |writes, max| {
            let calls =
                Calls { writes, by_family: [("loadbalancer".to_owned(), writes)].into(), ..Calls::default() };
            judge(500, &calls, &Waits { max, ..Waits::default() }).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        assert_eq!(met(1500, 78.0), [true, true]);
        assert_eq!(met(1501, 78.1), [false, false]);
    }
}
