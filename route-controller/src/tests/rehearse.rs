//! Tests the page of plans for routes, and a controller in dry run.

use controller_core::explain::report::{Plans, State};

use super::*;

const CONDITION: &str = "set the condition NetworkUnavailable to False (RouteCreated)";

impl World {
    async fn plans(&self) -> Plans {
        self.explain.plan("").await.expect("the controller runs")
    }

    /// Counts actual changes of routes, writes to the API server, and Events.
    fn changed(&self) -> (usize, usize, usize) {
        let routes = self.cloud.read(|state| state.route_changes.len());
        (routes, self.kube.writes().len(), self.kube.events().len())
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_changes_nothing_and_shows_plan() {
    let mut world = World::new();
    world.marks_routes();
    world.dry_run = true;
    (0..3).for_each(|n| world.put(numbered(n)));
    world.put(ready("elsewhere", "10.244.9.0/24"));
    world.cloud.edit(|state| drop(state.routes.insert("rt-7".to_owned(), foreign("10.244.9.0/24"))));
    world.start();
    settle().await;
    assert_eq!((world.changed(), world.cloud.calls("ApplyRoutes")), ((0, 0, 0), 0));
    let plans = world.plans().await;
    let keys: Vec<&str> = plans.objects.iter().map(|it| it.key.as_str()).collect();
    assert_eq!((keys, plans.dry_run), (vec!["elsewhere", "n0", "n1", "n2"], true));
    assert_eq!((plans.looked_at, plans.of), (4, 4));
    let [elsewhere, nodes @ ..] = plans.objects.as_slice() else { panic!("{plans:?}") };
    assert!(elsewhere.trouble.is_some() && elsewhere.vendor.is_empty(), "{elsewhere:?}");
    assert!(nodes.iter().all(|it| it.cluster == [CONDITION] && it.trouble.is_none()), "{nodes:?}");
    let steps: Vec<&str> = nodes.iter().flat_map(|it| &it.vendor).map(|it| it.operation.as_str()).collect();
    assert_eq!(steps, ["BatchRoutes"], "one call for all routes, shown once");
    let seen = world.explain.one("n0").expect("a valid key");
    assert_eq!(
        (seen.state, seen.waits_for.as_deref()),
        (State::Waiting, Some("Dry run: nothing is changed"))
    );
    assert_eq!((world.changed(), world.cloud.calls("ApplyRoutes")), ((0, 0, 0), 1));

    world.stop().await;
    world.dry_run = false;
    world.delete("elsewhere");
    world.start();
    eventually("all conditions are written", || (0..3).all(|n| world.condition(&format!("n{n}")) == SERVED))
        .await;
    settle().await;
    assert!(world.plans().await.objects.is_empty());
    world.stop().await;
    world.dry_run = true;
    world.start();
    settle().await;
    let plans = world.plans().await;
    assert_eq!((plans.objects, plans.looked_at, plans.of), (vec![], 3, 3), "a safe replacement");
}

#[tokio::test(start_paused = true)]
async fn route_of_a_deleted_node_is_an_object_of_its_own() {
    let mut world = World::with_nodes(10).await;
    world.stop().await;
    world.dry_run = true;
    world.start();
    settle().await;
    let changed = world.changed();
    world.delete("n3");
    settle().await;
    let plans = world.plans().await;
    let [only] = plans.objects.as_slice() else { panic!("{plans:?}") };
    assert_eq!((only.kind.as_str(), only.key.as_str(), only.vendor.len()), ("Route", "10.244.3.0/24", 1));
    assert_eq!((only.trouble.as_deref(), only.cluster.len()), (None, 0));
    world.stop().await;
    (4..10).for_each(|n| world.delete(&format!("n{n}")));
    world.start();
    settle().await;
    let plans = world.plans().await;
    assert_eq!(plans.objects.len(), 7, "{plans:?}");
    assert!(plans.objects.iter().all(|it| it.trouble.is_some()), "the guard holds them: {plans:?}");
    assert_eq!(world.changed(), changed);
}

#[tokio::test(start_paused = true)]
async fn refusal_of_the_adapter_has_the_text_of_its_event() {
    let world = World::with_nodes(1).await;
    let quota = || AdapterError::new(Reason::VendorQuota, "50 routes");
    (0..2).for_each(|_| world.cloud.fail_next("ApplyRoutes", quota()));
    world.put(numbered(1));
    eventually("the call is attempted", || world.cloud.calls("ApplyRoutes") == 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let plans = world.plans().await;
    let [only] = plans.objects.as_slice() else { panic!("{plans:?}") };
    let words = only.trouble.as_deref().unwrap_or_default();
    assert!(words.starts_with("Could not create route uid-n1 10.244.1.0/24 for node n1 after 0"), "{words}");
    assert_eq!(only.reason.as_deref(), Some("VENDOR_QUOTA"));
}
