//! Many nodes join at once.

use super::result::{Calls, Row, Target, Waits};
use super::stage::Stage;

/// One node joins for this many existing nodes.
const SHARE: usize = 5;
const WITHIN_SECONDS: f64 = 15.0;
const CALLS: u64 = 10;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let n = (stage.size.nodes / SHARE).max(1);
    let numbers = stage.boot(n).await?;
    let before = stage.reading().await?;
    let members = stage.size.members;
    let waits = Waits::of(stage.join(numbers, members).await?);
    let spent = stage.spent(&before).await?;
    Ok(Row {
        title: format!("{n} nodes join at once"),
        targets: judge(spent.seconds, &spent.vendor),
        waits: [("node initialised".to_owned(), waits)].into(),
        notes: vec![
            "Time is from the first registration to the last removal of a taint, as a watch \
             sees it. Route creation starts during this time."
                .into(),
        ],
        spent,
        ..Row::default()
    })
}

fn judge(seconds: f64, calls: &Calls) -> Vec<Target> {
    vec![
        Target::at_most("all nodes initialised", seconds, WITHIN_SECONDS, "s"),
        Target::count("vendor calls for instances", calls.families(&["compute", "identity"]), CALLS),
        Target::count("vendor writes except routes", calls.writes.saturating_sub(calls.of("BatchRoutes")), 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Calls, judge};

    #[test]
    fn late_nodes_and_calls_for_each_miss_the_target() {
        let calls = |n| Calls { reads: n, by_family: [("compute".to_owned(), n)].into(), ..Calls::default() };
        assert!(judge(15.0, &calls(10)).iter().all(|target| target.met));
        assert!(!judge(15.1, &calls(10)).iter().all(|target| target.met));
        assert!(!judge(15.0, &calls(11)).iter().all(|target| target.met));
        let laid =
            |n| Calls { writes: n, by_operation: [("BatchRoutes".to_owned(), 5)].into(), ..Calls::default() };
        assert!(judge(15.0, &laid(5)).iter().all(|target| target.met));
        assert!(!judge(15.0, &laid(6)).iter().all(|target| target.met));
    }
}
