//! What is made anew, and what is not.

use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerSpec, Owner};

use super::*;
use crate::driver::testing::{ANOTHER_SIZE, Create, USED, WriteOnly};

const HASH: &str = "1-aa";

fn key() -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: "web".to_owned() }
}

fn goal(size: &str, recreate: Recreate) -> Goal {
    let desired = DesiredLoadBalancer {
        key: key(),
        owner: Owner::default(),
        cluster_name: String::new(),
        spec: LoadBalancerSpec { size: size.to_owned(), ..LoadBalancerSpec::default() },
        backends: Arc::new([]),
        hash: HASH.to_owned(),
    };
    Goal::Present(Arc::new(desired), Terms { recreate, adoption: Adoption::Never, known: None })
}

/// One of ours, which is complete.
fn record(id: &str, name: &str, state: LoadBalancerState) -> LoadBalancerRecord<()> {
    let summary = LoadBalancer {
        vendor_id: id.to_owned(),
        name: name.to_owned(),
        key: Some(key()),
        state: state.into(),
        applied_hash: HASH.to_owned(),
        ..LoadBalancer::default()
    };
    LoadBalancerRecord { summary, detail: (), left: false }
}

fn decided(
    goal: &Goal,
    items: impl IntoIterator<Item = LoadBalancerRecord<()>>,
) -> Result<Next<(), Create>, AdapterError> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    decide(&WriteOnly, goal, &Fence::default(), &Observed { items: &items, fresh: true, former: None })
}

#[test]
fn one_that_others_use_is_not_made_anew() {
    use LoadBalancerState::{Active, Error};
    let immutable = goal(ANOTHER_SIZE, Recreate::IfImmutableChanged);
    let broken = goal("", Recreate::IfError);
    for (what, goal, state) in [("immutable", &immutable, Active), ("broken", &broken, Error)] {
        let alone = decided(goal, [record("1", "", state)]).expect(what);
        assert!(matches!(alone, Next::Replace(..)), "{what}: {alone:?}");
    }
    let refused = decided(&immutable, [record("1", USED, Active)]).expect_err("it is told");
    assert_eq!(refused.reason, Reason::ImmutableField);
    assert!(refused.message.contains("spec.size") && refused.message.contains("is shared"), "{refused}");
    let told = decided(&broken, [record("1", USED, Error)]).expect("its state tells");
    assert!(matches!(told, Next::End(End::Present(_))), "{told:?}");
}

/// A second one of the key goes; as long as others use it the key leaves it, and that is all.
#[test]
fn a_second_one_that_was_left_to_others_is_let_be() {
    let second = record("2", USED, LoadBalancerState::Active);
    let both = |second| {
        let first = record("1", "", LoadBalancerState::Active);
        decided(&goal("", Recreate::Never), [first, second]).expect("possible")
    };
    assert_eq!(both(second.clone()), Next::Remove(vec![Create::Gone]));
    let left = both(LoadBalancerRecord { left: true, ..second });
    assert!(matches!(left, Next::End(End::Present(_))), "{left:?}");
}
