//! Tests of security groups, from the listing to the writes. They run on fake services that store what is written.

use cloud_adapter::{
    driver::{Collection, Driver as _, LoadBalancerRecord},
    vendor::Session,
};
use serde_json::Value;

use super::*;
use crate::{
    OpenStackDriver,
    load_balancers::{Detail, settings::LoadBalancerOptions},
    ownership::{group_description, group_name, rule_description},
    testing::{
        FakeCloud, PROJECT,
        security_groups::{GROUPS, MADE_AT},
        session,
    },
};

const LBAAS: &str = "/load-balancer/v2/lbaas";

/// Fake OpenStack services with three servers. The load balancers come from benches.
struct Cloud {
    cloud: FakeCloud,
    driver: OpenStackDriver,
    session: Session,
}

impl Cloud {
    async fn with(benches: &[&Bench]) -> Self {
        let cloud = FakeCloud::start().await;
        let options = LoadBalancerOptions { manage_security_groups: true, ..Bench::new().options };
        let driver = cloud.driver_with(options);
        let session = session(&driver);
        {
            let mut store = cloud.store();
            let port = |id: &str, machine: &str, address: &str, groups: Value| {
                json!({ "id": id, "device_id": machine, "project_id": PROJECT, "fixed_ips": [{ "ip_address": address }],
                    "security_groups": groups, "port_security_enabled": true, "revision_number": 7 })
            };
            store.ports = vec![
                port("p-1", "i-1", "10.0.0.1", json!(["default"])),
                port("p-1-storage", "i-1", "10.9.0.1", json!(["default"])),
                port("p-2", "i-2", "10.0.0.2", json!(["default", "mine"])),
                port("p-3", "i-3", "10.0.0.3", json!(["default", "of-another"])),
                port("p-4", "i-4", "10.0.0.4", json!([])),
            ];
            store.ports[4]["port_security_enabled"] = json!(false);
            let rule = json!({ "id": "of-another-rule", "direction": "ingress", "protocol": "tcp", "port_range_min": 30080,
                "port_range_max": 30080, "remote_ip_prefix": "10.0.0.0/24", "description": rule_description("lb-9", "u-9") });
            let another = json!({ "id": "of-another", "name": group_name("c-2"), "description": group_description("c-2"),
                "security_group_rules": [rule] });
            store.lists.insert(GROUPS.to_owned(), ("security_groups", vec![another]));
            let subnet = json!({ "id": "subnet-4", "cidr": "10.0.0.0/24" });
            store.lists.insert("/network/v2.0/subnets".to_owned(), ("subnets", vec![subnet]));
            store.lists.insert("/network/v2.0/floatingips".to_owned(), ("floatingips", Vec::new()));
            store.lists.insert("/load-balancer/".to_owned(), ("versions", vec![json!({ "id": "v2.30" })]));
        }
        let this = Self { cloud, driver, session };
        this.show(benches);
        this
    }

    fn show(&self, benches: &[&Bench]) {
        let mut store = self.cloud.store();
        let all =
            |of: fn(&Bench) -> &Vec<Value>| benches.iter().flat_map(|bench| of(bench)).cloned().collect();
        store
            .lists
            .insert(format!("{LBAAS}/loadbalancers"), ("loadbalancers", all(|one| &one.cloud.balancers)));
        store.lists.insert(format!("{LBAAS}/listeners"), ("listeners", all(|one| &one.cloud.listeners)));
        let mut pools = all(|one| &one.cloud.pools);
        for pool in &mut pools {
            let id = pool["id"].as_str().expect("text").to_owned();
            let members = benches.iter().find_map(|bench| bench.cloud.members.get(&id));
            let mut members = members.cloned().unwrap_or_default();
            for member in &mut members {
                member["id"] = json!(format!("{}-{}", member["address"], member["protocol_port"]));
            }
            pool["members"] = members.iter().map(|one| json!({ "id": one["id"] })).collect();
            store.lists.insert(format!("{LBAAS}/pools/{id}/members"), ("members", members));
        }
        store.lists.insert(format!("{LBAAS}/pools"), ("pools", pools));
        store
            .lists
            .insert(format!("{LBAAS}/healthmonitors"), ("healthmonitors", all(|one| &one.cloud.monitors)));
    }

