//! Whether the corridor is connected to what watches over it.

use controller_core::testing::{FakeCloud, FakeKube, process};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_pass_that_never_ends_makes_the_process_unwell() {
    let mut process = process(crate::NAMES, &FakeKube::new(), &FakeCloud::new());
    let flags = ["route-controller", "--cluster-id=u", "--cluster-cidr=10.244.0.0/16", "--kubeconfig="];
    let config = Config::from_arguments(flags).expect("good flags");
    let (mirrors, trigger) = (Mirrors::new(process.clock), Trigger::new());
    let reconciler = Arc::new(Reconciler::new(&mut process, &config, &mirrors, &trigger));
    reconciler.show(&mut process);
    let mut passes = JoinSet::new();
    passes.spawn(Arc::clone(&reconciler).run());
    sleep(Duration::from_secs(1)).await;

    let held = reconciler.memory.lock().await;
    trigger.wake();
    sleep(Duration::from_mins(4)).await;
    assert_eq!(process.health.liveness(), Ok(()), "so long a pass may take");
    sleep(Duration::from_mins(2)).await;
    let error = process.health.liveness().expect_err("it is stuck");
    assert!(error.starts_with("Routes: a worker has been at one key for "), "{error}");
    drop(held);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(process.health.liveness(), Ok(()), "it goes on");
}
