//! Tests the page of plans for nodes, and a controller in dry run.

use std::time::Duration;

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::{
    explain::report::{Plans, State},
    testing::{instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::{WARM, World, id, known, running, settle};

const HOUR: Duration = Duration::from_hours(1);

impl World {
    async fn plans(&self) -> Plans {
        self.explain.plan("").await.expect("the controller runs")
    }

    fn spent(&self) -> usize {
        self.kube.writes().len() + self.kube.events().len()
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_writes_nothing_and_shows_the_writes() {
    let mut world = World::new();
    world.dry_run = true;
    for name in ["new", "off", "gone", "well"] {
        world.cloud.put(instance(&id(name)).named(name).at("10.0.0.1"));
    }
    world.kube.put::<Node>(node("new").uninitialised());
    for name in ["off", "gone", "well"] {
        world.kube.put::<Node>(known(name).at("10.0.0.1").ready("True"));
    }
    world.start();
    sleep(WARM).await;
    world.cloud.put(instance(&id("off")).named("off").at("10.0.0.1").state(InstanceState::Stopped));
    world.set_ready("off", "False");
    world.lose("gone");
    settle().await;
    sleep(HOUR).await;
    let plans = world.plans().await;
    let shown = |key: &str| {
        let plan = plans.objects.iter().find(|it| it.key == key).expect("listed");
        assert_eq!((plan.trouble.as_deref(), plan.vendor.len()), (None, 0), "{plan:?}");
        plan.cluster.clone()
    };
    let new = shown("new");
    assert!(
        new[0].starts_with("addresses ") && new[1].starts_with("initialise provider ID sim://north/new"),
        "{new:?}"
    );
    assert_eq!(shown("gone"), ["delete the node: its instance is gone"]);
    assert_eq!(
        shown("off").last().map(String::as_str),
        Some("add the taint node.cloudprovider.kubernetes.io/shutdown: its instance is switched off")
    );
    assert_eq!((plans.dry_run, plans.looked_at, plans.of), (true, 4, 4));
    assert!(plans.objects.iter().all(|it| it.kind == "Node" && it.key != "well"), "{plans:?}");
    let seen = world.explain.one("gone").expect("a valid key");
    assert_eq!(
        (seen.state, seen.waits_for.as_deref()),
        (State::Waiting, Some("Dry run: nothing is changed"))
    );
    assert_eq!(world.spent(), 0);

    world.stop().await;
    world.dry_run = false;
    world.start();
    sleep(WARM).await;
    settle().await;
    assert!(world.is_initialised("new") && !world.exists("gone"));
    assert!(world.plans().await.objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn wait_of_a_node_has_the_text_of_its_event() {
    let world = running(1).await;
    world.kube.put::<Node>(node("other").uninitialised());
    settle().await;
    let plans = world.plans().await;
    let [only] = plans.objects.as_slice() else { panic!("{plans:?}") };
    assert_eq!(only.trouble, world.explain.one("other").expect("a valid key").waits_for);
    assert!(only.trouble.is_some() && only.cluster.is_empty());
    assert_eq!((plans.looked_at, plans.of), (2, 2));
}
