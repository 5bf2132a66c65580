//! Tests that the three controllers are independent processes: a stop or a lockout of one does not affect the others.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, WITHIN, eventually, service};
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

// Behaviour: P5, P7, W18, W20, W21
#[tokio::test]
async fn a_stopped_controller_does_not_affect_the_others() {
    let wrong = json!({ "routeController": { "extraArgs": ["--log-level=noisy"] } });
    let mut bed = Bed::install_with(&wrong).await.unwrap();
    bed.cluster.pods.start().unwrap();
    for name in [ADAPTER, "node-controller", "service-controller"] {
        bed.cluster.pods.get(name).unwrap().wait_ready(WITHIN).await.unwrap();
    }
    ends_with_2(&mut bed, "route-controller", "--log-level").await;
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    for name in ["node-controller", "service-controller"] {
        for page in ["/healthz", "/livez", "/readyz"] {
            let status = bed.cluster.pods.get(name).unwrap().http_status(Method::GET, page).await.unwrap();
            assert_eq!(status, 200, "{name} {page}");
        }
    }

    bed.cluster.pods.get("node-controller").unwrap().kill().await.unwrap();
    bed.expose("more", 80).await.unwrap();
    a_refused_controller_waits(&mut bed).await;
    shutdown_does_not_wait_for_the_adapter(&mut bed).await;
}

async fn ends_with_2(bed: &mut Bed, name: &str, flag: &str) {
    let pod = bed.cluster.pods.get(name).unwrap();
    let what = format!("{name} has ended");
    let ended = eventually(&what, WITHIN, || {
        let status = pod.exit_status();
        async move { status?.context("it still runs") }
    });
    assert_eq!(ended.await.unwrap().code(), Some(2));
    let tail = bed.cluster.pods.get(name).unwrap().tail();
    assert!(tail.contains(flag), "{tail}");
}

/// A controller with the token of another controller is not authorized. It is not ready and reports why, until it has its own token again.
async fn a_refused_controller_waits(bed: &mut Bed) {
    let controller = bed.cluster.pods.get("service-controller").unwrap();
    let file = controller.flag("--adapter-token-file").unwrap().to_owned();
    let adapter = bed.cluster.pods.look_at("cloud-adapter").unwrap();
    let audience = adapter.flag("--token-audience").unwrap().to_owned();
    let token = bed.token("cloud-node-controller", &[&audience]).await.unwrap();
    fs::copy(token, &file).unwrap();
    // The former token may still be in use for a moment.
    let client = bed.client();
    let controller = &*bed.cluster.pods.get("service-controller").unwrap();
    let numbers = AtomicUsize::new(0);
    eventually("the adapter refuses it", WITHIN, || async {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        service(&format!("waits-{number}")).port(80).create(&client).await?;
        let ready = controller.look_ready().await;
        let why = ready.err().map(|error| format!("{error:#}")).context("it is ready")?;
        ensure!(why.contains("CALLER_FORBIDDEN"), "{why}");
        Ok(())
    })
    .await
    .unwrap();
    service("waits").port(80).create(&bed.client()).await.unwrap();
    bed.unready("service-controller", "CALLER_FORBIDDEN").await.unwrap();
    let waiting = bed.services().get("waits").await.unwrap();
    assert!(e2e::address(&waiting).is_none());

    bed.cluster.pods.refresh_volumes(&bed.cluster.control_plane).await.unwrap();
    bed.address("waits").await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().wait_ready(WITHIN).await.unwrap();
}

/// A pending call to an unresponsive adapter must not outlast the grace period of the pod, and the work is not lost.
async fn shutdown_does_not_wait_for_the_adapter(bed: &mut Bed) {
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap().id().unwrap();
    let adapter = Pid::from_raw(adapter.try_into().unwrap()).unwrap();
    kill_process(adapter, Signal::STOP).unwrap();
    service("hangs").port(80).create(&bed.client()).await.unwrap();
    let controller = &*bed.cluster.pods.get("service-controller").unwrap();
    eventually("a call is in progress", WITHIN, || async {
        let works = controller.counted("workqueue_unfinished_work_seconds", "name").await?;
        ensure!(works.values().sum::<f64>() > 0.0, "{works:?}");
        Ok(())
    })
    .await
    .unwrap();
    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    kill_process(adapter, Signal::CONT).unwrap();
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    bed.address("hangs").await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    let made = bed.cluster.cloud.state().await.unwrap().load_balancers.len();
    assert_eq!(counts.of(Operation::CreateLoadBalancer), u64::try_from(made).unwrap());
}
