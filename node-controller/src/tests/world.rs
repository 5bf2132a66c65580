//! Builds the two fakes and the controller that connects them.

use std::time::Duration;

use controller_core::{
    brake::Limits,
    explain::Explain,
    health::Health,
    mirror::ObjectName,
    node::{DELETE_DESPITE_BRAKE, UNINITIALISED, has_taint},
    testing::{FakeCloud, FakeKube, NodeBuilder, instance, node, process},
};
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{NAMES, config::Settings, controller, lifecycle, ownership::LabelRules, plan::labels::PAIRS};

/// The defaults of the flags.
pub(super) const SETTINGS: Settings = Settings {
    workers: 10,
    address_writers: 10,
    compare_every: Duration::from_mins(5),
    lifecycle: lifecycle::Settings {
        period: Duration::from_secs(5),
        confirm_after: Duration::from_secs(30),
        minimum_age: Duration::from_mins(5),
        limits: Limits { share: 30, number: 50, window: Duration::from_mins(10) },
    },
};

/// The time after which the brake allows its maximum per window. At the start, the brake allows no deletion.
pub(super) const WARM: Duration = Duration::from_secs(601);

pub(super) struct World {
    pub(super) kube: FakeKube,
    pub(super) cloud: FakeCloud,
    pub(super) settings: Settings,
    pub(super) rules: LabelRules,
    pub(super) dry_run: bool,
    pub(super) health: Health,
    pub(super) explain: Explain,
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl World {
    pub(super) fn new() -> Self {
        let (kube, cloud) = (FakeKube::new(), FakeCloud::new());
        cloud.edit(|state| state.info.provider = "sim".to_owned());
        let (stop, health) = (CancellationToken::new(), Health::default());
        let explain = Explain::default();
        let (settings, dry_run, tasks) = (SETTINGS, false, JoinSet::new());
        let rules = LabelRules::default();
        Self { kube, cloud, settings, rules, dry_run, health, explain, stop, tasks }
    }

    pub(super) fn start(&mut self) {
        let process = process(NAMES, &self.kube, &self.cloud);
        let process = if self.dry_run { process.read_only() } else { process };
        self.stop = process.stop.clone();
        self.health = process.health.clone();
        self.explain = process.explain.clone();
        self.tasks.spawn(controller(process, self.settings, self.rules.clone()));
    }

    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        let ended = self.tasks.join_next().await.expect("the controller runs");
        ended.expect("no panic").expect("a requested stop");
    }

    pub(super) fn node(&self, name: &str) -> Node {
        self.kube.get(&ObjectName::cluster(name)).unwrap_or_default()
    }

    pub(super) fn is_initialised(&self, name: &str) -> bool {
        let node = self.node(name);
        node.metadata.name.is_some() && !has_taint(&node, UNINITIALISED)
    }

    pub(super) fn addresses(&self, name: &str) -> Vec<String> {
        let addresses = self.node(name).status.and_then(|status| status.addresses).unwrap_or_default();
        addresses.into_iter().map(|NodeAddress { type_, address }| format!("{type_}={address}")).collect()
    }

    pub(super) fn label(&self, name: &str, key: &str) -> Option<String> {
        self.node(name).metadata.labels?.get(key).cloned()
    }

    pub(super) fn provider_id(&self, name: &str) -> Option<String> {
        self.node(name).spec?.provider_id
    }

    /// Adds an instance that look-ups find and the watch does not show yet.
    pub(super) fn put_unlisted(&self, id: &str, name: &str) {
        self.cloud.edit(|state| {
            state.unlisted.push(id.to_owned());
            state.instances.insert(id.to_owned(), instance(id).named(name).at("10.0.0.1").build());
        });
    }

    pub(super) fn has_event(&self, reason: &str, words: &str) -> bool {
        self.kube.events().iter().any(|event| event.contains(&format!(" {reason} ")) && event.contains(words))
    }

    pub(super) fn set_ready(&self, name: &str, status: &str) {
        self.kube.change::<Node>(&ObjectName::cluster(name), |node| {
            let again: Node = controller_core::testing::node("x").ready(status).build();
            let conditions = again.status.and_then(|status| status.conditions);
            node.status.get_or_insert_default().conditions = conditions;
        });
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.node(name).metadata.name.is_some()
    }

    pub(super) fn n_deletions(&self) -> usize {
        self.kube.writes().iter().filter(|write| write.method == "DELETE").count()
    }

    pub(super) fn lose(&self, name: &str) {
        self.cloud.end(&id(name));
        self.set_ready(name, "Unknown");
    }

    pub(super) fn let_go(&self, name: &str, uid: &str) {
        self.kube.change::<Node>(&ObjectName::cluster(name), |node| {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(DELETE_DESPITE_BRAKE.to_owned(), uid.to_owned());
        });
    }
}

/// Returns a node like `node`, but initialised and with an instance.
pub(super) fn known(name: &str) -> NodeBuilder {
    let values = ["small", "north-1", "north"];
    let labels = PAIRS.iter().zip(values).flat_map(|(pair, value)| pair.map(|key| (key, value)));
    labels.fold(node(name).provider_id(&id(name)), |node, (key, value)| node.label(key, value))
}

pub(super) fn id(name: &str) -> String {
    format!("sim://north/{name}")
}

/// Returns a world with this number of nodes `n0`, `n1`, ... with instances, and a controller that has run for a while.
pub(super) async fn running(n_nodes: usize) -> World {
    let mut world = World::new();
    for n in 0..n_nodes {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name));
        world.kube.put::<Node>(known(&name).ready("True"));
    }
    world.start();
    sleep(WARM).await;
    world
}

/// Waits long enough for all reactions to a change, but not for late retries.
pub(super) async fn settle() {
    sleep(Duration::from_secs(20)).await;
}
