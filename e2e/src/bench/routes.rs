//! Measures the cost of the routes of all nodes, from the first node on.

use super::listings::{self, ROUTES_A_NODE};
use super::numbers::{float, of_count};
use super::result::{Row, Size, Spent, Target, Who};
use super::stage::Stage;

/// The maximum number of routes in a vendor call. Nodes join in small groups, so calls are at least half full on average.
const ROUTES_A_CALL: usize = 200;

/// The number of groups in which nodes join. The first and the last call of each group are usually not full.
const WAVES: usize = 8;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let born = stage.born.clone();
    let spent = stage.spent(&born).await?;
    let n = stage.size.nodes;
    Ok(Row {
        title: format!("{} routes of {n} nodes", n * ROUTES_A_NODE),
        targets: judge(&spent, stage.size, stage.who),
        notes: vec!["Counts everything since the first node joined.".to_owned()],
        spent,
        ..Row::default()
    })
}

fn judge(spent: &Spent, size: Size, who: Who) -> Vec<Target> {
    let routes = size.nodes * ROUTES_A_NODE;
    let calls = of_count(spent.vendor.of("BatchRoutes"));
    let listed = {
        let mut only = spent.vendor.clone();
        only.by_family.insert("network".to_owned(), spent.vendor.of("ListRoutes"));
        listings::routes(&only, size, spent.seconds)
    };
    let conditions = spent.api_writes.get("route-controller").and_then(|it| it.get("patch nodes/status"));
    let nodes = size.nodes.try_into().unwrap_or(u64::MAX);
    let mut targets = vec![
        Target::at_most(
            "calls that create routes",
            calls,
            float((routes * 2).div_ceil(ROUTES_A_CALL) + WAVES),
            "",
        ),
        Target { what: "calls that list routes, one listing per period".to_owned(), ..listed },
    ];
    // The peer is one process, so its writes of this condition cannot be distinguished from its other writes of node status.
    if who == Who::Ours {
        targets.push(Target::count("conditions written", conditions.copied().unwrap_or_default(), nodes));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::super::result::Calls;
    use super::{Size, Spent, Who, judge};

    #[test]
    fn one_call_per_route_or_second_condition_misses_the_target() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        let met = |laid, listed, conditions| {
            let by_operation = [("BatchRoutes".to_owned(), laid), ("ListRoutes".to_owned(), listed)].into();
            let mut spent = Spent {
                seconds: 240.0,
                vendor: Calls { by_operation, ..Calls::default() },
                ..Spent::default()
            };
            let writes = spent.api_writes.entry("route-controller".to_owned()).or_default();
            writes.insert("patch nodes/status".to_owned(), conditions);
            judge(&spent, size, Who::Ours).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        assert_eq!(met(108, 63, 5000), [true, true, true]);
        assert_eq!(met(109, 64, 5001), [false, false, false]);
    }
}
