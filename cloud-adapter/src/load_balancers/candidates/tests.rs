//! These tests show which load balancers are adopted.

use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerKey, LoadBalancerSpec, Owner, Recreate};

use super::*;
use crate::{
    driver::{
        DesiredLoadBalancer, Inheritance, Namespaces,
        testing::{OTHERS, SHARED, SOLE, UNPROVEN, WriteOnly},
    },
    load_balancers::goal::Terms,
};

const NAMESPACE: &str = "shop";
/// The ID that the operator's grant allows the namespace to adopt.
const GRANTED: &str = "granted";

fn key(owner_uid: &str) -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: owner_uid.to_owned() }
}

fn desired() -> Arc<DesiredLoadBalancer> {
    Arc::new(DesiredLoadBalancer {
        key: key("web"),
        owner: Owner { namespace: NAMESPACE.to_owned(), ..Owner::default() },
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
        spec: LoadBalancerSpec::default(),
        backends: Arc::new([]),
        hash: String::new(),
    })
}

fn present(adoption: Adoption, known: Option<&str>) -> Goal {
    let known = known.map(str::to_owned);
    Goal::Present(desired(), Terms { recreate: Recreate::Never, adoption, known })
}

fn absent(known: Option<&str>) -> Goal {
    let known = known.map(str::to_owned);
    Goal::Absent { adopter: desired().adopter().into(), adoption: Adoption::IfUnowned, known }
}

fn record(id: &str, name: &str, key: Option<LoadBalancerKey>) -> Shared<()> {
    let (vendor_id, name) = (id.to_owned(), name.to_owned());
    let summary = LoadBalancer { vendor_id, name, key, ..LoadBalancer::default() };
    Arc::new(LoadBalancerRecord::new(summary, ()))
}

/// Returns the ID of the adopted load balancer. Empty: no load balancer is adopted.
fn adopted(items: &[Shared<()>], adoption: Adoption, known: Option<&str>) -> Result<String, AdapterError> {
    let candidates = Candidates::find(&WriteOnly, items, &present(adoption, known));
    Ok(match candidates.adopt(adoption, known, NAMESPACE, |id: &str| id == GRANTED)? {
        Adopted::Taken(record) => record.summary.vendor_id.clone(),
        Adopted::Nothing => String::new(),
        Adopted::Missing(id) => format!("no {id}"),
    })
}

#[test]
fn remains_of_a_load_balancer_are_removed() {
    let state = LoadBalancerState::Absent.into();
    let summary = LoadBalancer { state, ..record("floating-ip", "", Some(key("web"))).summary.clone() };
    let left = [Arc::new(LoadBalancerRecord::new(summary, ()))];
    let goal = present(Adoption::Never, None);
    assert!(Candidates::find(&WriteOnly, &left, &goal).owned.is_empty());
    assert_eq!(Candidates::find(&WriteOnly, &left, &absent(None)).deletable().len(), 1);
}

#[test]
fn heritage_is_adopted_only_on_request_and_if_unshared() {
    let sole = record("1", SOLE, None);
    let owned = record("2", SOLE, Some(key("another")));
    let shared = record("3", SHARED, None);
    let others = record("4", OTHERS, None);
    let items = [sole, owned, others.clone()];
    for (what, adoption, wanted) in [
        ("adoption not requested", Adoption::Never, ""),
        (
            "adoption requested; the tags of the second load balancer name another owner",
            Adoption::IfUnowned,
            "1",
        ),
    ] {
        assert_eq!(adopted(&items, adoption, None).expect(what), wanted, "{what}");
    }
    assert_eq!(adopted(&items[1..], Adoption::IfUnowned, None).expect("nothing to adopt"), "");

    let two = [record("1", SOLE, None), record("5", SOLE, None)];
    let unproven = [record("6", UNPROVEN, None)];
    for (what, items, adoption, known, text) in [
        ("shared", &[shared.clone()][..], Adoption::IfUnowned, None, "shared by two"),
        ("shared, by ID", &[shared], Adoption::ById, Some("3"), "shared by two"),
        ("of another Service, by ID", &[others], Adoption::ById, Some("4"), "owned by another Service"),
        ("unproven", &unproven, Adoption::IfUnowned, None, "names prove nothing"),
        ("unproven, by ID", &unproven, Adoption::ById, Some("6"), "names prove nothing"),
        ("two load balancers match", &two, Adoption::IfUnowned, None, "load balancers 1, 5"),
    ] {
        let error = adopted(items, adoption, known).expect_err(what);
        assert_eq!(error.reason, Reason::OwnedByOther, "{what}");
        assert!(error.message.contains(text), "{what}: {error}");
    }
    assert_eq!(adopted(&two, Adoption::ById, Some("5")).expect("only one matches"), "5");
}

