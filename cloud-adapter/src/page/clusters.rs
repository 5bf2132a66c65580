//! Counts the objects of each cluster in the listings, by their tags. This module is pure.

use std::collections::BTreeMap;

use telemetry::report::ClusterObjects;

/// The number of objects in a listing, by cluster ID. Objects without owner tags are counted under the empty ID.
pub(super) type Tally = BTreeMap<String, u64>;

/// Sorts the clusters: the adapter's own cluster first, then the other clusters by ID.
pub(super) fn clusters(own: &str, load_balancers: Tally, routes: Tally) -> Vec<ClusterObjects> {
    let mut all = BTreeMap::<String, ClusterObjects>::new();
    for (cluster, number) in load_balancers {
        all.entry(cluster).or_default().load_balancers = number;
    }
    for (cluster, number) in routes {
        all.entry(cluster).or_default().routes = number;
    }
    let own = all.remove_entry(own).into_iter().map(|(id, it)| (!id.is_empty(), id, it));
    let mut listed: Vec<_> = own.collect();
    listed.extend(all.into_iter().map(|(id, it)| (false, id, it)));
    listed.into_iter().map(|(own, cluster_id, it)| ClusterObjects { cluster_id, own, ..it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(of: &[(&str, u64)]) -> Tally {
        of.iter().map(|(cluster, number)| ((*cluster).to_owned(), *number)).collect()
    }

    fn lines(own: &str, load_balancers: &[(&str, u64)], routes: &[(&str, u64)]) -> Vec<String> {
        let all = clusters(own, tally(load_balancers), tally(routes));
        let line = |it: &ClusterObjects| {
            let own = if it.own { " own" } else { "" };
            format!("{:?} {} {}{own}", it.cluster_id, it.load_balancers, it.routes)
        };
        all.iter().map(line).collect()
    }

    #[test]
    fn own_cluster_is_first_and_others_are_sorted_by_id() {
        let (balancers, routes) = ([("b", 2), ("a", 1), ("", 4)], [("c", 3), ("b", 5), ("", 1)]);
        assert_eq!(lines("b", &balancers, &routes), ["\"b\" 2 5 own", "\"\" 4 1", "\"a\" 1 0", "\"c\" 0 3"]);
        assert_eq!(lines("x", &balancers, &[]), ["\"\" 4 0", "\"a\" 1 0", "\"b\" 2 0"]);
        assert_eq!(
            lines("", &balancers, &[]),
            ["\"\" 4 0", "\"a\" 1 0", "\"b\" 2 0"],
            "untagged objects belong to no cluster"
        );
        assert_eq!(lines("b", &[], &[]), [""; 0]);
    }
}
