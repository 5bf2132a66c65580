//! Tests of the look-ups of subnets, networks and floating IPs when load balancers and floating IPs are created.

use std::net::IpAddr;

use cloud_adapter::driver::{Adopter, Driver as _, Fault, Inheritance, VendorError};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, Owner};
use serde_json::{Value, json};

use crate::{
    OpenStackDriver,
    api::requests::{CreateLoadBalancer, Former, Neighbour, NewFloatingIp, Target},
    ownership::{Claim, Description},
    step::Step,
    testing::{FakeCloud, PROJECT, session},
};

const PORTS: &str = "GET /network/v2.0/ports";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

async fn cloud() -> (FakeCloud, OpenStackDriver) {
    let cloud = FakeCloud::start().await;
    {
        let mut store = cloud.store();
        let network = |id: &str, name: &str| json!({ "id": id, "name": name });
        let subnet = |id: &str, name: &str| json!({ "id": id, "name": name, "network_id": "net-2" });
        let networks = [network("net-1", "public"), network("net-2", "dmz"), network("net-3", "dmz")];
        store.lists.insert("/network/v2.0/networks".to_owned(), ("networks", networks.into()));
        let subnets = vec![subnet("sub-1", "edge"), subnet("sub-2", "far")];
        store.lists.insert("/network/v2.0/subnets".to_owned(), ("subnets", subnets));
        store.lists.insert("/load-balancer/".to_owned(), ("versions", Vec::new()));
        store.ports.push(json!({ "id": "p-1", "device_id": "i-1", "project_id": PROJECT, "status": "ACTIVE",
            "fixed_ips": [{ "ip_address": "10.9.0.1", "subnet_id": "storage" }, { "ip_address": "10.0.0.1", "subnet_id": "nodes" }] }));
    }
    let driver = cloud.driver();
    (cloud, driver)
}

#[tokio::test]
async fn subnet_of_a_node_is_looked_up_once() {
    let (cloud, driver) = cloud().await;
    let session = session(&driver);
    let make = async |provider_id: &str, at: &str| {
        let beside = Some(Neighbour { provider_id: provider_id.to_owned(), address: address(at) });
        let new = CreateLoadBalancer { beside, ..CreateLoadBalancer::default() };
        driver.execute(&session, &Step::CreateLoadBalancer(new.into())).await
    };
    for _ in 0..2 {
        make("openstack:///i-1", "10.0.0.1").await.expect("made");
        assert_eq!(cloud.store().bodies.last().expect("sent")["loadbalancer"]["vip_subnet_id"], "nodes");
    }
    assert_eq!(cloud.asked(PORTS).len(), 1);
    for (provider_id, at, why) in [
        ("openstack:///i-1", "10.0.0.2", "no port of the instance has the node's address"),
        ("aws:///i-1", "10.0.0.1", "the provider ID belongs to another cloud"),
    ] {
        let error = make(provider_id, at).await.expect_err(why);
        assert!(error.message.contains(why) && error.message.contains("--subnet-id"), "{error}");
        assert_eq!(
            (error.fault, error.fields.as_slice()),
            (Fault::Invalid, &["spec.subnets".to_owned()][..])
        );
    }
    assert_eq!(cloud.asked("POST /load-balancer").len(), 2);
}

async fn made(
    cloud: &FakeCloud,
    driver: &OpenStackDriver,
    pool: Option<&str>,
    subnet: Option<&str>,
) -> Result<Value, VendorError> {
    let new = NewFloatingIp {
        pool: pool.map(str::to_owned),
        floating_network_id: None,
        subnet_id: subnet.map(str::to_owned),
        description: String::new(),
    };
    let target = Some(Target { port_id: "vip".to_owned(), address: address("10.0.0.9") });
    driver.execute(&session(driver), &Step::CreateFloatingIp { new, target }).await?;
    Ok(cloud.store().bodies.last().expect("sent")["floatingip"].clone())
}

#[tokio::test]
async fn address_pool_is_a_network_or_subnet_by_name_or_id() {
    let (cloud, driver) = cloud().await;
    for (pool, subnet, network, of) in [
        ("public", None, "net-1", Value::Null),
        ("net-2", Some("sub-2"), "net-2", json!("sub-2")),
        ("edge", None, "net-2", json!("sub-1")),
        ("sub-2", Some("sub-2"), "net-2", json!("sub-2")),
    ] {
        let made = made(&cloud, &driver, Some(pool), subnet).await.expect(pool);
        assert_eq!((&made["floating_network_id"], &made["subnet_id"]), (&json!(network), &of), "{pool}");
    }
    for (pool, subnet, text) in [
        (Some("dmz"), None, "networks net-2 and net-3 are both named dmz: use an ID"),
        (Some("nowhere"), None, "0 external networks or subnets"),
        (Some("edge"), Some("sub-2"), "is subnet sub-1, but spec.parameters[floating-subnet-id] is sub-2"),
        (None, None, "3 external networks"),
    ] {
        let error = made(&cloud, &driver, pool, subnet).await.expect_err(text);
        assert!(error.message.contains(text), "{error}");
        assert_eq!(error.fields, ["spec.address_pool"]);
    }
    assert_eq!(cloud.asked("POST /network/v2.0/floatingips").len(), 4);
}

