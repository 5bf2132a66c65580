//! Tests whether the queue is connected to the health check.

use std::time::Duration;

use controller_core::testing::node;
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::World;

// Behaviour: P6, W21
#[tokio::test(start_paused = true)]
async fn stuck_workers_make_the_process_unhealthy() {
    let mut world = World::new();
    // Zero workers simulate workers that are all stuck. The flags do not allow zero.
    world.settings.workers = 0;
    world.start();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.health.liveness(), Ok(()), "an empty queue");
    world.kube.put::<Node>(node("a").uninitialised());
    sleep(Duration::from_mins(4)).await;
    assert_eq!(world.health.liveness(), Ok(()), "within the allowed time");
    sleep(Duration::from_mins(2)).await;
    let error = world.health.liveness().expect_err("no worker takes the key");
    assert!(error.starts_with("Nodes: keys are due, and no worker has taken one for "), "{error}");
}