#[test]
fn deletion_removes_sole_heritage_but_nothing_shared() {
    let find = |items: &[Shared<()>], known| Candidates::find(&WriteOnly, items, &absent(known));
    let left = find(&[record("1", SOLE, None), record("2", SOLE, Some(key("another")))], None);
    let inherited = left.inherited().expect("only one matches").expect("there");
    assert_eq!((inherited.summary.vendor_id.as_str(), left.deletable().len()), ("1", 0));
    let shared = find(&[record("3", SHARED, None)], Some("3"));
    assert!(shared.deletable().is_empty(), "with and without a known ID");
    assert_eq!(shared.inherited().expect_err("shared").reason, Reason::OwnedByOther);
    let unproven = find(&[record("6", UNPROVEN, None)], Some("6"));
    assert!(
        unproven.inherited().expect("the load balancer is no obstacle").is_none()
            && unproven.deletable().is_empty()
    );
}

fn unowned(id: &str, consent: &str) -> Shared<()> {
    let adoptable_by = Namespaces::read([consent]);
    Arc::new(LoadBalancerRecord { adoptable_by, ..(*record(id, "by-hand", None)).clone() })
}

#[test]
fn adoption_by_id_needs_consent() {
    let rest = |cluster: &str, uid: &str| {
        let key = LoadBalancerKey { cluster_id: cluster.to_owned(), owner_uid: uid.to_owned() };
        record("rest", "", Some(key))
    };
    for (what, item, wanted) in [
        ("no consent", unowned("1", ""), None),
        ("a tag names another namespace", unowned("1", "mail, shopping"), None),
        ("a tag names the namespace", unowned("1", "mail, shop"), Some("1")),
        ("a tag names any namespace", unowned("1", "*"), Some("1")),
        ("a grant of the operator", unowned(GRANTED, ""), Some(GRANTED)),
        ("created for the Service by the usual controller", record("1", SOLE, None), Some("1")),
        ("its tags name only the cluster", rest("c", ""), None),
        ("its tags name the UID", rest("", "web"), Some("rest")),
    ] {
        let id = item.summary.vendor_id.clone();
        match (adopted(&[item], Adoption::ById, Some(&id)), wanted) {
            (Ok(taken), Some(wanted)) => assert_eq!(taken, wanted, "{what}"),
            (Err(error), None) => {
                assert_eq!(error.reason, Reason::OwnedByOther, "{what}");
                assert!(
                    error.message.contains(&format!("add shop:adopt={id} to adapter.grants")),
                    "{what}: {error}"
                );
            }
            (other, _) => panic!("{what}: {other:?}"),
        }
    }
}

fn sharing(id: &str) -> Goal {
    let mut desired = (*desired()).clone();
    desired.spec.load_balancer_id = id.to_owned();
    let terms = Terms { recreate: Recreate::IfError, adoption: Adoption::Never, known: None };
    Goal::Present(Arc::new(desired), terms)
}

#[test]
fn load_balancer_to_share_is_found_with_any_owner() {
    let items = [
        record("1/other", "", Some(key("other"))),
        record("1", "", Some(key("shop"))),
        record("2", "", None),
    ];
    for (id, wanted) in [("1", Some("1")), ("2", Some("2")), ("3", None)] {
        let found = Candidates::find(&WriteOnly, &items, &sharing(id));
        assert_eq!(found.shareable.map(|one| one.summary.vendor_id.clone()).as_deref(), wanted);
        assert!(found.owned.is_empty());
    }
    let found = Candidates::find(&WriteOnly, &items, &present(Adoption::Never, None));
    assert!(found.shareable.is_none(), "the request has no ID");
}

#[test]
fn released_load_balancer_is_taken_back_by_its_owner() {
    let left = Arc::new(LoadBalancerRecord { left: true, ..(*record("1", "", Some(key("web")))).clone() });
    let found = |goal: &Goal| Candidates::find(&WriteOnly, &[Arc::clone(&left)], goal);
    assert!(found(&absent(None)).deletable().is_empty());
    assert_eq!(found(&present(Adoption::Never, None)).owned.len(), 1);
    assert_eq!(found(&sharing("1")).owned.len(), 1);
    assert!(found(&sharing("2")).owned.is_empty(), "the load balancer is no obstacle for another one");
}

/// Users of one namespace read the error, and may not see the Services of another.
#[test]
fn owner_of_a_foreign_load_balancer_is_not_named() {
    let owner = Owner {
        kind: "Service".to_owned(),
        namespace: "mail".to_owned(),
        name: "inbox".to_owned(),
        ..Owner::default()
    };
    let named = record("7", "", Some(key("another")));
    let summary = LoadBalancer { owner: Some(owner), ..named.summary.clone() };
    let items = [Arc::new(LoadBalancerRecord::new(summary, ()))];
    let error = adopted(&items, Adoption::ById, Some("7")).expect_err("another owner");
    let text = "load balancer 7 belongs to another owner, and is left unchanged: remove annotations \
                lb.cloudadapter.dev/id and adopt";
    assert_eq!(error.message, text);
}
