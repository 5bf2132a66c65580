//! These tests check the cost and the content of the listing. The answers have the format of Octavia 2.30 and Neutron.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::{Collection, Driver as _, Fault, LoadBalancerRecord, VendorError},
    kit::Part,
    vendor::Session,
};
use cloud_api_proto::v1alpha1::LoadBalancerState;
use serde_json::{Value, json};

use super::Detail;
use crate::{
    OpenStackDriver,
    step::Step,
    testing::{FakeCloud, PROJECT, session},
};

type Record = LoadBalancerRecord<Detail>;

const LBAAS: &str = "/load-balancer/v2/lbaas";
const FLOATING_IPS: &str = "/network/v2.0/floatingips";
const AT: &str = "2026-11-21T20:06:38";

fn id(one: &str) -> Value {
    json!([{ "id": one }])
}

/// An owned load balancer with one listener and two members.
#[expect(clippy::too_many_lines, reason = "literal answers of the services")]
fn balancer(n: usize) -> [(&'static str, Value); 5] {
    let tags = json!([
        "cloudadapter.dev/cluster-id=c-1",
        format!("cloudadapter.dev/owner-uid=u-{n}"),
        "cloudadapter.dev/hash=1-aa",
        "cloudadapter.dev/owner-namespace=shop",
        "cloudadapter.dev/owner-name=web",
        "cloudadapter.dev/owner-kind=Service",
        "cloudadapter.dev/floating-ip=expected",
    ]);
    let (lb, listener, pool) = (format!("lb-{n}"), format!("listener-{n}"), format!("pool-{n}"));
    let settled = json!({ "provisioning_status": "ACTIVE", "operating_status": "ONLINE", "admin_state_up": true,
        "project_id": PROJECT, "created_at": AT, "updated_at": AT, "tenant_id": PROJECT });
    let with = |mut one: Value| {
        let all: BTreeMap<String, Value> = serde_json::from_value(settled.clone()).expect("an object");
        one.as_object_mut().expect("an object").extend(all);
        one
    };
    let own = json!([format!("cloudadapter.dev/owner-uid=u-{n}")]);
    [
        (
            "loadbalancers",
            with(json!({
                "id": lb, "name": format!("prod-shop-web-{n}"), "vip_address": "10.20.0.97", "vip_port_id": format!("port-{n}"),
                "vip_subnet_id": "subnet-4", "vip_network_id": "net", "vip_sg_ids": [], "additional_vips": [],
                "listeners": id(&listener), "pools": id(&pool), "provider": "amphora", "flavor_id": null, "tags": tags,
                "availability_zone": null, "vip_vnic_type": "normal",
            })),
        ),
        (
            "listeners",
            with(json!({
                "id": listener, "name": "tcp-80", "protocol": "TCP", "protocol_port": 80, "connection_limit": -1,
                "default_tls_container_ref": null, "sni_container_refs": [], "default_pool_id": pool, "l7policies": [],
                "insert_headers": {}, "loadbalancers": id(&lb), "timeout_client_data": 50000, "timeout_member_connect": 5000,
                "timeout_member_data": 50000, "timeout_tcp_inspect": 0, "tags": own, "allowed_cidrs": null,
            })),
        ),
        (
            "pools",
            with(json!({
                "id": pool, "name": "tcp-80", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "session_persistence": null,
                "loadbalancers": id(&lb), "listeners": id(&listener), "healthmonitor_id": format!("monitor-{n}"),
                "members": [{ "id": "m-1" }, { "id": "m-2" }], "tags": own, "tls_enabled": false,
            })),
        ),
        (
            "healthmonitors",
            with(json!({
                "id": format!("monitor-{n}"), "name": "tcp-80", "type": "TCP", "delay": 10, "timeout": 5, "max_retries": 2,
                "max_retries_down": 3, "http_method": null, "url_path": null, "expected_codes": null, "pools": id(&pool),
                "tags": [], "http_version": null, "domain_name": null,
            })),
        ),
        (
            "floatingips",
            json!({
                "id": format!("fip-{n}"), "floating_ip_address": format!("203.0.113.{n}"), "fixed_ip_address": "10.20.0.97",
                "port_id": format!("port-{n}"), "status": "DOWN",
                "description": format!(r#"{{"cloudadapter.dev/cluster-id":"c-1","cloudadapter.dev/owner-uid":"u-{n}"}}"#),
            }),
        ),
    ]
}

fn member(address: &str) -> Value {
    json!({ "id": address, "name": "node", "address": address, "protocol_port": 30080, "weight": 1, "monitor_port": null,
        "backup": false, "subnet_id": null, "provisioning_status": "ACTIVE", "operating_status": "NO_MONITOR" })
}

async fn cloud(n: usize) -> FakeCloud {
    let cloud = FakeCloud::start().await;
    {
        let lists = &mut cloud.store().lists;
        let versions = ["v2.30", "v2.0", "v2.9"].map(|id| json!({ "id": id, "status": "SUPPORTED" }));
        lists.insert("/load-balancer/".to_owned(), ("versions", versions.into()));
        for name in ["loadbalancers", "listeners", "pools", "healthmonitors"] {
            lists.insert(format!("{LBAAS}/{name}"), (name, Vec::new()));
        }
        lists.insert(FLOATING_IPS.to_owned(), ("floatingips", Vec::new()));
        for n in 1..=n {
            for (name, item) in balancer(n) {
                let path =
                    if name == "floatingips" { FLOATING_IPS.to_owned() } else { format!("{LBAAS}/{name}") };
                lists.get_mut(&path).expect("there").1.push(item);
            }
            let members = vec![member("10.20.0.1"), member("10.20.0.2")];
            lists.insert(format!("{LBAAS}/pools/pool-{n}/members"), ("members", members));
        }
    }
    cloud
}

fn items<'a>(lists: &'a mut BTreeMap<String, (&'static str, Vec<Value>)>, path: &str) -> &'a mut Vec<Value> {
    &mut lists.get_mut(path).expect("there").1
}

async fn sweep(
    cloud: &FakeCloud,
    driver: &OpenStackDriver,
    session: &Session,
) -> Result<(Vec<Record>, usize), VendorError> {
    let before = cloud.store().requests.len();
    let mut cursor = None;
    loop {
        let page = Collection::<Record>::list_page(driver, session, cursor.as_ref(), None).await?;
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok((page.items, cloud.store().requests.len() - before)),
        }
        assert!(page.items.is_empty(), "no load balancer before the last page");
    }
}

#[tokio::test]
async fn listing_costs_its_pages_and_one_read_of_members() {
    let cloud = cloud(3).await;
    let driver = cloud.driver();
    let session = session(&driver);
    let (records, calls) = sweep(&cloud, &driver, &session).await.expect("listed");
    assert_eq!(
        (records.len(), calls),
        (3, 1 + 1 + 4 + 3 + 1),
        "log-in, versions, Octavia, members, floating IPs"
    );
    let (again, calls) = sweep(&cloud, &driver, &session).await.expect("listed");
    assert_eq!((again == records, calls), (true, 5));
    assert!(
        cloud
            .asked(&format!("GET {LBAAS}/pools?"))
            .iter()
            .all(|one| one.contains(&format!("project_id={PROJECT}")))
    );
    // Another client changes the members, within the resolution of one second.
    items(&mut cloud.store().lists, &format!("{LBAAS}/pools"))[1]["updated_at"] =
        json!("2026-11-21T20:07:00");
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 6);
    // This driver changes the members within the same second.
    let step = Step::AddMembers {
        pool: Part::Known("pool-3".to_owned()),
        name: "tcp-80".to_owned(),
        members: Vec::new(),
    };
    driver.execute(&session, &step).await.expect("written");
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 6);
}

