//! Tests the plan of each case. Each plan is executed on a copy of the node and must leave the node in sync.

use insta::assert_snapshot;
use proptest::prelude::{Just, Strategy as _, prop, prop_oneof, proptest};

use super::*;

fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: None,
        provider_id: None,
        labels: Pairs::default(),
        taints: Vec::new(),
        addresses: Pairs::default(),
        provided_node_ip: None,
        claim: Claim::Claimed,
        life: Life::default(),
    }
}

fn instance(id: &str) -> Instance {
    Instance {
        provider_id: format!("sim://north/{id}"),
        name: "a".to_owned(),
        ends: false,
        stopped: false,
        former: labels::Former::default(),
        addresses: Pairs::default(),
        instance_type: "small".to_owned(),
        region: "north".to_owned(),
        zone: "north-1".to_owned(),
        extra_labels: Pairs::default(),
    }
}

impl Node {
    fn uninitialised(self) -> Self {
        self.tainted(UNINITIALISED)
    }

    fn tainted(mut self, key: &str) -> Self {
        let (value, effect) = (Some("true".to_owned()), "NoSchedule".to_owned());
        self.taints.push(Taint { key: key.to_owned(), value, effect, time_added: None });
        self
    }

    fn provider_id(mut self, id: &str) -> Self {
        self.provider_id = Some(id.to_owned());
        self
    }

    fn label(mut self, key: &str, value: &str) -> Self {
        self.labels = with(&self.labels, [(key, value)]);
        self
    }

    fn at(mut self, type_: &str, address: &str) -> Self {
        self.addresses = self.addresses.iter().chain([(type_, address)]).collect();
        self
    }

    fn provided(mut self, value: &str) -> Self {
        self.provided_node_ip = Some(value.to_owned());
        self
    }
}

impl Instance {
    fn at(mut self, type_: &str, address: &str) -> Self {
        self.addresses = self.addresses.iter().chain([(type_, address)]).collect();
        self
    }

    fn extra(mut self, key: &str, value: &str) -> Self {
        self.extra_labels = with(&self.extra_labels, [(key, value)]);
        self
    }
}

fn with<K: AsRef<str>, V: AsRef<str>>(labels: &Pairs, more: impl IntoIterator<Item = (K, V)>) -> Pairs {
    let mut all: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    all.extend(more.into_iter().map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned())));
    all.iter().collect()
}

fn packed(addresses: &[Address]) -> Pairs {
    addresses.iter().map(|address| (&address.type_, &address.address)).collect()
}

fn carried_out(node: &Node, plan: &Plan) -> Node {
    let mut after = node.clone();
    for action in plan.actions.clone() {
        match action {
            Action::LookUp => (),
            Action::SetAddresses(addresses) => after.addresses = packed(&addresses),
            Action::SetLabels(labels) => after.labels = with(&after.labels, &labels),
            Action::Initialise(Initialisation { provider_id, labels, withheld: _, taints }) => {
                after.provider_id = after.provider_id.or(provider_id);
                after.labels = with(&after.labels, &labels);
                after.taints = taints;
            }
        }
    }
    after
}

/// Plans, executes the plan on a copy of the node, and checks that a second plan is empty.
#[track_caller]
fn settled(node: &Node, instance: &Instance) -> Plan {
    let first = plan(node, &InstanceStatus::Seen(instance));
    let after = carried_out(node, &first);
    let second = plan(&after, &InstanceStatus::Seen(instance));
    assert!(second.actions.is_empty(), "the plan does not settle, the second plan is:\n{second}");
    first
}

