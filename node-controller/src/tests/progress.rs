//! Whether the queue is connected to what watches over it.

use std::time::Duration;

use controller_core::testing::node;
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::World;

#[tokio::test(start_paused = true)]
async fn nodes_that_no_worker_takes_make_the_process_unwell() {
    let mut world = World::new();
    // Flags do not allow it: it is how workers look that are all stuck.
    world.settings.workers = 0;
    world.start();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.health.liveness(), Ok(()), "nothing is there to do");
    world.kube.put::<Node>(node("a").uninitialised());
    sleep(Duration::from_mins(4)).await;
    assert_eq!(world.health.liveness(), Ok(()), "so long it may take");
    sleep(Duration::from_mins(2)).await;
    let error = world.health.liveness().expect_err("nobody takes it");
    assert!(error.starts_with("Nodes: keys wait, and no worker has taken one for "), "{error}");
}