    async fn sweep(&self) -> Vec<LoadBalancerRecord<Detail>> {
        self.driver.balancers.parts.forget();
        let mut cursor = None;
        loop {
            let page = Collection::<LoadBalancerRecord<Detail>>::list_page(
                &self.driver,
                &self.session,
                cursor.as_ref(),
                None,
            )
            .await;
            let page = page.expect("listed");
            match page.next {
                Some(next) => cursor = Some(next),
                None => return page.items,
            }
        }
    }

    async fn record(&self, of: &DesiredLoadBalancer) -> LoadBalancerRecord<Detail> {
        let records = self.sweep().await;
        records.into_iter().find(|one| one.summary.key.as_ref() == Some(&of.key)).expect("listed")
    }

    /// Grants access, and returns the calls that were made. No call is made if the access already exists.
    async fn opened(&self, desired: &DesiredLoadBalancer) -> Vec<String> {
        let record = self.record(desired).await;
        let steps = self.driver.plan(desired, &writer(), Some(&record)).expect("possible");
        let at = |of: fn(&Step) -> bool| steps.iter().position(of);
        let (open, close) =
            (at(|one| matches!(one, Step::OpenNodes(_))), at(|one| matches!(one, Step::CloseNodes(_))));
        let members = at(|one| matches!(one, Step::SetMembers { .. } | Step::AddMembers { .. }));
        assert!(
            open.is_none_or(|open| members.is_none_or(|members| open < members)),
            "access is granted before members are added"
        );
        assert!(
            close.is_none_or(|close| members.is_none_or(|members| close > members)),
            "access stays until members are removed"
        );
        let mut calls = self.done(open.map(|at| &steps[at])).await;
        calls.extend(self.done(close.map(|at| &steps[at])).await);
        calls
    }

    async fn closed(&self, desired: &DesiredLoadBalancer) -> Vec<String> {
        let record = self.record(desired).await;
        let steps = self.driver.plan_deletion(&record);
        let close = steps.iter().position(|step| matches!(step, Step::CloseNodes(_)));
        assert!(close.is_none_or(|at| at == 0), "access is revoked before the owner is unknown: {steps:?}");
        self.done(close.map(|at| &steps[at])).await
    }

    /// Changes the rules of the cluster's group, as a user does by hand.
    fn by_hand(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut store = self.cloud.store();
        let groups = &mut store.lists.get_mut(GROUPS).expect("there").1;
        let ours = groups.iter_mut().find(|one| one["description"] == group_description("c-1"));
        let ours = ours.expect("there");
        change(ours["security_group_rules"].as_array_mut().expect("rules"));
    }

    async fn done(&self, step: Option<&Step>) -> Vec<String> {
        let before = self.cloud.store().requests.len();
        if let Some(step) = step {
            self.driver.execute(&self.session, step).await.expect("done");
        }
        let calls = self.cloud.store().requests[before..].to_vec();
        calls
            .iter()
            .map(|one| one.split('?').next().unwrap_or_default().replace("/network/v2.0/", ""))
            .collect()
    }

    /// Returns the rules of the cluster's group. `None` if there is no group.
    fn rules(&self) -> Option<Vec<String>> {
        let store = self.cloud.store();
        let ours = group_description("c-1");
        let group = store.lists[GROUPS].1.iter().find(|one| one["description"] == ours)?;
        let rules = group["security_group_rules"].as_array().expect("rules").iter();
        let text = |one: &Value| {
            format!("{} {} {}", one["protocol"], one["port_range_min"], one["remote_ip_prefix"])
        };
        let mut rules: Vec<String> = rules.map(|one| text(one).replace('"', "")).collect();
        rules.sort();
        Some(rules)
    }

