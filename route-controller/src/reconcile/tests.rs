//! Tests whether the passes are connected to the health check.

use controller_core::testing::{FakeCloud, FakeKube, process};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

// Behaviour: P6, W21
#[tokio::test(start_paused = true)]
async fn endless_pass_makes_the_process_unhealthy() {
    let mut process = process(crate::NAMES, &FakeKube::new(), &FakeCloud::new());
    let flags = ["route-controller", "--cluster-id=u", "--cluster-cidr=10.244.0.0/16", "--kubeconfig="];
    let config = Config::from_arguments(flags).expect("valid flags");
    let (mirrors, trigger) = (Mirrors::new(process.clock), Trigger::new());
    let reconciler = Arc::new(Reconciler::new(&mut process, &config, &mirrors, &trigger));
    reconciler.show(&mut process);
    let mut passes = JoinSet::new();
    passes.spawn(Arc::clone(&reconciler).run());
    sleep(Duration::from_secs(1)).await;

    let held = reconciler.memory.lock().await;
    trigger.wake();
    sleep(Duration::from_mins(4)).await;
    assert_eq!(process.health.liveness(), Ok(()), "within the allowed time of a pass");
    sleep(Duration::from_mins(2)).await;
    let error = process.health.liveness().expect_err("the pass is stuck");
    assert!(error.starts_with("Routes: a worker has worked on one key for "), "{error}");
    drop(held);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(process.health.liveness(), Ok(()), "the controller continues");
}
