//! An attacker in one namespace knows all IDs, names and addresses. The attacker sends random requests, while the cloud fails and processes
//! are restarted. After each step, the load balancers of other namespaces are unchanged.

use std::collections::BTreeMap;

use adapter_sim::simcloud::Access;
use anyhow::{Context, ensure};
use e2e::{Bed, WITHIN, eventually, service};
use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, from_value, json};
use test_support::chance::Chance;

const PREFIX: &str = "lb.cloudadapter.dev";
const EVIL: &str = "evil";
const NAMES: [&str; 4] = ["x-0", "x-1", "x-2", "x-3"];
/// The number of rounds. Each round has a fault or a restart, and `STEPS` requests of the attacker.
const ROUNDS: usize = 12;
const STEPS: usize = 5;
/// Minimum number of writes in the cloud, because a test with only refused requests would prove little.
const WRITES: u64 = 25;

/// Annotations that a request may set; all others are removed.
const KEYS: [&str; 13] = [
    "id",
    "adopt",
    "address",
    "name",
    "on-delete",
    "share-with",
    "tags",
    "subnet",
    "address-pool",
    "port.443.listener-protocol",
    "port.443.tls-cert-refs",
    "health-check.port",
    "internal",
];

/// Values that requests use sometimes.
const SOME: [(&str, &str); 9] = [
    ("on-delete", "keep-address"),
    ("share-with", "default"),
    ("tags", "team=ops"),
    ("tags", "cloudadapter.dev/adopt=evil"),
    ("subnet", "subnet-of-others"),
    ("address-pool", "pool-of-others"),
    ("health-check.port", "10250"),
    ("health-check.port", "22"),
    ("internal", "true"),
];

