//! These tests check writes to load balancers that several owners share. Each write costs an additional read, because the current tags
//! decide.

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Driver as _, Fault, Inheritance},
    kit::Part,
    vendor::Session,
};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, LoadBalancerSpec, Owner};
use serde_json::{Value, json};

use crate::{
    OpenStackDriver,
    ownership::{Sharing, sharers},
    step::Step,
    testing::{FakeCloud, session},
};

const ALL: &str = "/load-balancer/v2/lbaas/loadbalancers";
const LB: &str = "/load-balancer/v2/lbaas/loadbalancers/lb-1";

fn desired(name: &str) -> DesiredLoadBalancer {
    let word = |word: &str| word.to_owned();
    DesiredLoadBalancer {
        key: LoadBalancerKey { cluster_id: word("c-1"), owner_uid: format!("u-{name}") },
        owner: Owner {
            kind: word("Service"),
            namespace: word("shop"),
            name: word(name),
            uid: format!("u-{name}"),
        },
        cluster_name: word("prod"),
        inheritance: Inheritance::ByName,
        spec: LoadBalancerSpec { load_balancer_id: word("lb-1"), ..LoadBalancerSpec::default() },
        backends: [].into(),
        hash: word("1-aa"),
    }
}

fn claim(name: &str) -> Step {
    let sharing = Sharing::claim(&desired(name), &cloud_api_proto::v1alpha1::Fence::default());
    let sharing = Box::new(sharing.expect("short"));
    Step::ShareLoadBalancer { id: "lb-1".to_owned(), sharing, complete: false }
}

fn owned() -> [&'static str; 2] {
    ["cloudadapter.dev/cluster-id=c-1", "cloudadapter.dev/owner-uid=u-web"]
}

async fn cloud() -> (FakeCloud, OpenStackDriver, Session) {
    let cloud = FakeCloud::start().await;
    let one = json!({ "id": "lb-1", "name": "web", "provisioning_status": "ACTIVE", "tags": owned() });
    cloud.store().lists.insert(ALL.to_owned(), ("loadbalancers", vec![one]));
    let driver = cloud.driver();
    let session = session(&driver);
    (cloud, driver, session)
}

