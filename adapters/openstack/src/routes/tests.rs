//! Tests of listing and changing routes, against a fake Neutron.

use cloud_adapter::driver::{Driver as _, Outcome, RouteChanges, WantedRoute};
use cloud_api_proto::v1alpha1::{Fence, NextHop, RouteKey, RouteState, RouteUpsert};
use serde_json::{Value, json};

use super::*;
use crate::{
    step::Step,
    testing::{
        FakeCloud, PROJECT,
        routers::{ROUTER, Routers},
        session,
    },
};

const SUBNET: &str = "040796b5-d3b2-4990-8c6b-f61909df152a";
const SUBNET_V6: &str = "0eb3f211-1f6a-4061-93c0-887321f178a0";

/// Starts a cloud with a router and servers. The servers `server-1`, `server-2` and so on have the addresses 10.20.0.1x and fd20::1x.
async fn cloud(machines: usize) -> (FakeCloud, OpenStackDriver) {
    let cloud = FakeCloud::start().await;
    let address = |subnet: &str, ip: String| json!({ "subnet_id": subnet, "ip_address": ip });
    let mut ports = vec![json!({
        "id": "port-r", "device_id": ROUTER, "device_owner": "network:router_interface", "project_id": PROJECT,
        "fixed_ips": [address(SUBNET, "10.20.0.1".into()), address(SUBNET_V6, "fd20::1".into())],
        "allowed_address_pairs": [], "port_security_enabled": false, "revision_number": 1,
    })];
    for n in 1..=machines {
        // A network that the router does not reach uses the same addresses.
        let far = [address("elsewhere", format!("10.20.0.1{}", n % machines + 1))];
        let near = [address(SUBNET, format!("10.20.0.1{n}")), address(SUBNET_V6, format!("fd20::1{n}"))];
        for (kind, ips) in [("far", json!(far)), ("near", json!(near))] {
            ports.push(json!({
                "id": format!("{kind}-{n}"), "device_id": format!("server-{n}"), "device_owner": "compute:zone-a",
                "project_id": PROJECT, "fixed_ips": ips, "allowed_address_pairs": [],
                "port_security_enabled": true, "revision_number": 4,
            }));
        }
    }
    cloud.store().ports = ports;
    let mut driver = cloud.driver();
    driver.routes = Routes::new(Some(ROUTER.to_owned())).into();
    (cloud, driver)
}

fn wanted(destination: &str, server: &str, address: &str) -> WantedRoute {
    let key = RouteKey { cluster_id: "c".into(), node_uid: "n".into(), destination: destination.into() };
    let provider_id = format!("openstack:///{server}");
    let next_hop = NextHop { provider_id, address: address.into(), interface: String::new() };
    let upsert = RouteUpsert { key: Some(key), next_hop: Some(next_hop), owner: None };
    WantedRoute { upsert, fence: Fence::default(), cluster_name: "prod".into() }
}

fn extra(destination: &str, hop: &str) -> Value {
    json!({ "destination": destination, "nexthop": hop })
}

async fn change(
    driver: &OpenStackDriver,
    remove: &[&str],
    add: &[WantedRoute],
) -> Vec<Result<Option<Route>, VendorError>> {
    let changes =
        RouteChanges { remove: remove.iter().map(|id| (*id).to_owned()).collect(), add: add.to_vec() };
    let steps = driver.plan_routes(&changes);
    let [step @ Step::ChangeRoutes(_)] = &steps[..] else { panic!("one step: {steps:?}") };
    match driver.execute(&session(driver), step).await.expect("executed") {
        Outcome::Items(items) => items,
        Outcome::Accepted | Outcome::Created(_) => panic!("no results"),
    }
}

async fn listed(driver: &OpenStackDriver) -> Vec<Route> {
    let (session, mut cursor) = (session(driver), None);
    loop {
        let page = Collection::<Route>::list_page(driver, &session, cursor.as_ref(), Some(2)).await;
        let page = page.expect("a page");
        match page.next {
            Some(next) => cursor = Some(next),
            None => return page.items,
        }
    }
}