    fn groups(&self, port: &str) -> Value {
        self.cloud.store().ports.iter().find(|one| one["id"] == port).expect("there")["security_groups"]
            .clone()
    }
}

fn other() -> (Bench, DesiredLoadBalancer) {
    other_of(web([tcp(81)]))
}

fn other_of(mut shop: DesiredLoadBalancer) -> (Bench, DesiredLoadBalancer) {
    let mut bench = Bench::new();
    // A first load balancer is created and deleted, so that the IDs of the second load balancer differ from those in the other bench.
    bench.settled(&web([tcp(80)]));
    bench.deleted();
    shop.key.owner_uid = "u-2".to_owned();
    bench.settled(&shop);
    (bench, shop)
}

/// Returns the Service with a health check at kube-proxy's port.
fn probed(desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
    with(desired, |spec| {
        spec.health_check = Some(HealthCheck { port: Some(10256), ..HealthCheck::default() });
    })
}

fn grown(mut desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
    desired.backends = [backend(1), backend(2), backend(3), backend(4)].into();
    desired
}

#[tokio::test]
async fn load_balancers_share_a_group_until_the_last_is_deleted() {
    let (mut first, (second, shop)) = (Bench::new(), other());
    let desired = web([tcp(80), udp(53)]);
    first.settled(&desired);
    let cloud = Cloud::with(&[&first, &second]).await;
    let before = cloud.cloud.store().ports.clone();
    let calls = cloud.opened(&desired).await;
    let [list, make, given] =
        ["GET security-groups", "POST security-groups", "DELETE security-group-rules/group-2-IPv"];
    let put = |port: &str| format!("PUT ports/{port}");
    let wanted = [
        list.to_owned(),
        make.to_owned(),
        format!("{given}4"),
        format!("{given}6"),
        "DELETE security-group-rules/group-2-of-operator".to_owned(),
        "POST security-group-rules".to_owned(),
        "GET ports".to_owned(),
        put("p-1"),
        put("p-2"),
    ];
    assert_eq!(calls, wanted);
    let if_match = cloud.cloud.store().headers.last().expect("sent").get("if-match").cloned();
    assert_eq!(if_match.expect("the write contains the revision that was read"), "revision_number=7");
    let lets_in = ["tcp 30080 10.0.0.0/24", "udp 30053 10.0.0.0/24"];
    assert_eq!(cloud.rules().expect("a group"), lets_in);
    assert_eq!(cloud.groups("p-2"), json!(["default", "mine", "group-2"]));
    assert_eq!(cloud.opened(&desired).await, [""; 0], "no access is missing");
    let asked = cloud.cloud.store().requests.len();
    cloud.sweep().await;
    let asked = cloud.cloud.store().requests.len() - asked;
    assert_eq!(asked, 5 + 2, "Octavia's four collections, floating IPs, groups and ports");

    // Another Service causes only the writes of its rules, a new node causes one write, and a node without port security causes none.
    assert_eq!(cloud.opened(&shop).await, [list, "POST security-group-rules"]);
    assert_eq!(cloud.opened(&grown(desired.clone())).await, [list, "GET ports", "PUT ports/p-3"]);
    assert_eq!(cloud.opened(&grown(shop.clone())).await, [""; 0], "already done for the first Service");

    let calls = cloud.closed(&desired).await;
    assert_eq!((calls.len(), calls.first().map(String::as_str)), (3, Some(list)));
    assert_eq!(cloud.rules().expect("still"), ["tcp 30081 10.0.0.0/24"]);
    cloud.show(&[&second]);
    let calls = cloud.closed(&shop).await;
    let end = [
        list.to_owned(),
        "GET ports".to_owned(),
        put("p-1"),
        put("p-2"),
        put("p-3"),
        "DELETE security-groups/group-2".to_owned(),
    ];
    assert_eq!(calls, end, "the rules are deleted with the group");
    assert_eq!(cloud.rules(), None);
    for (port, was) in cloud.cloud.store().ports.iter().zip(&before) {
        assert_eq!(port["security_groups"], was["security_groups"], "of {}", port["id"]);
    }
    assert_eq!(cloud.cloud.store().lists[GROUPS].1.len(), 1, "the group of another cluster stays");
}

