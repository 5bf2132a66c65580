//! Step 1: keeps the caches of Nodes and instances. Defines which fields they contain, and which change queues which node.
//!
//! Kubelets update their Nodes every few seconds. The trimmed copy changes only if the controller has something to decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::{self as wire, InstanceState};
use controller_core::{
    Link,
    adapter::ScopeGuard,
    mirror::{self, Change, Mirror, ObjectName, cloud::Instances},
    node::{self, TrimmedNode},
    queue::Queue,
    start::Process,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1 as core;
use kube::{Api, ResourceExt as _};

use crate::{
    absence::Signs,
    events::MOVED_MAX,
    ownership::{self, Apart, LabelRules},
    plan::{
        Deletion, Instance, InstanceStatus, Life, Node, Ready, Taint, View,
        labels::{self, Former},
    },
    scheme::Scheme,
};

/// Resolution of creation times.
const CREATION_UNIT: SignedDuration = SignedDuration::from_secs(1);
/// Maximum age of the cache of the cloud at which the cache counts as recent ([`View::Fresh`]).
const NEW_NODE_AGE: Duration = Duration::from_mins(5);
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";

/// The caches of Nodes and instances, and which nodes run on which instance.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) nodes: Mirror<ObjectName, Node>,
    pub(crate) instances: Mirror<String, Instance>,
    /// Whether the adapter works in the scope in which this controller works.
    scope: ScopeGuard,
    /// What the labels of nodes mean.
    pub(crate) rules: Arc<LabelRules>,
    pub(crate) scheme: Scheme,
    running_on: Arc<Mutex<RunningOn>>,
    signs: Signs,
    /// Earlier values of the extra labels, by provider ID, since this process started.
    former: Arc<Mutex<BTreeMap<String, Former>>>,
}

/// Pairs of provider ID and node name. Several nodes with one provider ID are a configuration mistake; all of them are reconciled.
type RunningOn = BTreeSet<(String, String)>;

/// Starts to watch Nodes and instances; each relevant change adds a node to the queue.
pub(crate) fn start(
    process: &mut Process,
    queue: &Queue<ObjectName>,
    signs: &Signs,
    rules: LabelRules,
) -> Mirrors {
    let mirrors = Mirrors {
        nodes: Mirror::new("nodes", process.clock),
        instances: Mirror::new("instances", process.clock),
        scope: process.adapter.scope().clone(),
        rules: Arc::new(rules),
        scheme: Scheme::default(),
        running_on: Arc::default(),
        signs: signs.clone(),
        former: Arc::default(),
    };
    mirror::register(process.metrics(), [mirrors.nodes.measured(), mirrors.instances.measured()]);
    process.health.needs(&mirrors.nodes);
    process.health.needs(&mirrors.instances);

    let (this, wakes) = (mirrors.clone(), queue.clone());
    let (api, listing): (Api<TrimmedNode>, _) = (Api::all(process.kube.clone()), process.listing);
    process.background("node cache", async move {
        let wake = |change: Change<ObjectName, Node>| this.node_changed(change, &wakes);
        let trim = |TrimmedNode(node)| Some(trim_node_by(&this.rules, &node));
        this.nodes.follow_kubernetes(api, listing, trim, wake).await;
    });
    let (this, wakes, adapter) = (mirrors.clone(), queue.clone(), process.adapter.clone());
    process.background("instance cache", async move {
        let wake = |change: Change<String, Instance>| this.instance_changed(&change, &wakes);
        this.instances.follow_cloud(&adapter, Instances, trim_instance, wake).await;
    });
    let (this, wakes) = (mirrors.clone(), queue.clone());
    process.background("adapter link", async move { this.link_changes(&wakes).await });
    mirrors
}

impl Mirrors {
    /// Returns why this controller does nothing to a node, or `None` if the node belongs to this release.
    pub(crate) fn apart(&self, node: &Node) -> Option<Apart> {
        ownership::apart(node, &self.rules, self.scheme.get().as_deref())
    }

