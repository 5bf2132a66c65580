//! Why targets are missed, and what would be needed: told where they are.

/// By scenario and the beginning of what was measured.
const CAUSES: &[(&str, &str, &str)] = &[
    (
        "one-more",
        "a new Service meanwhile",
        "Twenty Services within five seconds need 60 writes and more reads than that, of 20 calls a second that they share with the \
         thousand load balancers that follow the node. The controller hands each to the adapter at once; there a listing of ten pages must show that \
         there is no such load balancer, and with more users than pages another one tells all of them what came of each of their three writes: \
         each takes 2 s beside the others' writes. Needed: a read by owner, such as by tag, in the driver, which proves in one call what ten \
         do; and a measurement with Services further apart.",
    ),
    (
        "leave",
        "members are gone",
        "1,000 writes take 50 s at 20 calls a second, and polls, a listing for all that wait, take up to a quarter of the rate. Needed: a \
         higher rate, or a vendor whose answer to a write says that it is done.",
    ),
    (
        "steady",
        "peak memory of route-controller",
        "Each pass copies all nodes and routes. Needed: to share them.",
    ),
    (
        "restart",
        "peak memory",
        "The listing of all nodes and what it is decoded from, before what is not used is given back. Needed: smaller nodes in route-controller.",
    ),
    (
        "crowd",
        "vendor writes",
        "The routes of nodes that had joined before were laid in one call (BatchRoutes), which counts among them.",
    ),
    (
        "growth",
        "vendor calls",
        "A page that is exactly full is followed by an empty one, and a short window holds a listing more or less. Needed: a longer run.",
    ),
];

/// What is known of a target that was missed.
pub(super) fn cause(scenario: &str, what: &str) -> &'static str {
    let known = CAUSES.iter().find(|(of, begin, _)| *of == scenario && what.starts_with(begin));
    known.map_or("Not looked into yet.", |(_, _, text)| text)
}