#[tokio::test]
async fn rules_follow_the_ports_and_foreign_rules_stay() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    cloud.opened(&desired).await;
    // The group has a user's rule, and two rules of a deleted load balancer, of which one is still needed.
    cloud.by_hand(|rules| {
        rules.push(json!({ "id": "hers", "direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22 }));
        rules[0]["description"] = json!(rule_description("gone", "u-9"));
        let mut left = rules[0].clone();
        (left["id"], left["port_range_min"], left["port_range_max"]) = (json!("left"), json!(30999), json!(30999));
        rules.push(left);
    });
    assert_eq!(cloud.opened(&desired).await, ["GET security-groups", "DELETE security-group-rules/left"]);
    let probed = probed(web([tcp(443)]));
    cloud.opened(&probed).await;
    let rules = cloud.rules().expect("a group");
    assert_eq!(rules, ["tcp 10256 10.0.0.0/24", "tcp 22 null", "tcp 30443 10.0.0.0/24"]);
    cloud.by_hand(|rules| rules.retain(|one| one["port_range_min"] != 30443));
    assert_eq!(cloud.opened(&probed).await.len(), 2, "a user deleted a rule");
    cloud.closed(&probed).await;
    assert_eq!(cloud.rules().expect("the group has a user's rule"), ["tcp 22 null"]);
    assert_eq!(cloud.closed(&probed).await, [""; 0]);
}

#[tokio::test]
async fn ovn_allows_all_clients_and_hidden_subnet_is_reported() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    cloud.cloud.store().lists.get_mut("/network/v2.0/subnets").expect("there").1.clear();
    let plan = async |desired: &DesiredLoadBalancer| {
        let record = cloud.record(desired).await;
        cloud.driver.plan(desired, &writer(), Some(&record))
    };
    let error = plan(&desired).await.expect_err("unknown");
    assert!(error.fault == Fault::Invalid && error.message.contains("subnet-4"), "{error}");
    let steps = plan(&grown(desired.clone())).await.expect("all other changes come first");
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["add or change 2 members of pool tcp-80"]
    );
    assert_eq!(cloud.rules(), None, "no group is created");
    // From here on, the subnet is visible.
    let subnet = json!({ "id": "subnet-4", "cidr": "10.0.0.0/24" });
    cloud.cloud.store().lists.get_mut("/network/v2.0/subnets").expect("there").1.push(subnet);
    cloud.opened(&desired).await;
    assert_eq!(cloud.rules().expect("a group"), ["tcp 30080 10.0.0.0/24"]);
    assert_eq!(plan(&desired).await, Ok(vec![]));
    let cloud = Cloud::with(&[&bench]).await;

    let provider = Some("ovn".to_owned());
    let options =
        LoadBalancerOptions { load_balancer_provider: provider, ..cloud.driver.balancers.options.clone() };
    let driver = cloud.cloud.driver_with(options);
    let ovn = Cloud { session: session(&driver), driver, cloud: cloud.cloud };
    ovn.opened(&desired).await;
    assert_eq!(ovn.rules().expect("a group"), ["tcp 30080 0.0.0.0/0"]);
}

