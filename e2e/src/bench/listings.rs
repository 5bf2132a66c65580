//! The permitted cost of the adapter's own listings: pages per period, regardless of other work.

use super::numbers::{float, of_count};
use super::result::{Calls, Size, Target};

/// The tolerance, because periods do not begin together with the measurement.
const TOLERANCE: f64 = 1.1;
/// The maximum number of items on a page of the cloud.
pub(super) const PAGE: usize = 500;
/// The page size for load balancers. The driver requests smaller pages, because load balancers have members.
pub(super) const BALANCERS_PAGE: usize = 100;
/// From this number of periods on, the listings of the first period hardly matter, so the tolerance covers them.
const MANY: f64 = 10.0;
/// The adapter's default intervals between two listings, in seconds.
const INSTANCES_EVERY: f64 = 30.0;
const BALANCERS_EVERY: f64 = 60.0;
const ROUTES_EVERY: f64 = 120.0;
/// The number of routes of a node, one per address family.
pub(super) const ROUTES_A_NODE: usize = 2;

/// The number of calls of one listing. As with real vendors, a full page has a cursor even if no item follows, so one more call is needed.
pub(super) fn pages(items: usize, page: usize) -> f64 {
    float(items / page + 1)
}

/// The permitted number of listing calls in this time: the pages of all periods, plus 10 %. In a short measurement, all listings that may
/// begin in this time are permitted.
fn allowed(items: usize, page: usize, every: f64, seconds: f64) -> f64 {
    let periods = seconds / every;
    let steady = TOLERANCE * float(items.div_ceil(page)) * periods;
    let begun = if periods < MANY { pages(items, page) * (1.0 + periods.floor()) } else { 0.0 };
    steady.max(begun).ceil()
}

/// The target for listings of instances and load balancers: 1.1 x (2 N/page + S/page) per minute, plus `more` calls.
pub(super) fn machines_and_balancers(calls: &Calls, size: Size, seconds: f64, more: f64) -> Target {
    let bound = allowed(size.nodes, PAGE, INSTANCES_EVERY, seconds)
        + allowed(size.services, BALANCERS_PAGE, BALANCERS_EVERY, seconds)
        + more;
    let seen = calls.families(&["compute", "loadbalancer"]);
    Target::at_most("vendor calls for instances and load balancers", of_count(seen), bound, "")
}

/// The target for listings of routes: one listing per period, plus the tolerance.
pub(super) fn routes(calls: &Calls, size: Size, seconds: f64) -> Target {
    let bound = allowed(size.nodes * ROUTES_A_NODE, PAGE, ROUTES_EVERY, seconds);
    Target::at_most("vendor calls for routes", of_count(calls.families(&["network"])), bound, "")
}

/// The calls that do not belong to the adapter's own listings.
pub(super) fn others(calls: &Calls) -> u64 {
    let own = ["ListInstances", "ListLoadBalancers", "ListRoutes", "GetProject"];
    calls.total().saturating_sub(own.iter().map(|operation| calls.of(operation)).sum())
}

#[cfg(test)]
mod tests {
    use super::{Calls, Size, machines_and_balancers, others, routes};

    const SIZE: Size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };

    fn calls(family: &str, n: u64) -> Calls {
        Calls { reads: n, by_family: [(family.to_owned(), n)].into(), ..Calls::default() }
    }

    #[test]
    fn ten_minutes_allow_the_listings_of_their_periods() {
        // 1.1 x (10 pages in each of 20 periods, plus 10 pages in each of 10 periods).
        let target = |n| machines_and_balancers(&calls("compute", n), SIZE, 600.0, 0.0);
        assert_eq!(target(352).bound, "<= 330");
        assert!(target(330).met && !target(331).met);
        let two_batches = machines_and_balancers(&calls("loadbalancer", 332), SIZE, 600.0, 2.0);
        assert!(two_batches.met);
        let routes = |n| routes(&calls("network", n), SIZE, 600.0);
        assert!(routes(126).met && !routes(127).met);
    }

    #[test]
    fn short_measurement_allows_one_listing_of_each() {
        let small = Size { nodes: 50, services: 10, ..SIZE };
        assert!(machines_and_balancers(&calls("compute", 2), small, 5.0, 0.0).met);
        assert!(!machines_and_balancers(&calls("compute", 3), small, 5.0, 0.0).met);
    }

    #[test]
    fn calls_other_than_listings_are_counted() {
        let by_operation = [("ListRoutes".to_owned(), 20), ("GetInstance".to_owned(), 1)].into();
        assert_eq!(others(&Calls { reads: 21, by_operation, ..Calls::default() }), 1);
    }
}
