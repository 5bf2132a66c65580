//! Tests with a table which nodes are tainted and about which nodes the controller asks the cloud.

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::{
    node::SHUTDOWN,
    testing::{BEGIN, NodeBuilder, instance, node},
};
use jiff::ToSpan as _;

use super::*;
use crate::{
    mirror::{NO_SCHEDULE, trim_instance, trim_node},
    ownership::EXCLUSION_LABEL,
    plan::Instance,
};

const AGE: Duration = Duration::from_mins(5);

fn known() -> NodeBuilder {
    node("a").provider_id("sim://north/i-1")
}

fn machine(state: InstanceState) -> Instance {
    trim_instance(instance("sim://north/i-1").state(state).build())
}

fn facts<'a>(instance: Option<&'a Instance>, conclusion: Option<&'a Conclusion>) -> Facts<'a> {
    Facts { cloud: View::Fresh, instance, conclusion, scheme: Some("sim") }
}

/// Whether the cloud is asked about a node that is a day old.
fn is_asked(node: NodeBuilder, facts: &Facts<'_>) -> bool {
    absence(&trim_node(&node.build()), facts, BEGIN + 24.hours(), AGE)
}

fn tainted(node: NodeBuilder, facts: &Facts<'_>) -> Option<Change> {
    taint(&trim_node(&node.build()), facts)
}

#[test]
fn ready_node_only_loses_the_taint() {
    let stopped = machine(InstanceState::Stopped);
    for facts in [facts(Some(&stopped), None), facts(None, None), facts(None, Some(&Conclusion::NotVisible))]
    {
        let ready = known().ready("True");
        let with_taint = ready.clone().tainted(SHUTDOWN, None, "NoSchedule");
        assert_eq!(tainted(with_taint, &facts), Some(Change::Remove));
        assert_eq!(tainted(ready.clone(), &facts), None);
        assert!(!is_asked(ready, &facts));
    }
}

#[test]
fn only_a_stopped_instance_taints_its_node() {
    use InstanceState::{
        Error, Running, Starting, Stopped, Stopping, Terminated, Terminating, Unknown, Unspecified,
    };
    let states = [
        (Running, false),
        (Starting, false),
        (Stopping, false),
        (Stopped, true),
        (Terminating, false),
        (Terminated, true),
        (Error, false),
        (Unknown, false),
        (Unspecified, false),
    ];
    for (state, taints) in states {
        let machine = machine(state);
        for ready in ["False", "Unknown"] {
            let change = tainted(known().ready(ready), &facts(Some(&machine), None));
            assert_eq!(change, taints.then_some(Change::Add), "{state:?}");
        }
        assert_eq!(
            tainted(known(), &facts(Some(&machine), None)),
            taints.then_some(Change::Add),
            "no condition at all"
        );
    }
}

// Behaviour: ND4
#[test]
fn an_old_taint_stays_until_the_node_is_ready() {
    let running = machine(InstanceState::Running);
    let off = known().ready("False").tainted(SHUTDOWN, None, "NoSchedule");
    for facts in [facts(Some(&running), None), facts(None, None)] {
        assert_eq!(tainted(off.clone(), &facts), None);
    }
}

#[test]
fn old_cache_taints_no_node_and_a_live_answer_does() {
    let stopped = machine(InstanceState::Stopped);
    let old = Facts { cloud: View::Old, ..facts(Some(&stopped), None) };
    assert_eq!(tainted(known().ready("False"), &old), None);
    assert!(is_asked(known().ready("False"), &old), "the cloud is asked instead");
    let conclusion = Conclusion::Exists { stopped: true };
    let answered = Facts { conclusion: Some(&conclusion), ..old };
    assert_eq!(tainted(known().ready("False"), &answered), Some(Change::Add));
    let conclusion = Conclusion::Exists { stopped: false };
    let answered = Facts { cloud: View::Fresh, conclusion: Some(&conclusion), ..old };
    assert_eq!(tainted(known().ready("False"), &answered), None, "a live answer is newer than any cache");
    let away = Facts { cloud: View::None, ..facts(Some(&stopped), None) };
    assert_eq!(tainted(known().ready("False"), &away), None);
}