    /// Finds the instance by provider ID if the node has one, or else by name among the instances that are not being deleted. A name is
    /// used only if the listing is younger than the node and shows this controller's scope. Any other listing may show another instance of
    /// that name, and `spec.providerID` cannot be changed.
    ///
    /// This controller has not yet written labels to an uninitialised node, so earlier label values of its instance are forgotten here.
    pub(crate) fn cached_instance(&self, node: &Node) -> Found {
        let found = self.find(node);
        match found {
            Found::One(instance) if node.is_uninitialised() => {
                self.former().remove(&instance.provider_id);
                // The second look-up returns the instance without the former values that were just removed.
                self.find(node)
            }
            Found::One(instance) => Found::One(self.with_former(instance)),
            Found::Nothing | Found::Many(_) => found,
        }
    }

    /// Like [`cached_instance`](Self::cached_instance), but keeps the earlier label values.
    pub(crate) fn find(&self, node: &Node) -> Found {
        if let Some(id) = &node.provider_id {
            return self.instance(id).map_or(Found::Nothing, Found::One);
        }
        if !self.is_younger_than(node) {
            return Found::Nothing;
        }
        let Ok(mut same_name) = self.scope.read_mirror(&self.instances, || self.named(&node.name)) else {
            return Found::Nothing;
        };
        match (same_name.pop(), same_name.is_empty()) {
            (None, _) => Found::Nothing,
            (Some(only), true) => Found::One(only),
            (Some(last), false) => {
                same_name.push(last);
                Found::Many(same_name.iter().map(|instance| instance.provider_id.clone()).collect())
            }
        }
    }

    /// Returns the instance of a provider ID, in either form of the ID (with or without region).
    pub(crate) fn instance(&self, id: &str) -> Option<Arc<Instance>> {
        self.instances.get(id).or_else(|| self.instances.get(&self.scope.other_form(id)?))
    }

    fn named(&self, name: &str) -> Vec<Arc<Instance>> {
        self.instances
            .read(|instances| instances.values().filter(|it| it.name == name && !it.ends).cloned().collect())
    }