#[tokio::test]
async fn random_requests_of_an_attacker_do_not_affect_others() {
    let values = json!({ "adapter": { "cache": { "loadBalancers": { "maxAge": "2s" } } } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    let mut play = Play::begin(bed).await.unwrap();
    for _ in 0..ROUNDS {
        play.trouble().await.unwrap();
        for _ in 0..STEPS {
            play.step().await.unwrap();
            play.bed.quiet("service-controller").await.unwrap();
            play.check().await.unwrap();
        }
        play.bed.ready().await.unwrap();
    }
    let writes = play.end().await.unwrap();
    println!("{} requests, {writes} writes in the cloud", ROUNDS * STEPS);
}

struct Play {
    bed: Bed,
    services: Api<Service>,
    chance: Chance,
    /// The load balancers outside the attacker's namespace, which must not change.
    others: Vec<Value>,
    log: Vec<String>,
}

impl Play {
    /// Creates two Services of another namespace, and a load balancer without an owner.
    async fn begin(bed: Bed) -> anyhow::Result<Self> {
        let namespaces: Api<Namespace> = Api::all(bed.client());
        let evil: Namespace = from_value(json!({ "metadata": { "name": EVIL } }))?;
        namespaces.create(&PostParams::default(), &evil).await?;
        service("web").port(80).port(443).create(&bed.client()).await?;
        service("db")
            .port(5432)
            .annotation(&format!("{PREFIX}/internal"), "true")
            .create(&bed.client())
            .await?;
        for name in ["web", "db"] {
            bed.address(name).await?;
        }
        let by_hand = json!({ "name": "gateway", "scheme": "internet", "families": ["ipv4"], "tags": { "team": "ops" } });
        bed.cluster.cloud.by_hand(Method::POST, "/v1/load-balancers", Some(&by_hand)).await?;
        let settled = bed.until_cloud("the load balancers of others are ready", |state| {
            let all = of_others(&json!(state.load_balancers));
            ensure!(all.len() == 3 && all.iter().all(|one| one["status"] == "ACTIVE"), "{all:?}");
            Ok(all)
        });
        let others = settled.await?;
        let services = Api::namespaced(bed.client(), EVIL);
        bed.cluster.cloud.reset_counts().await?;
        Ok(Self { bed, services, chance: Chance::new(23), others, log: Vec::new() })
    }

    async fn trouble(&mut self) -> anyhow::Result<()> {
        let some = 1 + self.chance.below(3);
        let faults = [
            ("CreateLoadBalancer", json!("close_after")),
            ("CreateLoadBalancer", json!({ "respond_after": { "status": 504 } })),
            ("Create*", json!({ "respond": { "status": 503 } })),
            ("Update*", json!({ "respond_after": { "status": 500 } })),
            ("Delete*", json!("close_before")),
            ("CreateLoadBalancer", json!("error_state")),
            ("List*", json!({ "respond": { "status": 500 } })),
            ("ListLoadBalancers", json!("truncate_body")),
            ("*", json!({ "delay_ms": 300 })),
        ];
        if self.chance.one_in(3) {
            let name = self.chance.of(&["cloud-adapter", "service-controller"]).context("one of two")?;
            self.log.push(format!("{name} is restarted"));
            return self.bed.cluster.pods.get(name)?.restart().await;
        }
        let (operation, action) = self.chance.of(&faults).context("one of several")?;
        self.log.push(format!("the next {some} of {operation}: {action}"));
        let fault =
            json!({ "match": { "operation": operation }, "when": { "next": some }, "action": action });
        self.bed.cluster.cloud.add_fault(&from_value(fault)?).await.map(drop)
    }

    /// Sends one random request of the attacker, and checks that the load balancers of other namespaces are unchanged. A request that the
    /// API server itself refuses is only logged; it is not a failure.
    async fn step(&mut self) -> anyhow::Result<()> {
        let name = self.chance.of(&NAMES).context("one of four")?;
        let there = self.services.get_opt(name).await?;
        let wish = self.wish().await?;
        let asked = if there.is_none() {
            // The Service has its annotations from the beginning, because a Service that already has a load balancer cannot adopt another
            // one.
            let new = new_service(name, &wish);
            self.log.push(format!("{name} comes: {new}"));
            self.services.create(&PostParams::default(), &from_value(new)?).await.map(drop)
        } else if self.chance.one_in(3) {
            self.log.push(format!("{name} goes"));
            self.services.delete(name, &DeleteParams::default()).await.map(drop)
        } else {
            self.log.push(format!("{name}: {wish}"));
            let patch = Patch::Merge(wish);
            self.services.patch(name, &PatchParams::default(), &patch).await.map(drop)
        };
        if let Err(error) = asked {
            self.log.push(format!("{name} is refused by the API server: {error}"));
        }
        self.check().await
    }

    async fn wish(&mut self) -> anyhow::Result<Value> {
        let state = json!(self.bed.cluster.cloud.state().await?.load_balancers);
        let all: Vec<&Value> = state.as_array().into_iter().flatten().collect();
        let texts =
            |key: &str| all.iter().filter_map(|one| one[key].as_str().map(str::to_owned)).collect::<Vec<_>>();
        let (ids, mut names) = (texts("id"), texts("name"));
        names.extend(["kube_service_prod_default_web", "front"].map(str::to_owned));
        let vips: Vec<String> = all
            .iter()
            .flat_map(|one| one["vips"].as_array().into_iter().flatten())
            .filter_map(|vip| vip.as_str().map(str::to_owned))
            .collect();
        let chance = &mut self.chance;
        let mut said: BTreeMap<&str, String> = BTreeMap::new();
        match chance.below(4) {
            0 => said.extend([("adopt", "owned".to_owned())]),
            1 => said.extend([("adopt", "owned".to_owned()), ("id", chance.of(&ids).unwrap_or_default())]),
            2 => said.extend([("adopt", "shared".to_owned()), ("id", chance.of(&ids).unwrap_or_default())]),
            _ => (),
        }
        if chance.one_in(4) {
            said.extend(chance.of(&vips).map(|vip| ("address", vip)));
        }
        if chance.one_in(3) {
            said.extend(chance.of(&names).map(|name| ("name", name)));
        }
        said.extend(
            SOME.into_iter().filter(|_| chance.one_in(12)).map(|(key, value)| (key, value.to_owned())),
        );
        if chance.one_in(12) {
            said.insert("port.443.listener-protocol", "https".to_owned());
            said.insert("port.443.tls-cert-refs", "certificate-of-others".to_owned());
        }
        let mut ports: Vec<Value> = [80, 443, 5432]
            .into_iter()
            .filter(|_| chance.one_in(2))
            .map(|port| json!({ "name": format!("tcp-{port}"), "port": port }))
            .collect();
        if ports.is_empty() {
            ports.push(json!({ "name": "tcp-443", "port": 443 }));
        }
        let annotations: BTreeMap<String, Option<String>> =
            KEYS.iter().map(|key| (format!("{PREFIX}/{key}"), said.get(key).cloned())).collect();
        let address = chance.one_in(8).then(|| chance.of(&vips)).flatten();
        Ok(
            json!({ "metadata": { "annotations": annotations }, "spec": { "ports": ports, "loadBalancerIP": address } }),
        )
    }

    /// Checks that the load balancers outside the attacker's namespace are unchanged.
    async fn check(&self) -> anyhow::Result<()> {
        let now = of_others(&json!(self.bed.cluster.cloud.state().await?.load_balancers));
        let last = || self.log.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n");
        ensure!(now == self.others, "found:\n{now:#?}\nexpected:\n{:#?}\nafter\n{}", self.others, last());
        Ok(())
    }

    /// Ends the faults, deletes the attacker's Services, and checks that the Services of other namespaces are served. Returns the number of
    /// writes in the cloud.
    async fn end(self) -> anyhow::Result<u64> {
        self.bed.cluster.cloud.clear_faults().await?;
        for one in self.services.list(&ListParams::default()).await? {
            let name = one.metadata.name.unwrap_or_default();
            self.services.delete(&name, &DeleteParams::default()).await?;
        }
        eventually("nothing of the attacker is left", WITHIN * 4, || async {
            let left = self.services.list(&ListParams::default()).await?;
            ensure!(left.items.is_empty(), "{} Services are left", left.items.len());
            let all = self.bed.cluster.cloud.state().await?.load_balancers.len();
            ensure!(all == self.others.len(), "{all} load balancers");
            Ok(())
        })
        .await?;
        self.check().await?;
        let counts = self.bed.cluster.cloud.counts().await?;
        let writes = counts.by_operation.iter().filter(|(it, _)| it.access() == Access::Write);
        let writes: u64 = writes.map(|(_, n)| *n).sum();
        ensure!(writes >= WRITES, "{writes} writes are too few to prove anything");
        self.bed.join("b", None).await?;
        self.bed
            .until_cloud("the new node is a backend of web", |state| {
                let web = state.balancer("web").context("web has no load balancer")?;
                ensure!(web.pools.iter().all(|pool| pool.members.len() == 2), "{:?}", web.pools);
                Ok(writes)
            })
            .await
    }
}

fn of_others(all: &Value) -> Vec<Value> {
    let of_evil =
        |one: &&Value| one.pointer("/tags/cloudadapter.dev~1owner-namespace").is_some_and(|it| it == EVIL);
    all.as_array().into_iter().flatten().filter(|one| !of_evil(one)).cloned().collect()
}

fn new_service(name: &str, wish: &Value) -> Value {
    let said = wish.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let said: BTreeMap<&String, &Value> = said.filter(|(_, value)| !value.is_null()).collect();
    let spec = |field: &str| wish.pointer(&format!("/spec/{field}")).cloned();
    json!({
        "metadata": { "name": name, "annotations": said },
        "spec": {
            "type": "LoadBalancer", "selector": { "app": name }, "ports": spec("ports"), "loadBalancerIP": spec("loadBalancerIP"),
        },
    })
}
