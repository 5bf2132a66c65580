//! These tests show which load balancers are recreated.

use cloud_api_proto::v1alpha1::{LoadBalancerKey, LoadBalancerSpec};

use super::*;
use crate::driver::Inheritance;
use crate::driver::{
    Adopter, Namespaces,
    testing::{ANOTHER_SIZE, Create, SHARED, USED, WriteOnly},
};

const HASH: &str = "1-aa";

fn key() -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: "web".to_owned() }
}

fn goal(size: &str, recreate: Recreate) -> Goal {
    let desired = DesiredLoadBalancer {
        key: key(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
        spec: LoadBalancerSpec { size: size.to_owned(), ..LoadBalancerSpec::default() },
        backends: Arc::new([]),
        hash: HASH.to_owned(),
    };
    Goal::Present(Arc::new(desired), Terms { recreate, adoption: Adoption::Never, known: None })
}

fn record(id: &str, name: &str, state: LoadBalancerState) -> LoadBalancerRecord<()> {
    let summary = LoadBalancer {
        vendor_id: id.to_owned(),
        name: name.to_owned(),
        key: Some(key()),
        state: state.into(),
        applied_hash: HASH.to_owned(),
        ..LoadBalancer::default()
    };
    LoadBalancerRecord::new(summary, ())
}

fn decided(
    goal: &Goal,
    items: impl IntoIterator<Item = LoadBalancerRecord<()>>,
) -> Result<Decision<(), Create>, AdapterError> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    decide(
        &WriteOnly,
        &Grants::default(),
        goal,
        &Fence::default(),
        &Observed { items: &items, fresh: true, former: None },
    )
}

// Behaviour: SF14
#[test]
fn shared_load_balancer_is_not_recreated() {
    use LoadBalancerState::{Active, Error};
    let immutable = goal(ANOTHER_SIZE, Recreate::IfImmutableChanged);
    let broken = goal("", Recreate::IfError);
    for (what, goal, state) in [("immutable", &immutable, Active), ("broken", &broken, Error)] {
        let alone = decided(goal, [record("1", "", state)]).expect(what);
        assert!(matches!(alone, Decision::Replace(..)), "{what}: {alone:?}");
    }
    let refused = decided(&immutable, [record("1", USED, Active)]).expect_err("the recreation is refused");
    assert_eq!(refused.reason, Reason::ImmutableField);
    assert!(refused.message.contains("spec.size") && refused.message.contains("is shared"), "{refused}");
    let reported =
        decided(&broken, [record("1", USED, Error)]).expect("the state of the load balancer is the result");
    assert!(matches!(reported, Decision::End(End::Present(_))), "{reported:?}");
}

/// A second load balancer of the key is deleted. While other users need this load balancer, it is only released.
#[test]
fn released_second_load_balancer_is_kept() {
    let second = record("2", USED, LoadBalancerState::Active);
    let both = |second| {
        let first = record("1", "", LoadBalancerState::Active);
        decided(&goal("", Recreate::Never), [first, second]).expect("possible")
    };
    assert_eq!(both(second.clone()), Decision::Remove(vec![Create::Gone]));
    let left = both(LoadBalancerRecord { left: true, ..second });
    assert!(matches!(left, Decision::End(End::Present(_))), "{left:?}");
}

/// The second load balancer may still carry the traffic that a degraded first load balancer loses.
#[test]
fn second_load_balancer_is_kept_while_first_is_degraded() {
    let first = record("1", "", LoadBalancerState::Degraded);
    let second = record("2", "", LoadBalancerState::Active);
    let next = decided(&goal("", Recreate::Never), [first.clone(), second]).expect("possible");
    assert_eq!(next, Decision::End(End::Present(Arc::new(first))));
}

