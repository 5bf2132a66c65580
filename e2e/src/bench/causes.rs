//! Why targets are missed, and what would be needed: told where they are.

/// By scenario and the beginning of what was measured.
const CAUSES: &[(&str, &str, &str)] = &[
    (
        "join",
        "all are initialised",
        "The machine's cores are shared with etcd, the API server and the benchmark: see its load at the beginning.",
    ),
    (
        "one-more",
        "a new Service meanwhile",
        "Each takes a proof that there is none, three writes and a look after each, one after the other, beside a thousand writes for members, for \
         which packets wait and which come first. The slowest are made in the first seconds: half of their wait is over before the first call, \
         while all thousand are planned on the cores that the API server, the cloud and the benchmark need, too. Needed: more cores.",
    ),
    (
        "leave",
        "members are gone",
        "1,000 writes take 50 s at 20 calls a second, and polls, a listing for all that wait, take up to a quarter of the rate. Needed: a \
         higher rate: 35 calls a second would do; or a vendor whose answer to a write says that it is done; or \
         `--node-deletion-confirm-after=55s`. Here a node is not ready as soon as its machine is gone, where kube-controller-manager waits for \
         its grace period of 50 s first: then the members are gone before the first Node object.",
    ),
    ("growth", "vendor calls", "A short window holds a listing more or less. Needed: a longer run."),
    (
        "replicas",
        "kill -9 of one: all Services",
        "The Services of its shards begin anew when the Leases are over, several hundred writes on cores that are all in use: 3 s are too few \
         for them here. At the pace of four replicas below, all of them together take 20 s with nobody killed. Needed: more cores, \
         or shorter Leases.",
    ),
];

/// What is known of a target that was missed.
pub(super) fn cause(scenario: &str, what: &str) -> &'static str {
    let known = CAUSES.iter().find(|(of, begin, _)| *of == scenario && what.starts_with(begin));
    known.map_or("Not looked into yet.", |(_, _, text)| text)
}