/// The VIP is in the network of another tenant, and the load balancer reaches the members through their own subnet.
#[tokio::test]
async fn hidden_vip_subnet_is_skipped_with_member_subnets() {
    let mut bench = Bench::new();
    bench.options.member_subnet_id = Some("subnet-of-nodes".to_owned());
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    let options = LoadBalancerOptions {
        member_subnet_id: bench.options.member_subnet_id.clone(),
        ..cloud.driver.balancers.options.clone()
    };
    let driver = cloud.cloud.driver_with(options);
    let cloud = Cloud { session: session(&driver), driver, cloud: cloud.cloud };
    let subnet = json!({ "id": "subnet-of-nodes", "cidr": "10.0.0.0/16" });
    cloud.cloud.store().lists.insert("/network/v2.0/subnets".to_owned(), ("subnets", vec![subnet]));
    cloud.opened(&desired).await;
    assert_eq!(cloud.rules().expect("a group"), ["tcp 30080 10.0.0.0/16"]);
    assert_eq!(cloud.record(&desired).await.summary.applied_hash, desired.hash);
    assert_eq!(
        cloud.cloud.asked("GET /network/v2.0/subnets").len(),
        1,
        "it is known that the other subnet is not visible"
    );

    let more = grown(desired);
    assert_eq!(cloud.opened(&more).await, ["GET security-groups", "GET ports", "PUT ports/p-3"]);
    let record = cloud.record(&more).await;
    let steps = cloud.driver.plan(&more, &writer(), Some(&record)).expect("possible");
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["add or change 2 members of pool tcp-80"]
    );
}

#[tokio::test]
async fn visible_subnet_gets_access_and_hidden_one_is_reported() {
    let mut bench = Bench::new();
    let desired = with(web([tcp(80)]), |spec| spec.ip_families.push(contract::IpFamily::Ipv6.into()));
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    cloud.opened(&desired).await;
    assert_eq!(cloud.rules().expect("a group"), ["tcp 30080 10.0.0.0/24"]);
    assert_eq!(cloud.groups("p-1"), json!(["default", "group-2"]));
    let record = cloud.record(&desired).await;
    let error = cloud.driver.plan(&desired, &writer(), Some(&record)).expect_err("one subnet is not visible");
    assert!(error.message.contains("subnet-6"), "{error}");
}

#[tokio::test]
async fn renamed_group_is_recognised() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    cloud.opened(&desired).await;
    for group in &mut cloud.cloud.store().lists.get_mut(GROUPS).expect("there").1 {
        group["name"] = json!("workers");
    }
    let more = with(grown(desired), |spec| spec.listeners.push(tcp(443)));
    let calls = cloud.opened(&more).await;
    assert_eq!(calls, ["GET security-groups", "POST security-group-rules", "GET ports", "PUT ports/p-3"]);
    assert_eq!(cloud.opened(&more).await, [""; 0], "the plan converges");
    cloud.closed(&more).await;
    assert_eq!(cloud.rules(), None);
    assert_eq!(cloud.closed(&more).await, [""; 0]);
    assert_eq!(cloud.cloud.store().lists[GROUPS].1.len(), 1, "the group of another cluster stays");
}

#[tokio::test]
async fn shared_rule_stays_until_no_longer_needed() {
    let (mut first, (second, shop)) = (Bench::new(), other_of(probed(web([tcp(81)]))));
    let desired = probed(web([tcp(443)]));
    first.settled(&desired);
    let cloud = Cloud::with(&[&first]).await;
    cloud.opened(&desired).await;
    assert_eq!(cloud.rules().expect("a group"), ["tcp 10256 10.0.0.0/24", "tcp 30443 10.0.0.0/24"]);
    // The deletion was planned before the other load balancer existed.
    let early = cloud.driver.plan_deletion(&cloud.record(&desired).await);

    cloud.show(&[&first, &second]);
    assert_eq!(cloud.opened(&shop).await, ["GET security-groups", "POST security-group-rules"]);
    assert_eq!(
        cloud.opened(&web([tcp(443)])).await,
        [""; 0],
        "this load balancer needs no probes, \
    but the other one does"
    );
    let early = early.iter().find(|step| matches!(step, Step::CloseNodes(_)));
    cloud.done(early).await;
    let of_shop = ["tcp 10256 10.0.0.0/24", "tcp 30081 10.0.0.0/24"];
    assert_eq!(cloud.rules().expect("a group"), of_shop);
    assert_eq!(cloud.closed(&desired).await, [""; 0]);
    cloud.show(&[&second]);
    assert_eq!(cloud.opened(&shop).await, [""; 0], "the rule of the deleted load balancer grants access");
    cloud.closed(&shop).await;
    assert_eq!(cloud.rules(), None);
}

