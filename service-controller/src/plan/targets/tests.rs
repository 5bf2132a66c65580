//! Tests the rules for targets as tables, and deltas from which a set is rebuilt.

use proptest::prelude::*;

use super::*;

// Behaviour: SN1
#[test]
fn exclude_label_is_parsed_like_go_bool() {
    let included = [None, Some("0"), Some("f"), Some("F"), Some("false"), Some("FALSE"), Some("False")];
    let excluded = ["1", "t", "T", "TRUE", "true", "True", "", "no", "fAlse", " false"];
    for value in included {
        let node = Node { exclude: value.map(ToOwned::to_owned), ..Node::testing("a") };
        assert!(node.is_target(), "{value:?}");
    }
    for value in excluded {
        let node = Node { exclude: Some(value.to_owned()), ..Node::testing("a") };
        assert!(!node.is_target(), "{value:?}");
    }
}

// Behaviour: SN2, W22
#[test]
fn leaving_node_is_not_a_target() {
    assert!(!Node { deleting: true, ..Node::testing("a") }.is_target());
    assert!(!Node { leaving: true, ..Node::testing("a") }.is_target());
}

// Behaviour: SN5
#[test]
fn nodes_without_address_are_withheld_and_counted() {
    let nodes = [
        Node::testing("a"),
        Node { provider_id: None, ..Node::testing("no-id") },
        Node { provider_id: Some(String::new()), ..Node::testing("empty-id") },
        Node { addresses: Vec::new(), ..Node::testing("no-address") },
        Node { provider_id: Some("sim://r1/a".to_owned()), ..Node::testing("same-machine") },
        Node { deleting: true, provider_id: None, ..Node::testing("leaving") },
    ];
    insta::assert_snapshot!(Targets::of(&nodes, None), @"[a], 4 withheld");
}

#[test]
fn first_address_per_family_is_used() {
    let addresses = ["10.0.0.2", "2001:db8::2", "10.0.0.3", "2001:db8::3"];
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    let targets = Targets::of([&Node { addresses, ..Node::testing("a") }], None);
    let backend = targets.full().backends.remove(0);
    assert_eq!(backend.addresses, ["10.0.0.2", "2001:db8::2"]);
}

#[test]
fn only_selected_nodes_are_targets() {
    let zoned = |name, zone: &str| Node {
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..Node::testing(name)
    };
    let nodes = [
        zoned("a", "one"),
        zoned("b", "two"),
        Node::testing("c"),
        Node { provider_id: None, ..zoned("d", "one") },
    ];
    let selected = |text| Targets::of(&nodes, Some(&Selector::read(text).unwrap())).to_string();
    assert_eq!(selected("zone=one"), "[a], 1 withheld");
    assert_eq!(selected("zone!=one"), "[b c], 0 withheld");
    assert_eq!(selected("zone=three"), "[], 0 withheld");
    let same = Targets::of(&nodes, Some(&Selector::read("zone=three").unwrap()));
    assert_eq!(same.id, Targets::of([], None).id, "only the content determines the ID");
}

#[test]
fn order_of_nodes_does_not_matter() {
    let (a, b) = (Node::testing("a"), Node::testing("b"));
    assert_eq!(Targets::of([&a, &b], None), Targets::of([&b, &a], None));
}

#[test]
fn set_id_changes_with_vendor_visible_fields() {
    let before = Targets::of([&Node::testing("a")], None);
    let moved = Node { zone: Some("z2".to_owned()), ..Node::testing("a") };
    let readdressed = Node { addresses: vec!["10.0.0.9".parse().unwrap()], ..Node::testing("a") };
    for after in [Targets::of([&moved], None), Targets::of([&readdressed], None), Targets::of([], None)] {
        assert_ne!(before.id, after.id);
    }
}

proptest! {
    // Behaviour: SN6
    #[test]
    fn a_delta_rebuilds_the_set(before in any_nodes(), after in any_nodes()) {
        let (before, after) = (Targets::of(&before, None), Targets::of(&after, None));
        let delta = after.since(&before);

        let mut rebuilt = before.backends;
        for id in &delta.remove {
            prop_assert!(rebuilt.remove(id).is_some(), "the delta removes a missing node: {id}");
        }
        for backend in delta.add {
            rebuilt.insert(backend.provider_id.clone(), backend);
        }
        prop_assert_eq!(rebuilt, after.backends);
    }
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    let one = (0..8_u8, any::<bool>(), 0..3_u8).prop_map(|(name, leaving, last)| Node {
        leaving,
        addresses: vec![IpAddr::from([10, 0, 0, last])],
        ..Node::testing(&format!("n{name}"))
    });
    prop::collection::vec(one, 0..8)
}