fn writes(cloud: &FakeCloud) -> Vec<String> {
    cloud.asked("PUT /network").iter().map(|one| one.replace("PUT /network/v2.0/", "")).collect()
}

/// Changes a port's address pairs, as a user does by hand.
fn may_send(cloud: &FakeCloud, port: &str, pairs: &[&str]) {
    let pairs: Vec<Value> = pairs.iter().map(|net| json!({ "ip_address": net })).collect();
    let mut store = cloud.store();
    store.ports.iter_mut().find(|one| one["id"] == port).expect("a port")["allowed_address_pairs"] =
        json!(pairs);
}

fn pairs(cloud: &FakeCloud, port: &str) -> Vec<String> {
    let store = cloud.store();
    let port = store.ports.iter().find(|one| one["id"] == port).expect("a port");
    let pairs = port["allowed_address_pairs"].as_array().expect("pairs");
    pairs.iter().map(|pair| pair["ip_address"].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn next_hop_identifies_the_server_by_its_port() {
    let (cloud, driver) = cloud(2).await;
    assert!(listed(&driver).await.is_empty());
    assert_eq!(cloud.asked("GET /network").len(), 1, "without routes the ports are not listed");
    let routes =
        [("10.244.1.0/24", "10.20.0.11"), ("fd00:1:0::/64", "fd20::12"), ("10.9.0.0/16", "10.20.0.99")];
    cloud.store().routers.routes = routes.map(|(to, hop)| extra(to, hop)).into();
    may_send(&cloud, "near-1", &["10.244.0.0/16"]);
    may_send(&cloud, "near-2", &["fd00:1::/64"]);
    let reported = listed(&driver).await;
    let reported: Vec<_> = reported
        .iter()
        .map(|route| {
            let hop = route.next_hop.as_ref().expect("a hop");
            let ends = (hop.provider_id.as_str(), hop.address.as_str());
            (route.vendor_id.as_str(), route.destination.as_str(), ends, route.state(), route.key.clone())
        })
        .collect();
    assert_eq!(
        reported,
        [
            (
                "10.244.1.0/24=10.20.0.11",
                "10.244.1.0/24",
                ("openstack:///server-1", "10.20.0.11"),
                RouteState::Active,
                None
            ),
            (
                "fd00:1:0::/64=fd20::12",
                "fd00:1::/64",
                ("openstack:///server-2", "fd20::12"),
                RouteState::Active,
                None
            ),
            ("10.9.0.0/16=10.20.0.99", "10.9.0.0/16", ("", "10.20.0.99"), RouteState::Blackhole, None),
        ]
    );
}

#[tokio::test]
async fn missing_router_is_an_error() {
    let (_cloud, mut driver) = cloud(1).await;
    driver.routes = Routes::new(Some("gone".to_owned())).into();
    let session = session(&driver);
    let page = Collection::<Route>::list_page(&driver, &session, None, None).await;
    let error = page.expect_err("no router");
    assert_eq!(
        (error.fault, error.message.starts_with("--router-id: ")),
        (Fault::Forbidden, true),
        "{error}"
    );
    driver.routes = Routes::new(None).into();
    let page = Collection::<Route>::list_page(&driver, &session, None, None).await;
    assert_eq!(page.expect_err("no router").fault, Fault::Unsupported);
    assert!(!driver.describe().can("routes"));
}

#[tokio::test]
async fn routes_change_in_one_call_and_keep_their_pairs() {
    let (cloud, driver) = cloud(2).await;
    assert!(driver.describe().can("routes") && !driver.describe().can("routes.ownership-tags"));
    let add = [
        wanted("10.244.1.0/24", "server-1", ""),
        wanted("fd00:1::/64", "server-1", ""),
        wanted("10.244.2.0/24", "server-2", "10.20.0.12"),
    ];
    let created = change(&driver, &[], &add).await;
    assert_eq!(
        writes(&cloud),
        ["ports/near-1", "ports/near-2", &format!("routers/{ROUTER}/add_extraroutes")]
    );
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.1.0/24", "fd00:1::/64"]);
    let created: Vec<Route> =
        created.into_iter().map(|one| one.expect("created").expect("a route")).collect();
    assert_eq!(created, listed(&driver).await, "the result of a new route is as in a listing");

    cloud.store().requests.clear();
    let ids: Vec<&str> = created.iter().take(2).map(|route| route.vendor_id.as_str()).collect();
    let gone = change(&driver, &ids, &[]).await;
    assert_eq!(gone, [Ok(None), Ok(None)]);
    assert_eq!(writes(&cloud), [&format!("routers/{ROUTER}/remove_extraroutes"), "ports/near-1"]);
    assert_eq!(cloud.asked("GET /network").len(), 2, "the ports of the router and of the next hops");
    assert_eq!((pairs(&cloud, "near-1").len(), pairs(&cloud, "near-2").len()), (0, 1));
    assert_eq!(cloud.store().routers.routes, [extra("10.244.2.0/24", "10.20.0.12")]);
}

#[tokio::test]
async fn routes_of_deleted_servers_are_removed_in_one_write() {
    let (cloud, driver) = cloud(1).await;
    let add = [wanted("10.244.1.0/24", "server-1", "")];
    assert!(change(&driver, &[], &add).await.iter().all(Result::is_ok));
    let gone: Vec<Value> =
        (2..=4).map(|n| extra(&format!("10.244.{n}.0/24"), &format!("10.20.0.2{n}"))).collect();
    cloud.store().routers.routes.extend([gone, vec![extra("10.9.0.0/16", "10.20.0.99")]].concat());
    let holes: Vec<String> = listed(&driver)
        .await
        .into_iter()
        .filter(|route| route.state() == RouteState::Blackhole && route.destination != "10.9.0.0/16")
        .map(|route| route.vendor_id)
        .collect();
    cloud.store().requests.clear();
    let removed = change(&driver, &holes.iter().map(String::as_str).collect::<Vec<_>>(), &[]).await;
    assert_eq!(removed, [Ok(None), Ok(None), Ok(None)]);
    assert_eq!(writes(&cloud), [format!("routers/{ROUTER}/remove_extraroutes")]);
    assert_eq!(cloud.asked("GET /network").len(), 2, "the ports of the router and of the next hops");
    assert_eq!(
        cloud.store().routers.routes,
        [extra("10.244.1.0/24", "10.20.0.11"), extra("10.9.0.0/16", "10.20.0.99")]
    );
}

#[tokio::test]
async fn port_with_a_sufficient_pair_is_not_written() {
    let (cloud, driver) = cloud(3).await;
    {
        let mut store = cloud.store();
        let wide = json!([{ "ip_address": "10.244.0.0/16", "mac_address": "fa:16:3e:53:64:a5" }]);
        let port = |store: &mut crate::testing::Store, id: &str, key: &str, value: Value| {
            store.ports.iter_mut().find(|port| port["id"] == id).expect("a port")[key] = value;
        };
        port(&mut store, "near-1", "allowed_address_pairs", wide);
        port(&mut store, "near-2", "port_security_enabled", json!(false));
        port(&mut store, "near-3", "port_security_enabled", Value::Null);
    }
    let add = [1, 2, 3].map(|n| wanted(&format!("10.244.{n}.0/24"), &format!("server-{n}"), ""));
    assert!(change(&driver, &[], &add).await.iter().all(Result::is_ok));
    assert_eq!(writes(&cloud).len(), 1, "only the router is written");
    change(&driver, &["10.244.1.0/24=10.20.0.11"], &[]).await;
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.0.0/16"], "a wider address pair is not removed");
}

#[tokio::test]
async fn unreachable_route_does_not_block_others() {
    let (cloud, driver) = cloud(1).await;
    let add = [
        wanted("10.244.1.0/24", "server-1", ""),
        wanted("10.244.2.0/24", "server-9", ""),
        wanted("10.244.3.0/24", "server-1", "fd20::11"),
        wanted("10.244.4.0/24", "server-1", "10.20.0.12"),
        wanted("10.244.5.0/24", "server-1", "10.20.0.11"),
    ];
    let fields = ["", "next_hop.provider_id", "next_hop.address", "next_hop.address", ""];
    for (result, field) in change(&driver, &[], &add).await.iter().zip(fields) {
        match result {
            Ok(_) => assert_eq!(field, ""),
            Err(error) => {
                assert_eq!(error.fault, Fault::Invalid);
                assert!(!field.is_empty() && error.message.starts_with(field), "{error}");
            }
        }
    }
    assert_eq!(cloud.store().routers.routes.len(), 2);
    assert_eq!(writes(&cloud).len(), 2, "one port and the router are written");
}

#[tokio::test]
async fn route_refused_by_neutron_does_not_block_others() {
    let (cloud, driver) = cloud(8).await;
    cloud.store().routers.near = ["10.20.0.1", "10.20.0.1"];
    let add: Vec<_> = (1..=8)
        .map(|n| {
            let destination = if n == 3 { "fd00:3::/64".to_owned() } else { format!("10.244.{n}.0/24") };
            wanted(&destination, &format!("server-{n}"), "")
        })
        .collect();
    let results = change(&driver, &[], &add).await;
    let failed: Vec<usize> = (1..).zip(&results).filter(|(_, one)| one.is_err()).map(|(n, _)| n).collect();
    assert_eq!(failed, [3]);
    assert_eq!(cloud.store().routers.routes.len(), 7);
    assert_eq!(cloud.asked("PUT /network/v2.0/routers").len(), 7, "halves, and halves of these");
}

#[tokio::test]
async fn full_router_takes_routes_up_to_its_quota() {
    let (cloud, driver) = cloud(5).await;
    cloud.store().routers = Routers { max_routes: 3, ..Routers::default() };
    let add: Vec<_> =
        (1..=5).map(|n| wanted(&format!("10.244.{n}.0/24"), &format!("server-{n}"), "")).collect();
    let results = change(&driver, &[], &add).await;
    assert_eq!(results.iter().filter(|one| one.is_ok()).count(), 3);
    for error in results.iter().filter_map(|one| one.as_ref().err()) {
        assert_eq!(error.fault, Fault::Quota);
        assert!(error.message.contains("has 3 routes") && error.message.contains("router_route"), "{error}");
    }
}

#[tokio::test]
async fn foreign_routes_are_kept_without_atomic_changes() {
    let (cloud, driver) = cloud(1).await;
    let foreign = extra("192.0.2.0/24", "10.20.0.99");
    cloud.store().routers.aliases.retain(|alias| *alias != "extraroute-atomic");
    cloud.store().routers.routes = vec![foreign.clone(), extra("10.244.9.0/24", "10.20.0.11")];
    let results =
        change(&driver, &["10.244.9.0/24=10.20.0.11"], &[wanted("10.244.1.0/24", "server-1", "")]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(cloud.store().routers.routes, [foreign, extra("10.244.1.0/24", "10.20.0.11")]);
    let headers: Vec<String> = cloud
        .store()
        .headers
        .iter()
        .filter_map(|headers| Some(headers.get("if-match")?.to_str().expect("text").to_owned()))
        .collect();
    assert_eq!(headers, ["revision_number=4", "revision_number=6", "revision_number=7"]);
}

#[tokio::test]
async fn concurrent_port_change_delays_only_its_routes() {
    let (cloud, driver) = cloud(2).await;
    let ours = |n: usize| wanted(&format!("10.244.{n}.0/24"), &format!("server-{n}"), "");
    // After this call, the driver knows Neutron's extensions.
    change(&driver, &[], &[]).await;
    let ports = json!({ "ports": cloud.store().ports.clone() });
    let faster = json!({ "NeutronError": {
        "type": "RevisionNumberConstraintFailed", "message": "Constrained to 4, but current revision is 5", "detail": "",
    } });
    cloud.store().faults.extend([(200, ports), (412, faster)]);
    let results = change(&driver, &[], &[ours(1), ours(2)]).await;
    assert_eq!(results[0].as_ref().expect_err("busy").fault, Fault::Busy);
    assert!(results[1].is_ok());
    assert_eq!(cloud.store().routers.routes, [extra("10.244.2.0/24", "10.20.0.12")]);
    assert!(
        change(&driver, &[], &[ours(1)]).await.iter().all(Result::is_ok),
        "the next reconcile repeats the change"
    );
}

#[tokio::test]
async fn route_without_pair_is_a_blackhole_and_is_repaired() {
    let (cloud, driver) = cloud(2).await;
    let ours = [wanted("10.244.1.0/24", "server-1", "")];
    change(&driver, &[], &ours).await;
    may_send(&cloud, "near-1", &[]);
    let [route] = &listed(&driver).await[..] else { panic!("one route") };
    let hop = route.next_hop.clone().expect("a hop");
    assert_eq!((route.state(), hop.provider_id.as_str()), (RouteState::Blackhole, "openstack:///server-1"));

    // The runtime replaces a route in state BLACKHOLE by removing and adding the route in one call.
    cloud.store().requests.clear();
    let done = change(&driver, &[&route.vendor_id], &ours).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_eq!(
        writes(&cloud),
        ["ports/near-1", &format!("routers/{ROUTER}/add_extraroutes")],
        "the route stays in place"
    );
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.1.0/24"]);
    assert_eq!(listed(&driver).await[0].state(), RouteState::Active);
    // Without the extension, ports do not drop packets from other addresses.
    cloud.store().routers.aliases.retain(|alias| *alias != "allowed-address-pairs");
    may_send(&cloud, "near-1", &[]);
    let mut other = cloud.driver();
    other.routes = Routes::new(Some(ROUTER.to_owned())).into();
    assert_eq!(listed(&other).await[0].state(), RouteState::Active);
}

#[tokio::test]
async fn pair_is_removed_only_with_its_route() {
    let (cloud, driver) = cloud(1).await;
    let ours = [wanted("10.244.1.0/24", "server-1", "")];
    let id = "10.244.1.0/24=10.20.0.11";
    change(&driver, &[], &ours).await;
    let refused =
        |kind: &str| json!({ "NeutronError": { "type": kind, "message": "not now", "detail": "" } });
    let ports = || json!({ "ports": cloud.store().ports.clone() });
    let reported = [(200, ports()), (409, refused("RouterInUse"))];
    cloud.store().faults.extend(reported);
    change(&driver, &[id], &[]).await[0].as_ref().expect_err("refused");
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.1.0/24"]);
    assert_eq!(listed(&driver).await[0].state(), RouteState::Active);
    assert!(change(&driver, &[], &ours).await.iter().all(Result::is_ok));

    // Another client changes the port after the route was removed.
    let router = json!({ "router": { "routes": [], "revision_number": 8 } });
    let stale = (412, refused("RevisionNumberConstraintFailed"));
    let reported = [(200, ports()), (200, router), (200, ports()), stale];
    cloud.store().faults.extend(reported);
    assert_eq!(change(&driver, &[id], &[]).await, [Ok(None)]);
    assert_eq!(pairs(&cloud, "near-1"), [""; 0]);
}

#[tokio::test]
async fn pair_of_another_route_stays() {
    let (cloud, driver) = cloud(1).await;
    change(&driver, &[], &[wanted("10.244.0.0/16", "server-1", "")]).await;
    change(&driver, &[], &[wanted("10.244.1.0/24", "server-1", "")]).await;
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.0.0/16"]);
    assert_eq!(change(&driver, &["10.244.0.0/16=10.20.0.11"], &[]).await, [Ok(None)]);
    assert_eq!(pairs(&cloud, "near-1"), ["10.244.0.0/16"]);
    assert_eq!(listed(&driver).await[0].state(), RouteState::Active);
    change(&driver, &["10.244.1.0/24=10.20.0.11"], &[]).await;
    assert_eq!(cloud.store().routers.routes.len(), 0);
}