#[tokio::test]
async fn waiting_costs_two_listings() {
    let cloud = cloud(3).await;
    let driver = cloud.driver();
    let session = session(&driver);
    let balancers = format!("{LBAAS}/loadbalancers");
    let status = |of: usize, status: &str| {
        items(&mut cloud.store().lists, &balancers)[of]["provisioning_status"] = json!(status);
    };
    status(0, "PENDING_UPDATE");
    let (records, _) = sweep(&cloud, &driver, &session).await.expect("listed");
    let (again, calls) = sweep(&cloud, &driver, &session).await.expect("listed");
    assert_eq!((again == records, calls), (true, 2), "nothing has changed");
    items(&mut cloud.store().lists, FLOATING_IPS).clear();
    let (bare, calls) = sweep(&cloud, &driver, &session).await.expect("listed");
    assert_eq!((bare == records, calls), (false, 2), "floating IPs are always listed");
    // Another client changes another load balancer.
    items(&mut cloud.store().lists, &balancers)[1]["updated_at"] = json!("2026-11-21T20:07:00");
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 5);
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 2);
    // This driver changes a load balancer.
    let step = Step::DeleteFloatingIp { id: "fip-1".to_owned(), address: [203, 0, 113, 1].into() };
    driver.execute(&session, &step).await.map(drop).unwrap_or_default();
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 5);
    // The change of the load balancer is complete.
    status(0, "ACTIVE");
    assert!(sweep(&cloud, &driver, &session).await.expect("listed").1 >= 5);
    assert_eq!(
        sweep(&cloud, &driver, &session).await.expect("listed").1,
        5,
        "the cache is not used \
    if no load balancer is pending"
    );
}