#[test]
fn nodes_about_which_the_cloud_is_asked() {
    use InstanceState::{Running, Stopped, Terminated, Terminating};
    let (running, stopped) = (machine(Running), machine(Stopped));
    let (ending, ended) = (machine(Terminating), machine(Terminated));
    let down = || known().ready("False");
    let unknown = Facts { scheme: None, ..facts(None, None) };
    let cases = [
        ("not visible", down(), facts(None, None), true),
        ("no condition Ready", known(), facts(None, None), true),
        ("an unknown status of Ready", known().ready("Perhaps"), facts(None, None), true),
        ("shown", down(), facts(Some(&running), None), false),
        ("switched off", down(), facts(Some(&stopped), None), false),
        ("ends", down(), facts(Some(&ending), None), true),
        ("has ended", down(), facts(Some(&ended), None), true),
        ("without provider ID", node("a").ready("False"), facts(None, None), false),
        (
            "a provider ID of another cloud",
            node("a").provider_id("aws:///z/i-1").ready("False"),
            facts(None, None),
            false,
        ),
        (
            "a scheme with the same beginning",
            node("a").provider_id("simx://i-1").ready("False"),
            facts(None, None),
            false,
        ),
        ("no provider ID at all", node("a").provider_id("i-1").ready("False"), facts(None, None), false),
        ("the adapter has not reported its scheme", down(), unknown, false),
        ("the adapter is unavailable", down(), Facts { cloud: View::None, ..facts(None, None) }, false),
        ("the cache is old", down(), Facts { cloud: View::Old, ..facts(None, None) }, true),
        ("being deleted", down().deleted(), facts(None, None), false),
    ];
    for (name, node, facts, asked) in cases {
        assert_eq!(is_asked(node, &facts), asked, "{name}");
    }
}

#[test]
fn signs_of_life() {
    use InstanceState::{Running, Stopped, Terminating};
    let (running, stopped, ending) = (machine(Running), machine(Stopped), machine(Terminating));
    let down = || known().ready("False");
    let seen = |cloud, instance| Facts { cloud, ..facts(Some(instance), None) };
    let away = Facts { cloud: View::None, scheme: None, ..facts(None, None) };
    let cases = [
        ("not visible", down(), facts(None, None), true),
        ("the adapter is unavailable", down(), away, true),
        ("ends", down(), seen(View::Fresh, &ending), true),
        ("an old cache shows it", down(), seen(View::Old, &stopped), true),
        ("listed", down(), seen(View::Fresh, &running), false),
        ("switched off, and listed", down(), seen(View::Fresh, &stopped), false),
        ("ready", known().ready("True"), facts(None, None), false),
        ("being deleted", down().deleted(), facts(None, None), false),
    ];
    for (name, node, facts, lifeless) in cases {
        assert_eq!(is_lifeless(&trim_node(&node.build()), &facts), lifeless, "{name}");
    }
}

#[test]
fn an_uninitialised_node_must_have_an_age() {
    let new = trim_node(&known().uninitialised().build());
    let facts = facts(None, None);
    assert!(!absence(&new, &facts, BEGIN + 299.seconds(), AGE));
    assert!(absence(&new, &facts, BEGIN + 300.seconds(), AGE));
    assert!(!absence(&new, &facts, BEGIN - 1.hours(), AGE), "created in the future");
    let ageless = Node { created: None, ..new };
    assert!(!absence(&ageless, &facts, BEGIN + 24.hours(), AGE));
    let initialised = trim_node(&known().build());
    assert!(absence(&initialised, &facts, BEGIN, AGE), "the cloud answered that its instance exists");
}

// Behaviour: ND9
#[test]
fn only_the_provider_id_assigns_a_node_to_another_cloud() {
    for (name, node, expected) in [
        ("another scheme", node("a").provider_id("aws:///z/i-1"), true),
        ("another scheme, not ready", node("a").provider_id("simulated://north/i-1").ready("False"), true),
        ("this cloud's", known(), false),
        ("no provider ID", node("a"), false),
        ("an invalid provider ID", node("a").provider_id("i-1"), false),
        (
            "a node that is not initialised has another Event with the cause",
            node("a").provider_id("aws:///z/i-1").tainted(
                controller_core::node::UNINITIALISED,
                None,
                "NoSchedule",
            ),
            false,
        ),
    ] {
        assert_eq!(is_of_another(&trim_node(&node.build()), "sim"), expected, "{name}");
    }
}

// Behaviour: ND14
#[test]
fn excluded_node_is_neither_tainted_nor_asked_about() {
    let stopped = machine(InstanceState::Stopped);
    for (value, is_excluded) in [("", true), ("true", true), ("yes", true), ("false", false), ("0", false)] {
        let excluded = || known().ready("Unknown").label(EXCLUSION_LABEL, value);
        assert_eq!(is_asked(excluded(), &facts(None, None)), !is_excluded, "{value:?}");
        let added = tainted(excluded(), &facts(Some(&stopped), None));
        assert_eq!(added, (!is_excluded).then_some(Change::Add), "{value:?}");
        assert_eq!(
            is_lifeless(&trim_node(&excluded().build()), &facts(None, None)),
            !is_excluded,
            "{value:?}"
        );
    }
    let ready = known().ready("True").label(EXCLUSION_LABEL, "").tainted(SHUTDOWN, None, NO_SCHEDULE);
    assert_eq!(tainted(ready, &facts(None, None)), Some(Change::Remove), "an earlier taint ends as always");
}
