//! Why targets are missed, and what would be needed: told where they are.

/// By scenario and the beginning of what was measured.
const CAUSES: &[(&str, &str, &str)] = &[
    (
        "one-more",
        "a new Service meanwhile",
        "A load balancer is made only once a listing that began after it was asked for shows that the Service has none: here ten pages of the \
         20 calls a second that it shares with the load balancers that follow the node. Then it waits for the cloud after each of its \
         three writes. Needed: a read by owner, such as by tag, in the driver: one call would prove as much as ten.",
    ),
    (
        "leave",
        "members are gone",
        "1,000 writes take 50 s at 20 calls a second, and polls, a listing for all that wait, take up to a quarter of the rate. Needed: a \
         higher rate, or a vendor whose answer to a write says that it is done.",
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
