//! Applies the routes of the simulated cloud to the network namespaces: it polls the cloud and keeps exactly these routes in each
//! namespace. A packet from a pod to a pod of another node therefore arrives only if a controller created the route in the cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::cloud;
use crate::cluster::layout::NetworkNamespace;
use crate::cluster::run::run_words;
use crate::cluster::wait::say;

/// The routing protocol number that marks the routes of this module in the kernel.
const PROTOCOL: &str = "99";
/// The interval at which the routes of the cloud are polled. A new route works in pods about this time after its creation.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Routes of a namespace: from destination to next hop.
type Table = BTreeMap<String, String>;

/// Applies routes until the process is killed. Call this inside the fabric.
pub async fn run() {
    let mut ticks = interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_said = String::new();
    loop {
        ticks.tick().await;
        // While the cloud does not answer, the desired routes are unknown, so all routes stay.
        let done = match cloud::state().await {
            Ok(state) => apply(&wanted(&state)),
            Err(error) => Err(error.context("cannot read the routes of the cloud, so all routes are kept")),
        };
        let now = done.err().map(|error| format!("{error:#}")).unwrap_or_default();
        if now != last_said {
            say(if now.is_empty() { "routes are in sync again" } else { &now });
            last_said = now;
        }
    }
}

fn apply(wanted: &Table) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for place in NetworkNamespace::all().filter(|place| place.namespace_file().exists()) {
        let namespace = place.namespace();
        let listed = match run_words(&format!("ip -n {namespace} -json route show proto {PROTOCOL}")) {
            Ok(listed) => listed,
            Err(error) => {
                failed.push(error.to_string());
                continue;
            }
        };
        let there = present(&serde_json::from_str(&listed).unwrap_or_default());
        for change in changes(&seen_from(wanted, &place.address()), &there) {
            match run_words(&format!("ip -n {namespace} route {change}")) {
                Ok(_) => say(&format!("{namespace}: {change}")),
                // For example, the next hop of a route can be an address that no node has. The other routes are still applied.
                Err(error) => failed.push(error.to_string()),
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// The routes of the cloud with the addresses of their next hops. IPv6 is not supported here.
fn wanted(state: &Value) -> Table {
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let address = |id: &str| {
        let instances = state["instances"].as_array()?;
        let instance = instances.iter().find(|instance| instance["id"] == id)?;
        let addresses = instance["addresses"].as_array()?;
        text(addresses.iter().find(|address| address["kind"] == "internal")?, "address")
    };
    let route = |route: &Value| {
        let via =
            text(route, "next_hop_address").or_else(|| address(route["next_hop_instance"].as_str()?))?;
        let to = text(route, "destination")?;
        (!to.contains(':')).then_some((to, via))
    };
    state["routes"].as_array().into_iter().flatten().filter_map(route).collect()
}

/// Leaves out the routes to the node itself, because the node delivers packets to its own pods directly.
fn seen_from(wanted: &Table, address: &str) -> Table {
    wanted.iter().filter(|(_, via)| *via != address).map(|(to, via)| (to.clone(), via.clone())).collect()
}

fn present(listed: &Value) -> Table {
    let route = |route: &Value| {
        let (to, via) = (route["dst"].as_str()?, route["gateway"].as_str()?);
        // `ip` prints single addresses without a prefix length.
        let to = if to.contains('/') { to.to_owned() } else { format!("{to}/32") };
        Some((to, via.to_owned()))
    };
    listed.as_array().into_iter().flatten().filter_map(route).collect()
}

/// The arguments of `ip route` for each change.
fn changes(wanted: &Table, there: &Table) -> Vec<String> {
    let new = wanted.iter().filter(|(to, via)| there.get(*to) != Some(*via));
    let gone = there.keys().filter(|to| !wanted.contains_key(*to));
    let new = new.map(|(to, via)| format!("replace {to} via {via} proto {PROTOCOL}"));
    new.chain(gone.map(|to| format!("del {to} proto {PROTOCOL}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(routes: &[(&str, &str)]) -> Table {
        routes.iter().map(|(to, via)| ((*to).to_owned(), (*via).to_owned())).collect()
    }

    #[test]
    fn route_uses_its_next_hop_or_its_instance_address() {
        let state = json!({
            "instances": [{ "id": "i-1", "addresses": [
                { "kind": "external", "address": "192.0.2.1" },
                { "kind": "internal", "address": "10.90.0.11" },
            ] }],
            "routes": [
                { "destination": "10.244.0.0/24", "next_hop_instance": "i-1", "next_hop_address": null },
                { "destination": "10.244.1.0/24", "next_hop_instance": null, "next_hop_address": "10.90.0.12" },
                { "destination": "10.244.2.0/24", "next_hop_instance": "i-gone", "next_hop_address": null },
                { "destination": "fd00::/64", "next_hop_instance": null, "next_hop_address": "fd01::1" },
            ],
        });
        assert_eq!(
            wanted(&state),
            table(&[("10.244.0.0/24", "10.90.0.11"), ("10.244.1.0/24", "10.90.0.12")])
        );
    }

    #[test]
    fn only_route_differences_are_applied() {
        let wanted = table(&[
            ("10.244.0.0/24", "10.90.0.11"),
            ("10.244.1.0/24", "10.90.0.12"),
            ("10.244.2.9/32", "10.90.0.13"),
        ]);
        let there = present(&json!([
            { "dst": "10.244.1.0/24", "gateway": "10.90.0.13", "dev": "eth0" },
            { "dst": "10.244.2.9", "gateway": "10.90.0.13", "dev": "eth0" },
            { "dst": "10.244.7.0/24", "gateway": "10.90.0.13", "dev": "eth0" },
        ]));
        assert_eq!(
            changes(&wanted, &there),
            [
                "replace 10.244.0.0/24 via 10.90.0.11 proto 99",
                "replace 10.244.1.0/24 via 10.90.0.12 proto 99",
                "del 10.244.7.0/24 proto 99",
            ]
        );
        assert_eq!(changes(&wanted, &wanted), [""; 0]);
    }

    #[test]
    fn node_has_no_route_to_its_own_pods() {
        let wanted = table(&[("10.244.0.0/24", "10.90.0.11"), ("10.244.1.0/24", "10.90.0.12")]);
        assert_eq!(seen_from(&wanted, "10.90.0.11"), table(&[("10.244.1.0/24", "10.90.0.12")]));
        assert_eq!(seen_from(&wanted, "10.90.0.1"), wanted);
    }
}