#[tokio::test]
async fn only_initial_unmarked_rules_are_removed() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    let any = |id: &str, at: &str| {
        json!({ "id": id, "direction": "egress", "ethertype": "IPv4", "protocol": null, "port_range_min": null,
            "port_range_max": null, "remote_ip_prefix": null, "remote_group_id": null, "description": "", "created_at": at })
    };
    // An interruption has left one group; a user has added rules to another group.
    let hers = any("hers", "2026-11-22T03:05:00Z");
    let of_ours = |id: &str, rules: Value| {
        json!({ "id": id, "name": group_name("c-1"), "description": group_description("c-1"), "created_at": MADE_AT,
            "security_group_rules": rules })
    };
    let group = of_ours("without-rules-of-the-cluster", json!([any("given", MADE_AT), hers]));
    cloud.cloud.store().lists.get_mut(GROUPS).expect("there").1.push(group);
    cloud.opened(&desired).await;
    assert_eq!(cloud.rules().expect("a group"), ["null null null", "tcp 30080 10.0.0.0/24"]);
    let many: Vec<Value> = (0..9).map(|n| any(&format!("hers-{n}"), "2026-11-22T03:05:00Z")).collect();
    let busy = of_ours("busy", json!(many));
    cloud.cloud.store().lists.get_mut(GROUPS).expect("there").1.push(busy);
    assert_eq!(cloud.opened(&desired).await, [""; 0], "the group with the adapter's rules is used");
    cloud.closed(&desired).await;
    assert_eq!(cloud.rules().expect("hers"), ["null null null"]);
}

