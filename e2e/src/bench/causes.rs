//! The causes of missed targets, and what would be needed to meet the targets. The page shows both next to the missed targets.

/// The scenario, the beginning of the figure's name, and the cause.
const CAUSES: &[(&str, &str, &str)] = &[
    (
        "join",
        "all nodes initialised",
        "The CPU cores are shared with etcd, the API server, the cloud and the benchmark.",
    ),
    (
        "one-more",
        "new Service during the change",
        "A new Service takes a listing that proves that no load balancer exists and three writes, \
         each confirmed by a read, one after the other. At the same time a thousand member writes are \
         sent, which come first. The slowest Services are created in the first seconds: half of their \
         time passes before the first call, while all thousand load balancers are planned on cores that \
         the API server, the cloud and the benchmark use, too. Needed: more cores.",
    ),
    (
        "leave",
        "members removed",
        "1,000 writes take 50 s at 20 calls/s, and polls (a shared listing) take up to a quarter of \
         the rate. Needed: a higher rate, such as 35 calls/s; or a vendor that confirms a write in its \
         answer; or `--node-deletion-confirm-after=55s`. In this benchmark nodes are not ready as soon as \
         their instances are gone. kube-controller-manager waits for its grace period of 50 s first, so \
         that the members are removed before the first Node object.",
    ),
    (
        "growth",
        "vendor calls",
        "In a short window, one additional listing changes the figure. Needed: a longer run.",
    ),
    (
        "replicas",
        "kill -9 of one: all Services",
        "The Services of the killed replica's shards start again when its Leases have expired. This \
         takes several hundred writes on busy cores, for which 3 s are not enough here. At the pace of \
         four replicas below, all Services together take 20 s without a kill. Needed: more cores, or \
         shorter Leases.",
    ),
];

pub(super) fn cause(scenario: &str, what: &str) -> &'static str {
    let known = CAUSES.iter().find(|(of, begin, _)| *of == scenario && what.starts_with(begin));
    known.map_or("Not investigated yet.", |(_, _, text)| text)
}