#[test]
fn create_waits_for_a_proof_of_absence() {
    let wanted = goal("", Recreate::Never);
    for (fresh, expected) in [(false, Decision::Observe), (true, Decision::Create(vec![Create::New]))] {
        let observed = Observed { items: &[], fresh, former: None };
        let next = decide(&WriteOnly, &Grants::default(), &wanted, &Fence::default(), &observed);
        assert_eq!(next.expect("possible"), expected, "fresh: {fresh}");
    }
}

/// A load balancer that existed before its owner stays when the owner is deleted or requests another load balancer, unless the operator
/// permits its deletion.
#[test]
fn adopted_load_balancer_is_released_not_recreated() {
    let adopted = |state| LoadBalancerRecord { origin: Origin::Adopted, ..record("1", "", state) };
    let grants: Grants = vec!["*:adopt-and-delete=1".parse().expect("a grant")].into();
    let adopter = Adopter {
        key: key(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
    };
    let absent = Goal::Absent { adopter: adopter.into(), adoption: Adoption::Never, known: None };
    let next = |goal: &Goal, grants: &Grants, state| {
        let items = [Arc::new(adopted(state))];
        decide(
            &WriteOnly,
            grants,
            goal,
            &Fence::default(),
            &Observed { items: &items, fresh: true, former: None },
        )
    };
    let active = LoadBalancerState::Active;
    assert_eq!(
        next(&absent, &Grants::default(), active).expect("possible"),
        Decision::Remove(vec![Create::Released])
    );
    assert_eq!(next(&absent, &grants, active).expect("possible"), Decision::Remove(vec![Create::Gone]));

    let immutable = goal(ANOTHER_SIZE, Recreate::IfImmutableChanged);
    let refused = next(&immutable, &Grants::default(), active).expect_err("the recreation is refused");
    assert!(refused.reason == Reason::ImmutableField && refused.message.contains("is adopted"), "{refused}");
    assert!(matches!(next(&immutable, &grants, active), Ok(Decision::Replace(..))));
    let broken = next(&goal("", Recreate::IfError), &Grants::default(), LoadBalancerState::Error);
    assert!(matches!(broken, Ok(Decision::End(End::Present(_)))), "{broken:?}");

    // Vendors refuse all changes of a load balancer in ERROR. The user gets instructions, and the request is repeated later.
    let broken =
        next(&absent, &Grants::default(), LoadBalancerState::Error).expect_err("the deletion is refused");
    assert!(broken.message.contains("delete or repair the load balancer in the cloud"), "{broken}");
    assert_eq!(broken.retry_after, Some(RELEASE_AGAIN));
    let deleted = next(&absent, &grants, LoadBalancerState::Error);
    assert_eq!(deleted.expect("possible"), Decision::Remove(vec![Create::Gone]));

    // The load balancers that can be deleted are deleted first.
    let others = decided(&absent, [adopted(LoadBalancerState::Error), record("2", "", active)]);
    assert_eq!(others.expect("one can be deleted"), Decision::Remove(vec![Create::Gone]));
}

/// Requests without the operator's grant are refused before anything is created. An existing load balancer is kept, and never deleted
/// because of such a request.
#[test]
fn missing_grant_is_refused_without_deletion() {
    let mut wanted = match goal("", Recreate::IfImmutableChanged) {
        Goal::Present(desired, _) => (*desired).clone(),
        Goal::Absent { .. } => panic!("the goal is present"),
    };
    wanted.owner.namespace = "shop".to_owned();
    wanted.spec.subnets = vec!["s-1".to_owned()];
    let terms = Terms { recreate: Recreate::IfError, adoption: Adoption::Never, known: None };
    let wanted = Goal::Present(Arc::new(wanted), terms);
    let none = decided(&wanted, []).expect_err("no load balancer is created");
    assert_eq!((none.reason, none.violations[0].field.as_str()), (Reason::FieldInvalid, "spec.subnets[0]"));
    let applied = |hash: &str, state| {
        let mut there = record("1", "", state);
        hash.clone_into(&mut there.summary.applied_hash);
        there
    };
    for state in [LoadBalancerState::Active, LoadBalancerState::Error] {
        // This request was already applied. Without the grant the load balancer could not be recreated, so it is not deleted.
        let kept = decided(&wanted, [applied(HASH, state)]);
        assert!(matches!(kept, Ok(Decision::End(End::Present(_)))), "{kept:?}");
        let there = decided(&wanted, [applied("1-before", state)]).expect_err("the load balancer is kept");
        assert_eq!(
            (there.reason, there.metadata["fields"].as_str()),
            (Reason::ImmutableField, "spec.subnets[0]")
        );
    }
    let grants: Grants = vec!["shop:subnet=s-1".parse().expect("a grant")].into();
    let observed = Observed { items: &[], fresh: true, former: None };
    let granted = decide(&WriteOnly, &grants, &wanted, &Fence::default(), &observed);
    assert!(matches!(granted, Ok(Decision::Create(_))), "{granted:?}");
}

/// By default, Services in the owner's namespace and cluster share its load balancer; other Services need the owner's consent.
#[test]
fn sharing_needs_the_owners_consent() {
    let lb = |cluster: Option<&str>, namespace: &str, with: &str| {
        let key =
            cluster.map(|id| LoadBalancerKey { cluster_id: id.to_owned(), owner_uid: "other".to_owned() });
        let owner = key.is_some().then(|| Owner { namespace: namespace.to_owned(), ..Owner::default() });
        let record = record("1", "", LoadBalancerState::Active);
        let summary = LoadBalancer { key, owner, ..record.summary };
        let shared_with = Namespaces::read([with]);
        LoadBalancerRecord { shared_with, ..LoadBalancerRecord::new(summary, ()) }
    };
    let mut wanted = match goal("", Recreate::Never) {
        Goal::Present(desired, _) => (*desired).clone(),
        Goal::Absent { .. } => panic!("the goal is present"),
    };
    wanted.owner.namespace = "shop".to_owned();
    wanted.spec.load_balancer_id = "1".to_owned();
    let terms = Terms { recreate: Recreate::Never, adoption: Adoption::Never, known: None };
    let wanted = Goal::Present(Arc::new(wanted), terms);
    let grant: Grants = vec!["shop:share=1".parse().expect("a grant")].into();
    for (what, record, grants, allowed) in [
        ("the same namespace", lb(Some("c"), "shop", ""), Grants::default(), true),
        ("another namespace", lb(Some("c"), "mail", ""), Grants::default(), false),
        ("another namespace, shared with a third", lb(Some("c"), "mail", "news"), Grants::default(), false),
        ("another namespace, shared with it", lb(Some("c"), "mail", "news,shop"), Grants::default(), true),
        (
            "another namespace, shared by the former controller",
            LoadBalancerRecord {
                summary: LoadBalancer { name: SHARED.to_owned(), ..lb(Some("c"), "mail", "").summary },
                ..lb(Some("c"), "mail", "")
            },
            Grants::default(),
            true,
        ),
        ("another namespace, with a grant", lb(Some("c"), "mail", ""), grant.clone(), true),
        ("the same namespace of another cluster", lb(Some("d"), "shop", "shop"), Grants::default(), false),
        ("another cluster, with a grant", lb(Some("d"), "shop", ""), grant, true),
        ("no owner", lb(None, "", ""), Grants::default(), false),
        ("no owner, with a tag", lb(None, "", "shop"), Grants::default(), true),
    ] {
        let items = [Arc::new(record)];
        let observed = Observed { items: &items, fresh: true, former: None };
        match decide(&WriteOnly, &grants, &wanted, &Fence::default(), &observed) {
            Ok(_) => assert!(allowed, "{what}"),
            Err(error) => {
                assert!(!allowed && error.reason == Reason::OwnedByOther, "{what}: {error}");
                assert!(error.message.contains("not shared with namespace shop"), "{what}: {error}");
            }
        }
    }
}