fn claim() -> Claim {
    let word = |word: &str| word.to_owned();
    let owner = Owner { namespace: word("shop"), name: word("web"), ..Owner::default() };
    let key = LoadBalancerKey { cluster_id: word("c-1"), owner_uid: word("u-1") };
    Claim {
        adopter: Adopter { key, owner, cluster_name: word("prod"), inheritance: Inheritance::ByName },
        pool: String::new(),
        releases: false,
    }
}

#[tokio::test]
async fn floating_ip_is_detached_only_if_the_new_one_is_free() {
    let (cloud, driver) = cloud().await;
    let ip = |id: &str, address: &str, port: Value| json!({ "id": id, "floating_ip_address": address, "port_id": port, "description": "" });
    let mut others = ip("another's", "203.0.113.10", Value::Null);
    let record = json!({ "cloudadapter.dev/cluster-id": "c-1", "cloudadapter.dev/owner-uid": "u-2", "cloudadapter.dev/service": "mail/web" });
    others["description"] = json!(record.to_string());
    let all =
        vec![ip("free", "203.0.113.7", Value::Null), ip("used", "203.0.113.8", json!("a server's")), others];
    cloud.store().lists.insert("/network/v2.0/floatingips".to_owned(), ("floatingips", all));
    let session = session(&driver);
    let detach = async |reserved: &str| {
        let for_reserved = Some((address(reserved), claim().into()));
        let step =
            Step::DetachFloatingIp { id: "kept".to_owned(), address: address("203.0.113.5"), for_reserved };
        driver.execute(&session, &step).await
    };
    for (reserved, text) in [
        ("203.0.113.9", "the project has no floating IP"),
        ("203.0.113.8", "is in use by port a server's"),
        ("203.0.113.10", "belongs to another Service of this cluster"),
    ] {
        let error = detach(reserved).await.expect_err(text);
        assert!(error.fault == Fault::Invalid && error.message.contains(text), "{error}");
        assert_eq!(error.fields, ["spec.requested_addresses"]);
    }
    assert_eq!(cloud.asked("PUT").len(), 0);
    detach("203.0.113.7").await.expect("the floating IP exists and is free");
    assert_eq!(cloud.store().bodies.last().expect("sent"), &json!({ "floatingip": { "port_id": null } }));
}

/// Neutron would detach the floating IP from another port without an error. The request therefore contains the revision that was read.
#[tokio::test]
async fn first_of_two_claims_of_an_address_wins() {
    let (cloud, driver) = cloud().await;
    let ip = json!({ "id": "free", "floating_ip_address": "203.0.113.7", "port_id": null, "description": "", "revision_number": 4 });
    cloud.store().lists.insert("/network/v2.0/floatingips".to_owned(), ("floatingips", vec![ip]));
    let target = Some(Target { port_id: "vip".to_owned(), address: address("10.0.0.9") });
    let step = Step::AttachReserved { address: address("203.0.113.7"), target, claim: claim().into() };
    driver.execute(&session(&driver), &step).await.expect("attached");
    let store = cloud.store();
    let sent = &store.bodies.last().expect("sent")["floatingip"];
    assert_eq!(sent["port_id"], "vip");
    let whose =
        sent["description"].as_str().and_then(Description::read).expect("the same write records the owner");
    assert_eq!(whose.key(), claim().adopter.key);
    assert_eq!(store.headers.last().expect("sent")["if-match"], "revision_number=4");
    assert!(store.requests.iter().any(|one| one.contains("fields=revision_number")), "{:?}", store.requests);
}

#[tokio::test]
async fn floating_ip_stays_if_the_pool_is_the_same() {
    let (cloud, driver) = cloud().await;
    for (id, cidr) in [("sub-1", "203.0.113.0/24"), ("sub-2", "198.51.100.0/24")] {
        let mut store = cloud.store();
        let subnets = &mut store.lists.get_mut("/network/v2.0/subnets").expect("there").1;
        subnets.iter_mut().find(|one| one["id"] == id).expect("there")["cidr"] = json!(cidr);
    }
    let session = session(&driver);
    for (pool, network, stays) in [
        ("public", "net-1", true),
        ("net-2", "net-2", true),
        ("edge", "net-2", true),
        ("public", "net-2", false),
        ("far", "net-2", false),
        ("public", "", false),
    ] {
        let description = "record of the owner".to_owned();
        let pool_name = Some(pool.to_owned());
        let new = NewFloatingIp { pool: pool_name, floating_network_id: None, subnet_id: None, description };
        let (id, address) = ("kept".to_owned(), address("203.0.113.5"));
        let network_id = network.to_owned();
        let former = Some(Former { id, address, network_id, description: "record of the former".to_owned() });
        driver.execute(&session, &Step::ReserveFloatingIp { new, former }).await.expect("done");
        let store = cloud.store();
        let sent = &store.bodies.last().expect("sent")["floatingip"];
        let call = store.requests.last().expect("sent");
        assert_eq!(sent["description"], if stays { "record of the former" } else { "record of the owner" });
        assert_eq!(call.starts_with("PUT /network/v2.0/floatingips/kept"), stays, "{pool} {network}");
        assert_eq!(sent["floating_network_id"].is_null(), stays, "{pool} {network}");
        assert!(sent["port_id"].is_null(), "unattached");
    }
}