#[tokio::test]
async fn pages_of_each_collection_are_followed() {
    let cloud = cloud(3).await;
    cloud.store().page = 2;
    let driver = cloud.driver();
    let session = session(&driver);
    let (records, _) = sweep(&cloud, &driver, &session).await.expect("listed");
    assert_eq!(records.iter().map(|record| record.summary.backends).collect::<Vec<_>>(), [2, 2, 2]);
    assert!(
        records
            .iter()
            .all(|record| record.detail.pools[0].monitor.is_some() && record.summary.addresses.len() == 1)
    );
}

#[tokio::test]
async fn empty_project_costs_few_calls() {
    let cloud = cloud(0).await;
    let driver = cloud.driver();
    let session = session(&driver);
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed"), (Vec::new(), 4));
    assert_eq!(sweep(&cloud, &driver, &session).await.expect("listed").1, 2);
}

#[tokio::test]
async fn load_balancer_is_converted_to_the_contract() {
    let cloud = cloud(1).await;
    let driver = cloud.driver();
    let session = session(&driver);
    let (records, _) = sweep(&cloud, &driver, &session).await.expect("listed");
    let reported = &records[0].summary;
    assert_eq!(
        (reported.state(), reported.applied_hash.as_str(), reported.backends),
        (LoadBalancerState::Active, "1-aa", 2)
    );
    assert_eq!(reported.owner.as_ref().expect("an owner").namespace, "shop");
    let ids: Vec<(&str, &str)> = reported
        .vendor_ids
        .iter()
        .flat_map(|ids| &ids.ids)
        .map(|(kind, id)| (kind.as_str(), id.as_str()))
        .collect();
    assert_eq!(
        ids,
        [
            ("floatingip", "fip-1"),
            ("listener/tcp/80", "listener-1"),
            ("loadbalancer", "lb-1"),
            ("pool/tcp/80", "pool-1")
        ]
    );
    let created: std::time::SystemTime = reported.created_at.expect("set").try_into().expect("a time");
    assert_eq!(jiff::Timestamp::try_from(created).expect("a time").to_string(), "2026-11-21T20:06:38Z");
}

#[tokio::test]
async fn state_covers_all_parts() {
    for (path, status, wanted) in [
        ("loadbalancers", "PENDING_CREATE", LoadBalancerState::Pending),
        ("loadbalancers", "PENDING_UPDATE", LoadBalancerState::Pending),
        ("loadbalancers", "PENDING_DELETE", LoadBalancerState::Deleting),
        ("loadbalancers", "ERROR", LoadBalancerState::Error),
        ("loadbalancers", "BORED", LoadBalancerState::Unspecified),
        ("listeners", "ERROR", LoadBalancerState::Degraded),
        ("pools", "ERROR", LoadBalancerState::Degraded),
    ] {
        let cloud = cloud(1).await;
        items(&mut cloud.store().lists, &format!("{LBAAS}/{path}"))[0]["provisioning_status"] = json!(status);
        let driver = cloud.driver();
        let session = session(&driver);
        let (records, _) = sweep(&cloud, &driver, &session).await.expect("listed");
        assert_eq!(records[0].summary.state(), wanted, "{path} {status}");
    }
}

#[tokio::test]
async fn leftovers_are_listed_unless_kept_or_attached() {
    for (name, change, left) in [
        ("left", json!({ "port_id": null }), 1),
        ("taken", json!({ "port_id": "a server's" }), 0),
        (
            "kept",
            json!({ "port_id": null, "description":
            r#"{"cloudadapter.dev/cluster-id":"c-1","cloudadapter.dev/owner-uid":"u-1","cloudadapter.dev/keep":"true"}"# }),
            0,
        ),
        ("another's", json!({ "port_id": null, "description": "mine" }), 0),
    ] {
        let cloud = cloud(1).await;
        {
            let lists = &mut cloud.store().lists;
            items(lists, &format!("{LBAAS}/loadbalancers")).clear();
            let change: BTreeMap<String, Value> = serde_json::from_value(change).expect("an object");
            items(lists, FLOATING_IPS)[0].as_object_mut().expect("an object").extend(change);
        }
        let driver = cloud.driver();
        let session = session(&driver);
        let (records, _) = sweep(&cloud, &driver, &session).await.expect("listed");
        assert_eq!(records.len(), left, "{name}");
        for record in records {
            assert_eq!(record.summary.state(), LoadBalancerState::Absent);
            assert_eq!(record.summary.key.expect("a key").owner_uid, "u-1");
        }
    }
}

#[tokio::test]
async fn old_octavia_is_refused_with_its_version() {
    let cloud = cloud(1).await;
    items(&mut cloud.store().lists, "/load-balancer/").remove(0);
    let driver = cloud.driver();
    let session = session(&driver);
    let error = sweep(&cloud, &driver, &session).await.expect_err("Octavia is too old");
    assert_eq!(error.fault, Fault::Unsupported);
    assert!(error.message.contains("2.9") && error.message.contains("2.12"), "{error}");
}
