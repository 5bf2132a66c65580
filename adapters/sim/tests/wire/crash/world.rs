//! One run. It has a cloud and an adapter that is disturbed once, and it verifies the result.

use std::{collections::BTreeSet, time::Duration};

use adapter_sim::simcloud::Operation;
use serde_json::{Value, json};

use crate::{
    crash::story::{Chapter, Controllers, chapters},
    support::cloud::TestCloud,
    support::{PROGRAM, Program, TIMEOUT},
};

pub(crate) const HORIZON_MS: u64 = 300;
/// The number of load balancers that are created: `web`, `dns`, and `dns` again, because it becomes internal.
pub(crate) const EVER_MADE: usize = 3;
/// The delay of a late create. It is much longer than [`HORIZON_MS`].
const LATE_MS: u64 = 900;
const TICK: Duration = Duration::from_millis(2);
/// A delay that outlives the killed adapter: the cloud executes the write, but the adapter never receives the response.
const FOREVER_MS: u64 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The adapter gets SIGKILL before the response arrives.
    Kill,
    /// The cloud closes the connection instead of sending a response.
    LoseAnswer,
    /// The adapter gets SIGKILL, and the cloud executes the adapter's create of a load balancer only after the maximum lag of reads.
    KillLate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// Lag of reads behind writes.
    pub(crate) lag_ms: u64,
    /// Whether the cloud supports client tokens, and so ignores a repeated create.
    pub(crate) client_tokens: bool,
    pub(crate) create_horizon_ms: u64,
}

pub(crate) struct World {
    cloud: TestCloud,
    adapter: Program,
    conditions: Conditions,
    controllers: Controllers,
}

impl World {
    pub(crate) async fn start(conditions: Conditions) -> Self {
        let instant = json!({ "create_ms": 0, "update_ms": 0, "delete_ms": 0 });
        let settings = json!({ "provisioning": instant, "consistency_ms": conditions.lag_ms });
        let cloud = TestCloud::start(settings).await;
        cloud.machines(3).await;
        let adapter = adapter(&cloud.url, conditions).await;
        Self { cloud, adapter, conditions, controllers: Controllers::default() }
    }

    /// Plays the story (the sequence of desired states) with a fault at the write of this number. Returns false if there is no such write.
    pub(crate) async fn run(mut self, blow: Blow, write: u64) -> bool {
        let (operation, action) = match blow {
            Blow::Kill => ("*", json!({ "delay_ms": FOREVER_MS })),
            Blow::LoseAnswer => ("*", json!("close_after")),
            Blow::KillLate => ("CreateLoadBalancer", json!({ "late_ms": LATE_MS })),
        };
        let matches = json!({ "operation": operation, "access": "write" });
        self.cloud.fault(json!({ "match": matches, "when": { "nth": write }, "action": action })).await;
        for chapter in chapters() {
            let reported = tokio::time::timeout(TIMEOUT, self.tell(&chapter, blow, write));
            reported
                .await
                .unwrap_or_else(|_| panic!("{blow:?} after write {write}: the story does not converge"));
            self.check(&chapter, &format!("{blow:?} after write {write}")).await;
        }
        let struck = writes(&self.cloud, blow) >= write;
        assert_eq!(
            self.ever_made().await,
            EVER_MADE,
            "{blow:?} after write {write}: too many objects were created"
        );
        struck
    }

    async fn tell(&mut self, chapter: &Chapter, blow: Blow, write: u64) {
        let struck = writes(&self.cloud, blow) >= write;
        if blow != Blow::LoseAnswer && !struck {
            tokio::select! {
                () = self.controllers.converge(chapter, &self.adapter.channel) => return,
                () = written(&self.cloud, blow, write) => (),
            }
            self.adapter.kill().await;
            self.adapter = adapter(&self.cloud.url, self.conditions).await;
        }
        self.controllers.converge(chapter, &self.adapter.channel).await;
    }

    /// Asserts that the cloud contains exactly the load balancers and routes of the desired state at the end of this chapter.
    async fn check(&self, chapter: &Chapter, when: &str) {
        let state = self.cloud.state().await;
        let mut found: Vec<_> = list(&state, "load_balancers").iter().map(balancer).collect();
        let mut wanted: Vec<(String, BTreeSet<u64>, usize)> = chapter
            .balancers
            .iter()
            .map(|(uid, spec, backends)| {
                let ports = spec.listeners.iter().map(|listener| listener.port.into()).collect();
                ((*uid).to_owned(), ports, spec.listeners.len() * backends.len())
            })
            .collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{when}");
        let routes: BTreeSet<_> = list(&state, "routes").iter().map(route).collect();
        let wanted: BTreeSet<_> = chapter
            .routes
            .iter()
            .map(|(node, machine)| (format!("10.244.{node}.0/24"), format!("i-000{machine}")))
            .collect();
        assert_eq!(routes, wanted, "{when}");
        assert_eq!(list(&state, "routes").len(), chapter.routes.len(), "{when}: no duplicates");
    }

    /// Returns the number of load balancers created so far. The serial number in a new object's ID shows it.
    async fn ever_made(&self) -> usize {
        self.cloud.admin(reqwest::Method::DELETE, "faults", Value::Null).await;
        #[expect(
            clippy::disallowed_methods,
            reason = "tests act as the vendor's operator, which needs no budget"
        )]
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let probe = json!({ "name": "probe", "scheme": "internal" });
        let answer = client.post(format!("{}/v1/load-balancers", self.cloud.url)).json(&probe).send().await;
        let probe: Value = answer.expect("an answer").json().await.expect("JSON");
        let id = probe["id"].as_str().and_then(|id| id.strip_prefix("lb-")).expect("an ID");
        id.parse::<usize>().expect("a number") - 1
    }
}

async fn adapter(cloud: &str, conditions: Conditions) -> Program {
    let horizon = HORIZON_MS.to_string();
    let create_horizon = conditions.create_horizon_ms.to_string();
    let tokens = if conditions.client_tokens { "sent" } else { "unknown" };
    let cloud = ["--endpoint", cloud, "--client-tokens", tokens];
    let horizons = ["--consistency-horizon-ms", &horizon, "--create-horizon-ms", &create_horizon];
    Program::start(PROGRAM, [cloud, horizons].concat()).await
}

/// Returns the number of writes received by the cloud that the fault can affect.
fn writes(cloud: &TestCloud, blow: Blow) -> u64 {
    match blow {
        Blow::Kill | Blow::LoseAnswer => cloud.counts().writes,
        Blow::KillLate => cloud.count(Operation::CreateLoadBalancer),
    }
}

async fn written(cloud: &TestCloud, blow: Blow, write: u64) {
    while writes(cloud, blow) < write {
        tokio::time::sleep(TICK).await;
    }
}

fn list<'a>(state: &'a Value, what: &str) -> &'a [Value] {
    state[what].as_array().expect("a list")
}

/// Returns the owner, the ports, and the number of members in all pools.
fn balancer(tree: &Value) -> (String, BTreeSet<u64>, usize) {
    let owner = tree["tags"]["cloudadapter.dev/owner-uid"].as_str().unwrap_or_default().to_owned();
    let ports = list(tree, "listeners").iter().filter_map(|listener| listener["port"].as_u64()).collect();
    let members = list(tree, "pools").iter().map(|pool| list(pool, "members").len()).sum();
    (owner, ports, members)
}

fn route(entry: &Value) -> (String, String) {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("destination"), text("next_hop_instance"))
}