#[tokio::test]
async fn objects_deleted_by_others_are_not_an_error() {
    let mut bench = Bench::new();
    let desired = web([tcp(80), udp(53)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    cloud.opened(&desired).await;
    let (client, session) = (&cloud.driver.client, &cloud.session);
    client.delete_rule(session, "gone").await.expect("an absent object counts as deleted");
    client.delete_security_group(session, "gone").await.expect("an absent object counts as deleted");
}

#[tokio::test]
async fn changes_of_groups_by_others_are_reverted() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    let applied = async || cloud.record(&desired).await.summary.applied_hash;
    assert_eq!(applied().await, "", "it has no access yet");
    cloud.opened(&desired).await;
    assert_eq!(applied().await, desired.hash);

    cloud.cloud.store().ports[0]["security_groups"] = json!(["default"]);
    assert_eq!(applied().await, "", "a user reset a port");
    assert_eq!(cloud.opened(&desired).await, ["GET security-groups", "GET ports", "PUT ports/p-1"]);
    assert_eq!(applied().await, desired.hash);
    cloud.by_hand(Vec::clear);
    assert_eq!(applied().await, "", "a user deleted a rule");
    assert_eq!(cloud.opened(&desired).await, ["GET security-groups", "POST security-group-rules"]);
    assert_eq!(applied().await, desired.hash);
    cloud.by_hand(|rules| {
        let mut more = rules[0].clone();
        (more["id"], more["port_range_min"], more["port_range_max"]) =
            (json!("more"), json!(30999), json!(30999));
        rules.push(more);
    });
    assert_eq!(applied().await, "", "a rule is not needed");
    assert_eq!(cloud.opened(&desired).await, ["GET security-groups", "DELETE security-group-rules/more"]);
    assert_eq!(applied().await, desired.hash);
    cloud.cloud.store().ports[1]["port_security_enabled"] = json!(false);
    assert_eq!(applied().await, desired.hash, "without port security groups have no effect");
}

#[tokio::test]
async fn rules_of_deleted_load_balancers_are_cleaned_up() {
    let (mut first, (second, shop)) = (Bench::new(), other());
    let desired = web([tcp(80)]);
    first.settled(&desired);
    let cloud = Cloud::with(&[&first, &second]).await;
    let before = cloud.cloud.store().ports.clone();
    cloud.opened(&desired).await;
    cloud.opened(&shop).await;
    // This load balancer comes first in the list, but cannot be changed because it is in state ERROR.
    let mut broken = Bench::new();
    broken.settled(&web([tcp(82)]));
    broken.cloud.balancers[0]["id"] = json!("a");
    broken.cloud.pools[0]["loadbalancers"] = json!([{ "id": "a" }]);
    broken.cloud.listeners.clear();
    for one in [&mut broken.cloud.balancers[0], &mut broken.cloud.pools[0]] {
        let tags = one["tags"].to_string().replace("u-1", "u-0");
        one["tags"] = serde_json::from_str(&tags).expect("tags");
    }
    cloud.show(&[&broken, &second]);
    cloud.sweep().await;
    broken.cloud.balancers[0]["provisioning_status"] = json!("ERROR");
    cloud.show(&[&broken, &second]);
    assert_eq!(
        cloud.record(&shop).await.summary.applied_hash,
        "",
        "this load balancer must delete the rules"
    );
    cloud.show(&[&second]);
    let calls = cloud.closed(&desired).await;
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(cloud.rules().expect("a group"), ["tcp 30081 10.0.0.0/24"]);
    cloud.show(&[]);
    assert_eq!(cloud.closed(&shop).await.last().expect("a call"), "DELETE security-groups/group-2");
    assert_eq!(cloud.cloud.store().ports[0]["security_groups"], before[0]["security_groups"]);
    let asked = cloud.cloud.store().requests.len();
    let left = cloud.sweep().await;
    let of_c1 = |one: &LoadBalancerRecord<Detail>| {
        one.summary.key.as_ref().is_some_and(|key| key.cluster_id == "c-1")
    };
    assert!(!left.iter().any(of_c1), "{left:?}");
    assert_eq!(
        cloud.cloud.store().requests.len() - asked,
        3,
        "listings of load balancers, groups and floating IPs"
    );
}

#[tokio::test]
async fn each_user_of_a_shared_load_balancer_has_its_rules() {
    let mut bench = Bench::new();
    let (desired, api) = (probed(web([tcp(80)])), probed(shared::sharer("api", "lb-1", [tcp(443)])));
    bench.settled(&desired);
    let cloud = Cloud::with(&[&bench]).await;
    let before = cloud.cloud.store().ports.clone();
    cloud.opened(&desired).await;
    bench.settled(&api);
    cloud.show(&[&bench]);
    assert_eq!(cloud.opened(&api).await, ["GET security-groups", "POST security-group-rules"]);
    assert_eq!(cloud.record(&api).await.summary.applied_hash, api.hash);
    assert_eq!(cloud.opened(&desired).await, [""; 0], "the owner has the access that it needs");
    let all = ["tcp 10256 10.0.0.0/24", "tcp 30080 10.0.0.0/24", "tcp 30443 10.0.0.0/24"];
    assert_eq!(cloud.rules().expect("a group"), all);

    // The owner leaves first. Rules that the other user needs stay, no matter for which user they were created.
    let gone = |record: &LoadBalancerRecord<Detail>| {
        let steps = cloud.driver.plan_deletion(record);
        steps.into_iter().find(|step| matches!(step, Step::CloseNodes(_)))
    };
    let close = gone(&cloud.record(&desired).await);
    cloud.done(close.as_ref()).await;
    assert_eq!(cloud.rules().expect("a group"), ["tcp 10256 10.0.0.0/24", "tcp 30443 10.0.0.0/24"]);
    bench.gone(&desired);
    cloud.show(&[&bench]);
    assert_eq!(cloud.record(&api).await.summary.applied_hash, api.hash, "no access is missing");
    let close = gone(&cloud.record(&api).await);
    cloud.done(close.as_ref()).await;
    assert_eq!(cloud.rules(), None, "the last user leaves nothing behind");
    for (port, was) in cloud.cloud.store().ports.iter().zip(&before) {
        assert_eq!(port["security_groups"], was["security_groups"], "of {}", port["id"]);
    }
}