fn tags(cloud: &FakeCloud) -> Vec<String> {
    let store = cloud.store();
    let tags: Vec<Value> = store.lists[ALL].1[0]["tags"].as_array().expect("tags").clone();
    tags.iter().map(|tag| tag.as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn tags_of_concurrent_writers_are_kept() {
    let (cloud, driver, session) = cloud().await;
    let owners = |hash: &str| Step::CompleteLoadBalancer {
        id: Part::Known("lb-1".to_owned()),
        tags: owned()
            .map(str::to_owned)
            .into_iter()
            .chain([format!("cloudadapter.dev/hash={hash}")])
            .collect(),
    };
    driver.execute(&session, &owners("1-aa")).await.expect("written");
    // Both writes were planned before either write was made.
    let (api, shop) = (claim("api"), claim("shop"));
    let both = tokio::join!(driver.execute(&session, &api), driver.execute(&session, &shop));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    driver.execute(&session, &owners("1-bb")).await.expect("written");
    let there = tags(&cloud);
    let names: Vec<String> = sharers(&there).into_iter().map(|user| user.owner.name).collect();
    assert_eq!(names, ["api", "shop"]);
    assert!(there.contains(&"cloudadapter.dev/hash=1-bb".to_owned()), "{there:?}");
    assert_eq!(cloud.asked(&format!("GET {LB}")).len(), 4, "one read for each write");

    // Another cluster's adapter has added tags, which the tested driver has not read.
    let sharer = ["cluster-id=c-2", "owner-name=far"].map(|it| format!("cloudadapter.dev/sharer/u-far/{it}"));
    cloud.store().lists.get_mut(ALL).expect("there").1[0]["tags"] = json!(
        owned().map(str::to_owned).into_iter().chain(sharer).chain(["team=a".to_owned()]).collect::<Vec<_>>()
    );
    let another = cloud.driver();
    another.execute(&session, &owners("1-cc")).await.expect("written");
    let there = tags(&cloud);
    assert_eq!(sharers(&there).len(), 1, "{there:?}");
    assert!(there.contains(&"team=a".to_owned()), "{there:?}");
}

#[tokio::test]
async fn load_balancer_with_a_new_owner_is_not_tagged() {
    let (cloud, driver, session) = cloud().await;
    let theirs = ["cloudadapter.dev/cluster-id=c-2", "cloudadapter.dev/owner-uid=u-2"];
    for (what, tags, status, done) in [
        ("the load balancer has no owner", json!([]), "ACTIVE", true),
        ("it belongs to this owner, and some tags were removed", json!(owned()[..1]), "ACTIVE", true),
        ("it belongs to another owner", json!(theirs), "ACTIVE", false),
        ("it is being deleted", json!([]), "PENDING_DELETE", false),
    ] {
        let one = json!({ "id": "lb-1", "name": "web", "provisioning_status": status, "tags": tags });
        cloud.store().lists.insert(ALL.to_owned(), ("loadbalancers", vec![one]));
        let adopt =
            Step::AdoptLoadBalancer { id: "lb-1".to_owned(), tags: owned().map(str::to_owned).into() };
        let fault = driver.execute(&session, &adopt).await.err().map(|error| error.fault);
        assert_eq!(fault, (!done).then_some(Fault::Busy), "{what}");
    }
    assert_eq!(cloud.asked(&format!("PUT {LB}")).len(), 2);
}

#[tokio::test]
async fn deletion_checks_the_current_users() {
    let (cloud, driver, session) = cloud().await;
    let deletion =
        Step::DeleteLoadBalancer { id: "lb-1".to_owned(), whose: Some(desired("web").key), seen: Vec::new() };
    let leave =
        |name: &str| Step::LeaveLoadBalancer { id: "lb-1".to_owned(), whose: Some(desired(name).key) };
    driver.execute(&session, &claim("api")).await.expect("written");
    let refused = driver.execute(&session, &deletion).await.expect_err("another owner shares it");
    assert_eq!(refused.fault, Fault::Busy);
    assert_eq!(cloud.asked("DELETE").len(), 0);

    driver.execute(&session, &leave("web")).await.expect("the owner leaves first");
    let refused = driver.execute(&session, &leave("api")).await.expect_err("it is the last user");
    assert_eq!(refused.fault, Fault::Busy);
    assert_eq!(sharers(&tags(&cloud)).len(), 1);
    let last =
        Step::DeleteLoadBalancer { id: "lb-1".to_owned(), whose: Some(desired("api").key), seen: Vec::new() };
    // Another client adds a listener, whose owner is not known.
    let listener = json!({ "id": "new", "loadbalancers": [{ "id": "lb-1" }] });
    cloud.store().lists.insert("/load-balancer/v2/lbaas/listeners".to_owned(), ("listeners", vec![listener]));
    assert_eq!(
        driver.execute(&session, &last).await.expect_err("the deletion waits for a listing").fault,
        Fault::Busy
    );
    cloud.store().lists.remove("/load-balancer/v2/lbaas/listeners");
    driver.execute(&session, &last).await.expect("deleted");
    assert_eq!(cloud.asked(&format!("DELETE {LB}?cascade=true")).len(), 1);

    // A load balancer that is being deleted does not accept a new user.
    let one =
        json!({ "id": "lb-1", "name": "web", "provisioning_status": "PENDING_DELETE", "tags": owned() });
    cloud.store().lists.insert(ALL.to_owned(), ("loadbalancers", vec![one]));
    assert_eq!(driver.execute(&session, &claim("shop")).await.expect_err("late").fault, Fault::Busy);
}