    /// Returns why the controller cannot select an instance by the node's name. Returns `None` if the controller can do so, or if the node
    /// has a provider ID.
    pub(crate) fn elsewhere(&self, node: &Node) -> Option<InstanceStatus<'static>> {
        if node.provider_id.is_some() || self.scope.read_mirror(&self.instances, || ()).is_ok() {
            return None;
        }
        Some(match self.scope.moved(MOVED_MAX) {
            Some(why) => InstanceStatus::Elsewhere { why },
            None => InstanceStatus::Unplaced,
        })
    }

    /// Compares the adapter's clock with the API server's clock. If the adapter's clock is ahead, the cache seems younger by the
    /// difference.
    fn is_younger_than(&self, node: &Node) -> bool {
        match (node.created, self.instances.observed()) {
            (Some(created), Some(observed)) => observed.duration_since(created) >= CREATION_UNIT,
            (None, _) | (_, None) => false,
        }
    }

    /// Returns why the cache cannot be used, or `None` if the cache can be used.
    pub(crate) fn unavailable(&self) -> Option<InstanceStatus<'static>> {
        match self.instances.link() {
            Link::Up => None,
            Link::Starting => Some(InstanceStatus::Listing),
            link @ Link::Down { .. } => Some(InstanceStatus::Away { link: link.to_string() }),
        }
    }

    /// Returns the status of a node whose instance the cloud does not show.
    pub(crate) fn not_visible(&self) -> InstanceStatus<'static> {
        if self.instances.is_synced() && self.instances.read(|instances| instances.is_empty()) {
            InstanceStatus::NothingListed { place: self.scope.place() }
        } else {
            InstanceStatus::NotVisible
        }
    }

    pub(crate) fn view_of_the_cloud(&self) -> View {
        match self.instances.age() {
            _ if self.unavailable().is_some() || !self.instances.is_synced() => View::None,
            Some(age) if age <= NEW_NODE_AGE => View::Fresh,
            Some(_) | None => View::Old,
        }
    }

    fn with_former(&self, instance: Arc<Instance>) -> Arc<Instance> {
        let former = self.former();
        match former.get(&instance.provider_id) {
            Some(former) => Arc::new(Instance { former: former.clone(), ..Instance::clone(&instance) }),
            None => instance,
        }
    }

    fn former(&self) -> MutexGuard<'_, BTreeMap<String, Former>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_former(&self, change: &Change<String, Instance>) {
        let mut all = self.former();
        let (Some(old), Some(new)) = (&change.old, &change.new) else {
            all.remove(&change.key);
            return;
        };
        let differing = old
            .extra_labels
            .iter()
            .filter(|(key, value)| new.extra_labels.get(key).is_some_and(|now| now != *value));
        for (key, value) in differing {
            all.entry(change.key.clone()).or_default().note(key, value);
        }
    }

    /// Queues all initialised nodes for a comparison with the cache. The comparison makes no call, and changes nothing if no update was
    /// missed. Uninitialised nodes are not queued, because their reconcile may call the cloud, and they have their own retries.
    pub(crate) fn compare_all(&self, queue: &Queue<ObjectName>) {
        let known = self.nodes.items().into_iter().filter(|(_, node)| !node.is_uninitialised());
        for (name, _) in known {
            queue.add_with_all(name);
        }
    }

    /// Queues all nodes, for example since some are in shards that belonged to another replica.
    pub(crate) fn queue_all(&self, queue: &Queue<ObjectName>) {
        self.nodes.read(|nodes| nodes.keys().for_each(|name| queue.add_with_all(name.clone())));
    }

    fn node_changed(&self, change: Change<ObjectName, Node>, queue: &Queue<ObjectName>) {
        if let Some(node) = &change.new
            && node.life.ready == Ready::True
        {
            self.signs.of_node(&node.uid);
        }
        // Until a node is initialised, no replica has written labels to the node, so earlier label values do not count.
        for node in [&change.old, &change.new].into_iter().flatten().filter(|node| node.is_uninitialised()) {
            if let Found::One(instance) = self.find(node) {
                self.former().remove(&instance.provider_id);
            }
        }
        let id = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.provider_id.clone());
        let (old, new) = (id(&change.old), id(&change.new));
        if old != new {
            let mut running_on = self.running_on.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(old) = old {
                running_on.remove(&(old, change.key.name.clone()));
            }
            if let Some(new) = new {
                running_on.insert((new, change.key.name.clone()));
            }
        }
        queue.add(change.key);
    }

    /// Queues the node that runs on the instance, and the node of the same name, which may wait for this instance.
    fn instance_changed(&self, change: &Change<String, Instance>, queue: &Queue<ObjectName>) {
        self.note_former(change);
        // A node may have the ID in either form.
        for id in [Some(change.key.clone()), self.scope.other_form(&change.key)].into_iter().flatten() {
            if change.new.as_ref().is_some_and(|instance| !instance.ends) {
                self.signs.of_machine(&id);
            }
            self.running_on(&id).into_iter().for_each(|name| queue.add(name));
        }
        for instance in [&change.old, &change.new].into_iter().flatten() {
            let name = ObjectName::cluster(instance.name.clone());
            if self.nodes.get(&name).is_some_and(|node| node.provider_id.is_none()) {
                queue.add(name);
            }
        }
    }

    /// Returns the nodes that have this provider ID.
    fn running_on(&self, id: &str) -> Vec<ObjectName> {
        let running_on = self.running_on.lock().unwrap_or_else(PoisonError::into_inner);
        let from_here = running_on.range((id.to_owned(), String::new())..);
        from_here
            .take_while(|(its, _)| its == id)
            .map(|(_, name)| ObjectName::cluster(name.clone()))
            .collect()
    }

    /// Queues waiting nodes when the adapter disconnects, connects, or has listed the cloud, and when its scope is accepted. If
    /// other releases manage some of the nodes, a new scheme of the provider IDs decides again which nodes belong to this release.
    async fn link_changes(&self, queue: &Queue<ObjectName>) {
        let (mut links, mut acceptances) = (self.instances.links(), self.scope.acceptances());
        let mut schemes = self.scheme.changes();
        loop {
            tokio::select! {
                changed = links.changed() => match changed {
                    Ok(()) => links.mark_unchanged(),
                    Err(_closed) => return,
                },
                () = acceptances.next() => (),
                changed = schemes.changed() => match changed {
                    Ok(()) => {
                        if self.rules.shares_nodes() {
                            self.queue_all(queue);
                        }
                        continue;
                    }
                    Err(_closed) => return,
                },
            }
            let waiting: Vec<ObjectName> = self.nodes.read(|nodes| {
                let uninitialised = nodes.iter().filter(|(_, node)| node.is_uninitialised());
                uninitialised.map(|(name, _)| name.clone()).collect()
            });
            for name in waiting {
                queue.add(name);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum Found {
    One(Arc<Instance>),
    Nothing,
    /// Provider IDs of several instances with the same name.
    Many(Vec<String>),
}

/// Trims a node of a release that shares no nodes.
#[cfg(test)]
pub(crate) fn trim_node(node: &core::Node) -> Node {
    trim_node_by(&LabelRules::default(), node)
}

pub(crate) fn trim_node_by(rules: &LabelRules, node: &core::Node) -> Node {
    let uninitialised = node::has_taint(node, node::UNINITIALISED);
    let labels = node.labels().iter().filter(|(key, _)| uninitialised || labels::may_be_ours(key));
    let taints = if uninitialised { node::taints(node) } else { Default::default() };
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    Node {
        name: node.name_any(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        provider_id: provider_id.filter(|id| !id.is_empty()),
        labels: labels.collect(),
        taints: taints.iter().map(trim_taint).collect(),
        addresses: node::addresses(node)
            .iter()
            .map(|core::NodeAddress { type_, address }| (type_, address))
            .collect(),
        provided_node_ip: node.annotations().get(node::PROVIDED_NODE_IP).cloned(),
        claim: rules.claim(node.labels()),
        life: trim_life(rules, node),
    }
}

fn trim_life(rules: &LabelRules, node: &core::Node) -> Life {
    let is_excluded = rules.excludes(node.labels());
    let let_go = node.annotations().get(node::DELETE_DESPITE_BRAKE);
    Life {
        ready: if node::is_ready(node) { Ready::True } else { Ready::NotTrue },
        shutdown: node::has_taint_with(node, node::SHUTDOWN, NO_SCHEDULE),
        deleting: node.metadata.deletion_timestamp.is_some(),
        let_go: let_go.is_some() && let_go == node.metadata.uid.as_ref()
            || node::has_taint(node, node::TO_BE_DELETED),
        deletion: if is_excluded { Deletion::Excluded } else { Deletion::Allowed },
    }
}

fn trim_taint(taint: &core::Taint) -> Taint {
    // The time is serialised exactly as by the API server, because the patch tests equality with the server's copy.
    let time = taint.time_added.as_ref().and_then(|time| serde_json::to_value(time).ok());
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
        time_added: time.and_then(|time| time.as_str().map(str::to_owned)),
    }
}

pub(crate) fn trim_instance(instance: wire::Instance) -> Instance {
    let ends = matches!(instance.state(), InstanceState::Terminating | InstanceState::Terminated);
    let stopped = matches!(instance.state(), InstanceState::Stopped | InstanceState::Terminated);
    Instance {
        ends,
        stopped,
        former: Former::default(),
        provider_id: instance.provider_id,
        name: instance.name,
        addresses: instance.addresses.iter().filter_map(address).collect(),
        instance_type: instance.instance_type,
        region: instance.region,
        zone: instance.zone,
        extra_labels: instance.extra_labels.into_iter().collect(),
    }
}

/// Leaves out an address of a type that only a newer contract defines, since a Node cannot list such an address.
fn address(address: &wire::InstanceAddress) -> Option<(&'static str, &str)> {
    use wire::instance_address::{Type, Value};
    let type_ = match address.r#type() {
        Type::InternalIp => "InternalIP",
        Type::ExternalIp => "ExternalIP",
        Type::Hostname => node::HOSTNAME,
        Type::InternalDns => "InternalDNS",
        Type::ExternalDns => "ExternalDNS",
        Type::Unspecified => return None,
    };
    let (Value::Ip(text) | Value::Name(text)) = address.value.as_ref()?;
    (!text.is_empty()).then_some((type_, text.as_str()))
}

#[cfg(test)]
mod tests;