#[test]
fn new_node_gets_addresses_first_and_then_the_rest_at_once() {
    let instance = instance("i-1").at("InternalIP", "10.0.0.1").at("ExternalIP", "192.0.2.1");
    assert_snapshot!(settled(&node("a").uninitialised(), &instance), @r"
    addresses  InternalIP=10.0.0.1 ExternalIP=192.0.2.1
    initialise provider ID sim://north/i-1, taints left []
      label    beta.kubernetes.io/instance-type=small
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=north-1
      label    node.kubernetes.io/instance-type=small
      label    topology.kubernetes.io/region=north
      label    topology.kubernetes.io/zone=north-1
    ");
}

// Behaviour: NI1, NI13
#[test]
fn other_taints_keep_their_order() {
    let mut node = node("a").tainted("x").uninitialised().at("InternalIP", "10.0.0.1").tainted("y");
    let (value, effect) = (None, "NoExecute".to_owned());
    node.taints.push(Taint { key: UNINITIALISED.to_owned(), value, effect, time_added: None });
    assert_snapshot!(settled(&node, &instance("i-1")), @r#"
    initialise provider ID sim://north/i-1, taints left ["x", "y"]
      label    beta.kubernetes.io/instance-type=small
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=north-1
      label    node.kubernetes.io/instance-type=small
      label    topology.kubernetes.io/region=north
      label    topology.kubernetes.io/zone=north-1
    "#);
}

// Behaviour: NI8
#[test]
fn provider_id_is_never_overwritten() {
    let node = node("a").uninitialised().at("InternalIP", "10.0.0.1").provider_id("sim://north/i-1");
    assert_snapshot!(settled(&node, &instance("i-1")), @r"
    initialise provider ID unchanged, taints left []
      label    beta.kubernetes.io/instance-type=small
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=north-1
      label    node.kubernetes.io/instance-type=small
      label    topology.kubernetes.io/region=north
      label    topology.kubernetes.io/zone=north-1
    ");
}

// Behaviour: NI9
#[test]
fn a_node_without_any_provider_id_waits() {
    let instance = Instance { provider_id: String::new(), ..instance("") };
    assert_snapshot!(plan(&node("a").uninitialised(), &InstanceStatus::Seen(&instance)), @"wait       InstanceWithoutProviderID; retried when something changes");
}

// Behaviour: NI11
#[test]
fn labels_of_the_cloud_win_and_others_stay() {
    let instance = Instance { zone: String::new(), ..instance("i-1") };
    let node = node("a")
        .uninitialised()
        .at("InternalIP", "10.0.0.1")
        .provider_id("sim://north/i-1")
        .label("node.kubernetes.io/instance-type", "large")
        .label("topology.kubernetes.io/zone", "mine")
        .label("topology.kubernetes.io/region", "north");
    assert_snapshot!(settled(&node, &instance), @r"
    initialise provider ID unchanged, taints left []
      label    beta.kubernetes.io/instance-type=small
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=mine
      label    node.kubernetes.io/instance-type=small
    ");
}

// Behaviour: NI12
#[test]
fn extra_labels_that_are_withheld_are_logged() {
    let instance = instance("i-1")
        .extra("example.com/rack", "r1")
        .extra("example.com/kept", "cloud")
        .extra("example.com/same", "both")
        .extra("node.kubernetes.io/role", "admin")
        .extra("k8s.io/x", "y");
    let node = node("a")
        .uninitialised()
        .at("InternalIP", "10.0.0.1")
        .provider_id("sim://north/i-1")
        .label("example.com/kept", "user")
        .label("example.com/same", "both");
    let plan = settled(&node, &Instance { instance_type: String::new(), ..instance });
    assert_snapshot!(plan, @r#"
    initialise provider ID unchanged, taints left []
      label    example.com/rack=r1
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=north-1
      label    topology.kubernetes.io/region=north
      label    topology.kubernetes.io/zone=north-1
      withheld example.com/kept=cloud, the node already has the value "user"
      withheld k8s.io/x=y, only Kubernetes may use this domain
      withheld node.kubernetes.io/role=admin, only Kubernetes may use this domain
    "#);
}

#[test]
fn provided_node_ip_selects_among_the_clouds_addresses() {
    let instance = instance("i-1").at("InternalIP", "10.0.0.1").at("InternalIP", "10.0.0.2");
    let node =
        node("a").uninitialised().provider_id("sim://north/i-1").at("Hostname", "a").provided("10.0.0.2");
    let plan = settled(&node, &instance);
    assert_snapshot!(plan.actions[0], @"addresses  InternalIP=10.0.0.2 Hostname=a");
}

// Behaviour: NP3
#[test]
fn unknown_provided_node_ip_keeps_the_node_waiting() {
    let node = node("a").uninitialised().provided("10.0.0.9");
    for instance in [instance("i-1"), instance("i-1").at("InternalIP", "10.0.0.1")] {
        let plan = plan(&node, &InstanceStatus::Seen(&instance));
        assert!(plan.actions.is_empty());
        assert!(matches!(plan.refusal, Some(Refusal::ProvidedNodeIp { .. })), "{plan}");
        assert_eq!(plan.again, Again::OnChange);
    }
}

// Behaviour: NP6
#[test]
fn node_cannot_confirm_its_own_address() {
    let node = node("a").provider_id("sim://north/i-1").at("Hostname", "10.0.0.9").provided("10.0.0.9");
    let instance = instance("i-1").at("InternalIP", "10.0.0.1");
    for node in [node.clone().uninitialised(), node.clone()] {
        let plan = plan(&node, &InstanceStatus::Seen(&instance));
        assert!(matches!(plan.refusal, Some(Refusal::ProvidedNodeIp { .. })), "{plan}");
        assert!(!plan.actions.iter().any(|it| matches!(it, Action::SetAddresses(_) | Action::Initialise(_))));
    }
    // An address that the cloud lists may also be the host name.
    let plan =
        settled(&node.uninitialised(), &instance.at("InternalIP", "10.0.0.9").at("ExternalIP", "192.0.2.1"));
    assert_snapshot!(plan.actions[0], @"addresses  InternalIP=10.0.0.9 Hostname=10.0.0.9 ExternalIP=192.0.2.1");
}

// Behaviour: NA5
#[test]
fn duplicate_address_is_written_once() {
    let twice = instance("i-1")
        .at("InternalIP", "10.0.0.1")
        .at("ExternalIP", "10.0.0.1")
        .at("InternalIP", "10.0.0.1");
    let plan = settled(&node("a").uninitialised(), &twice);
    assert_snapshot!(plan.actions[0], @"addresses  InternalIP=10.0.0.1 ExternalIP=10.0.0.1");
}

// Behaviour: NA7
#[test]
fn cloud_without_addresses_clears_none() {
    let new = node("a").uninitialised().at("InternalIP", "10.0.0.1");
    let plan = settled(&new, &instance("i-1"));
    assert!(matches!(plan.actions.as_slice(), [Action::Initialise(_)]), "{plan}");
    let known = node("a").at("InternalIP", "10.0.0.1");
    assert!(
        !settled(&known, &instance("i-1"))
            .actions
            .iter()
            .any(|action| matches!(action, Action::SetAddresses(_)))
    );
}

// Behaviour: NA6
#[test]
fn host_name_stays_unless_the_cloud_lists_one() {
    let node = node("a").at("Hostname", "a.local").at("InternalIP", "10.0.0.9");
    let unnamed = instance("i-1").at("InternalIP", "10.0.0.1");
    assert_snapshot!(settled(&node, &unnamed).actions[0], @"addresses  InternalIP=10.0.0.1 Hostname=a.local");
    let named = unnamed.at("Hostname", "a.cloud");
    assert_snapshot!(settled(&node, &named).actions[0], @"addresses  InternalIP=10.0.0.1 Hostname=a.cloud");
}

// Behaviour: NA5
#[test]
fn addresses_are_compared_in_their_order() {
    let dual = |first: &str, second: &str| instance("i-1").at("InternalIP", first).at("InternalIP", second);
    let mut node = node("a").provider_id("sim://north/i-1");
    node = node.at("InternalIP", "10.0.0.1").at("InternalIP", "fd00::1");
    node.labels = labels::of_a_known_node(&Pairs::default(), &instance("i-1")).iter().collect();
    assert!(settled(&node, &dual("10.0.0.1", "fd00::1")).actions.is_empty());
    assert_snapshot!(settled(&node, &dual("fd00::1", "10.0.0.1")), @"addresses  InternalIP=fd00::1 InternalIP=10.0.0.1");
}

// Behaviour: NA9
#[test]
fn a_node_that_was_never_tainted_gets_no_labels_by_its_name() {
    let hybrid = node("a").at("InternalIP", "10.0.0.9").label("topology.kubernetes.io/zone", "rack-7");
    let instance = instance("i-1").at("InternalIP", "10.0.0.1").extra("example.com/rack", "r1");
    assert_snapshot!(settled(&hybrid, &instance), @r"
    addresses  InternalIP=10.0.0.1
    relabel
      label    failure-domain.beta.kubernetes.io/zone=rack-7
    ");
    let plan = settled(&hybrid.provider_id("sim://north/i-1"), &instance).to_string();
    assert!(plan.contains("topology.kubernetes.io/zone=north-1") && plan.contains("rack=r1"), "{plan}");
}

// Behaviour: NA1
#[test]
fn changed_type_or_zone_is_written_under_both_names() {
    let mut node = node("a").provider_id("sim://north/i-1");
    node.labels = labels::of_a_known_node(&Pairs::default(), &instance("i-1")).iter().collect();
    let grown = Instance { instance_type: "large".to_owned(), ..instance("i-1") };
    assert_snapshot!(settled(&node, &grown), @r"
    relabel
      label    beta.kubernetes.io/instance-type=large
      label    node.kubernetes.io/instance-type=large
    ");
}

#[test]
fn missing_extra_labels_are_added_later() {
    let instance =
        instance("i-1").extra("example.com/rack", "r1").extra("k8s.io/x", "y").extra("team", "blue");
    let mut known = node("a").provider_id("sim://north/i-1").label("team", "red");
    known.labels = with(&known.labels, &labels::of_a_known_node(&Pairs::default(), &self::instance("i-1")));
    assert_snapshot!(settled(&known, &instance), @r"
    relabel
      label    example.com/rack=r1
    ");
}

// Behaviour: NI11
#[test]
fn invalid_label_value_does_not_block_the_node_and_is_logged() {
    let instance =
        Instance { instance_type: "two cores".to_owned(), zone: "z".repeat(64), ..instance("i-1") };
    let new =
        node("a").uninitialised().at("InternalIP", "10.0.0.1").label("topology.kubernetes.io/zone", "mine");
    assert_snapshot!(settled(&new, &instance), @r"
    initialise provider ID sim://north/i-1, taints left []
      label    failure-domain.beta.kubernetes.io/region=north
      label    failure-domain.beta.kubernetes.io/zone=mine
      label    topology.kubernetes.io/region=north
      withheld node.kubernetes.io/instance-type=two cores, not a valid Kubernetes label
      withheld topology.kubernetes.io/zone=zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz, not a valid Kubernetes label
    ");
    let known = node("a").provider_id("sim://north/i-1").label("node.kubernetes.io/instance-type", "small");
    let known = known.label("beta.kubernetes.io/instance-type", "small");
    assert!(!settled(&known, &instance).to_string().contains("instance-type"), "existing labels stay");
}

#[test]
fn extra_label_follows_the_cloud_from_a_former_value() {
    let mut instance = instance("i-1").extra("example.com/rack", "r3").extra("team", "blue");
    for value in ["r1", "r2"] {
        instance.former.note("example.com/rack", value);
    }
    for (has, follows) in [("r1", true), ("r2", true), ("mine", false), ("r3", false)] {
        let mut known =
            node("a").provider_id("sim://north/i-1").label("example.com/rack", has).label("team", "red");
        known.labels =
            with(&known.labels, &labels::of_a_known_node(&Pairs::default(), &self::instance("i-1")));
        let plan = settled(&known, &instance);
        assert_eq!(plan.to_string().contains("example.com/rack=r3"), follows, "{has}: {plan}");
        assert!(!plan.to_string().contains("team"), "{plan}");
    }
}

#[test]
fn older_label_names_follow_without_the_cloud() {
    let today = "topology.kubernetes.io/zone";
    let node = node("a").provider_id("sim://north/i-1").label(today, "by-hand");
    let silent = Instance {
        zone: String::new(),
        region: String::new(),
        instance_type: String::new(),
        ..instance("i-1")
    };
    assert_snapshot!(settled(&node, &silent), @r"
    relabel
      label    failure-domain.beta.kubernetes.io/zone=by-hand
    ");
    for status in [
        InstanceStatus::Away { link: "not reachable".to_owned() },
        InstanceStatus::NotVisible,
        InstanceStatus::Foreign,
    ] {
        let first = plan(&node, &status);
        assert_eq!(first.to_string(), "relabel\n  label    failure-domain.beta.kubernetes.io/zone=by-hand\n");
        assert!(plan(&carried_out(&node, &first), &status).actions.is_empty());
    }
}

// Behaviour: NA8, W8
#[test]
fn initialised_node_without_a_visible_instance_is_unchanged() {
    let statuses = [
        InstanceStatus::Unasked,
        InstanceStatus::Listing,
        InstanceStatus::NotVisible,
        InstanceStatus::Foreign,
    ];
    for status in statuses {
        let plan = plan(&node("a").provider_id("sim://north/i-1"), &status);
        assert_eq!(plan, done(Vec::new()), "{status:?}");
    }
}

#[test]
fn waiting_node_gets_a_reason_and_a_retry() {
    let error = "VENDOR_THROTTLED: slow down".to_owned();
    let again = Again::After(Duration::from_secs(7));
    let statuses = [
        InstanceStatus::Unasked,
        InstanceStatus::Listing,
        InstanceStatus::NotVisible,
        InstanceStatus::Foreign,
        InstanceStatus::Ambiguous {
            provider_ids: vec!["sim://north/i-1".to_owned(), "sim://north/i-2".to_owned()],
        },
        InstanceStatus::Failed { reason: Reason::VendorUnavailable, error, again },
        InstanceStatus::Away { link: "not reachable".to_owned() },
    ];
    let node = node("a").uninitialised();
    let line = |plan: Plan| match plan.to_string() {
        nothing if nothing.is_empty() => format!("wait, again {:?}\n", plan.again),
        line => line,
    };
    let shown: String = statuses.iter().map(|status| line(plan(&node, status))).collect();
    assert_snapshot!(shown, @r"
    look up
    wait, again OnChange
    wait       InstanceNotVisible; retried with backoff
    wait       InstanceForeign; retried when something changes
    wait       InstanceAmbiguous; retried when something changes
    wait       CloudProviderFailed; retried in 7s
    wait       CloudProviderUnavailable; retried in 300s
    ");
}

/// Generates addresses from few values, so that equal values are frequent.
fn any_address() -> impl proptest::strategy::Strategy<Value = Address> {
    let types = prop::sample::select(vec!["InternalIP", "ExternalIP", "Hostname"]);
    let texts = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "fd00::1", "192.0.2.1", "a"]);
    (types, texts).prop_map(|(type_, text)| Address { type_: type_.to_owned(), address: text.to_owned() })
}

fn any_labels() -> impl proptest::strategy::Strategy<Value = BTreeMap<String, String>> {
    let keys = prop::sample::select(vec![
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "example.com/rack",
        "example.kubernetes.io/x",
    ]);
    let values = prop::sample::select(vec!["small", "north-1", "other"]);
    prop::collection::btree_map(keys.prop_map(str::to_owned), values.prop_map(str::to_owned), 0..4)
}

fn any_node() -> impl proptest::strategy::Strategy<Value = Node> {
    let taints = prop::collection::vec(prop::sample::select(vec![UNINITIALISED, "x", "y"]), 0..4);
    let addresses = prop::collection::vec(any_address(), 0..4);
    let provided = prop_oneof![
        Just(None),
        prop::sample::select(vec!["10.0.0.1", "10.0.0.2,fd00::1", "bad"])
            .prop_map(|value| Some(value.to_owned())),
    ];
    let id = prop_oneof![Just(None), Just(Some("sim://north/i-1".to_owned()))];
    (taints, addresses, any_labels(), provided, id).prop_map(
        |(taints, addresses, labels, provided_node_ip, provider_id)| {
            let tainted = taints.into_iter().fold(node("a"), Node::tainted);
            let (addresses, labels) = (packed(&addresses), labels.iter().collect());
            Node { addresses, labels, provided_node_ip, provider_id, ..tainted }
        },
    )
}

fn any_instance() -> impl proptest::strategy::Strategy<Value = Instance> {
    let word = || prop::sample::select(vec!["", "small", "north-1", "other"]).prop_map(str::to_owned);
    let addresses = prop::collection::vec(any_address(), 0..4);
    (addresses, any_labels(), word(), word(), word()).prop_map(
        |(addresses, extra_labels, instance_type, zone, region)| Instance {
            addresses: packed(&addresses),
            extra_labels: extra_labels.iter().collect(),
            instance_type,
            zone,
            region,
            ..instance("i-1")
        },
    )
}

proptest! {
    #[test]
    fn every_plan_settles(node in any_node(), instance in any_instance()) {
        settled(&node, &instance);
    }

    #[test]
    fn the_order_of_taints_decides_nothing_but_their_own(node in any_node(), instance in any_instance()) {
        let turned = |node: &Node| Node { taints: node.taints.iter().rev().cloned().collect(), ..node.clone() };
        let other = turned(&node);
        let (straight, other) =
            [&node, &other].map(|it| carried_out(it, &plan(it, &InstanceStatus::Seen(&instance)))).into();
        assert_eq!(turned(&other), straight);
    }

    #[test]
    fn foreign_taints_labels_and_provider_ids_are_unchanged(node in any_node(), instance in any_instance()) {
        let plan = plan(&node, &InstanceStatus::Seen(&instance));
        let after = carried_out(&node, &plan);
        let foreign = |node: &Node| -> Vec<Taint> {
            node.taints.iter().filter(|taint| taint.key != UNINITIALISED).cloned().collect()
        };
        assert_eq!(foreign(&after), foreign(&node));
        assert!(node.provider_id.is_none() || after.provider_id == node.provider_id);
        let ours = labels::PAIRS.as_flattened();
        for (key, value) in node.labels.iter().filter(|(key, _)| !ours.contains(key)) {
            assert_eq!(after.labels.get(key), Some(value));
        }
        assert!(!after.addresses.is_empty() || node.addresses.is_empty());
    }

    // Behaviour: NI15, W6
    #[test]
    fn no_node_is_ready_for_use_without_the_addresses_that_the_cloud_lists(
        node in any_node(),
        instance in any_instance(),
    ) {
        let plan = plan(&node, &InstanceStatus::Seen(&instance));
        let is_last = |action: &Action| matches!(action, Action::Initialise(_));
        if let Some(at) = plan.actions.iter().position(is_last) {
            assert_eq!(at, plan.actions.len() - 1);
            let after = carried_out(&node, &plan);
            let own_name = |(type_, _): (&str, &str)| type_ == "Hostname";
            assert!(!instance.addresses.is_empty() || !after.addresses.iter().all(own_name));
        }
    }
}
