//! Conditions that are reported only after minutes, all waited for at once: another controller's finalizer on a Service, writes that fail
//! repeatedly, a stuck worker. Also Events that are emitted repeatedly.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use e2e::{ApiProxy, Bed, Pod, Trouble, WITHIN, address, eventually, seconds, service};
use futures::future::join_all;
use http::Method;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::fs::OFlags;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const NODES: &str = "node-controller";
const SERVICES: &str = "service-controller";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];

/// Time limit of a worker for one key, and of another controller for the deletion of a Service.
const PATIENCE: Duration = Duration::from_mins(5);
/// This long before the limit, nothing is reported yet.
const SHORTLY: Duration = seconds(10);

/// Writes that are refused, each with another status; 0 stands for no answer.
const REFUSED: [(&str, u16); 4] = [
    ("/api/v1/namespaces/default/services/conflict/status", 409),
    ("/api/v1/namespaces/default/services/error/status", 500),
    ("/api/v1/namespaces/default/services/unavailable/status", 503),
    ("/api/v1/namespaces/default/services/silence/status", 0),
];

// Behaviour: S5, S12, P5, P6, P22
#[tokio::test]
async fn lasting_conditions_are_reported_after_minutes() {
    let values = json!({
        "nodeController": {
            // A process with a Lease ends when it cannot renew the Lease, and is not stuck for long.
            "extraArgs": ["--leader-elect=false"],
            // One thread is stuck, and the others serve the pages.
            "extraEnv": [{ "name": "TOKIO_WORKER_THREADS", "value": "4" }],
        },
        "routeController": { "enabled": false },
        "adapter": { "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } } },
    });
    let mut bed = Bed::install_with(&values).await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get(SERVICES).unwrap()).unwrap();
    let token = TokenFile::of(bed.cluster.pods.look_at(NODES).unwrap());
    bed.start_pods().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.told("Node", "a", "Synced").await.unwrap();
    tokio::join!(
        a_worker_that_is_stuck_is_not_alive(&bed, &token),
        a_foreign_finalizer_is_reported(&bed),
        failed_writes_are_reported(&bed, &proxy),
        a_repeated_event_counts(&bed),
    );
    assert_eq!(livez(&bed, SERVICES).await, 200, "a Service that cannot be written occupies no worker");
}

/// The volume of the token hangs, and so does the worker that reads it: no timeout helps against a blocking read.
async fn a_worker_that_is_stuck_is_not_alive(bed: &Bed, token: &TokenFile) {
    let kept = bed.nodes().get("a").await.unwrap().metadata.labels.unwrap();
    token.hangs();
    let mut edits = 0;
    // A token is read again when it is a minute old: until then the controller reverts these edits.
    let reader = eventually("a worker reads the token", 2 * WITHIN, || {
        edits += 1;
        let labels = json!({ "metadata": { "labels": { TYPE[1]: format!("edit-{edits}") } } });
        async move {
            bed.patch_node("a", &labels).await?;
            sleep(seconds(1)).await;
            token.reader()
        }
    });
    let reader = reader.await.unwrap();
    sleep(PATIENCE.checked_sub(SHORTLY).unwrap()).await;
    assert_eq!(livez(bed, NODES).await, 200, "the limit is not reached yet");
    let pod = bed.cluster.pods.look_at(NODES).unwrap();
    let told = eventually("the worker is reported as stuck", WITHIN, || async {
        let Err(error) = pod.page("/livez").await else { bail!("/livez is OK") };
        Ok(format!("{error:#}"))
    });
    let told = told.await.unwrap();
    assert!(told.contains("503") && told.contains("Nodes: a worker has worked on one key for 30"), "{told}");

    token.comes(reader);
    bed.until_node("a", "has its label again", |node| {
        let labels = node.metadata.labels.as_ref().context("no labels")?;
        ensure!(labels.get(TYPE[1]) == kept.get(TYPE[1]), "{labels:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(livez(bed, NODES).await, 200, "the worker has continued");
}

/// The other controller may still be working, so the Event is emitted only when that is unlikely.
async fn a_foreign_finalizer_is_reported(bed: &Bed) {
    service("held").port(80).spec("type", json!("ClusterIP")).create(&bed.client()).await.unwrap();
    let theirs =
        PatchParams { field_manager: Some("vendor-controller-manager".to_owned()), ..<_>::default() };
    let finalizer = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    bed.services().patch("held", &theirs, &finalizer).await.unwrap();
    bed.services().delete("held", &DeleteParams::default()).await.unwrap();
    sleep(PATIENCE.checked_sub(SHORTLY).unwrap()).await;
    assert_eq!(bed.events("Service", "held").await.unwrap(), []);
    let told = bed.told("Service", "held", "HeldByAnother").await.unwrap();
    assert!(told.contains("set by vendor-controller-manager"), "{told}");
    let held = bed.services().get("held").await.unwrap();
    assert_eq!(held.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert_eq!(bed.times("Service", "held", "HeldByAnother").await.unwrap(), 1);
    assert_eq!(bed.times("Service", "held", "DeletingLoadBalancer").await.unwrap(), 0);
}

/// Two failures may be temporary; the third failure is reported, and later ones are not.
async fn failed_writes_are_reported(bed: &Bed, proxy: &ApiProxy) {
    proxy.order(Trouble::Refuses("PATCH", &REFUSED));
    for (path, _) in REFUSED {
        service(service_of(path)).port(80).create(&bed.client()).await.unwrap();
    }
    let told = REFUSED.map(|(path, status)| async move {
        let name = service_of(path);
        let what = format!("status {status} is reported");
        let told = eventually(&what, 2 * WITHIN, || async {
            let (times, tries) = (failures(bed, name).await?, proxy.met(path));
            assert!(times == 0 || tries >= 3, "status {status} is reported after {tries} attempts");
            ensure!(times > 0, "{tries} attempts");
            Ok(())
        });
        told.await.unwrap();
        let told = bed.told("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        assert!(told.contains("retried automatically"), "{told}");
        let tries = proxy.met(path);
        let again = eventually("it is tried again by itself", 2 * WITHIN, || async {
            ensure!(proxy.met(path) > tries, "{tries} times");
            Ok(())
        });
        again.await.unwrap();
    });
    join_all(told).await;
    proxy.let_go();
    for (path, status) in REFUSED {
        let name = service_of(path);
        // The backoff has grown by now.
        let what = format!("{name} has an address");
        let served = eventually(&what, PATIENCE, || async {
            address(&bed.services().get(name).await?).context("it has no address")
        });
        served.await.unwrap();
        assert_eq!(failures(bed, name).await.unwrap(), 1, "{status}");
    }
}

fn service_of(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap()
}

async fn failures(bed: &Bed, service: &str) -> anyhow::Result<i32> {
    bed.times("Service", service, "SyncLoadBalancerFailed").await
}

/// Repetitions are one Event object, which is not written each time and in the end has the right count.
async fn a_repeated_event_counts(bed: &Bed) {
    const ROUNDS: usize = 25;
    const REASON: &str = "EnsuredLoadBalancer";
    bed.expose("busy", 80).await.unwrap();
    let begin = Instant::now();
    for port in (8001..).take(ROUNDS) {
        let ports = json!([{ "name": "tcp-80", "port": port, "protocol": "TCP" }]);
        let ports = Patch::Merge(json!({ "spec": { "ports": ports } }));
        bed.services().patch("busy", &PatchParams::default(), &ports).await.unwrap();
        bed.until_cloud("it listens there", |state| {
            let there = state.balancer("busy")?.listeners.first().context("no listener")?.port;
            ensure!(there == port, "it listens on {there}");
            Ok(())
        })
        .await
        .unwrap();
        sleep(seconds(1)).await;
    }
    let pod = bed.cluster.pods.look_at(SERVICES).unwrap();
    let counted = eventually("the count of the Event matches the log", WITHIN, || async {
        let log = fs::read_to_string(pod.log())?;
        let told = log.lines().filter(|line| line.contains(REASON) && line.contains("busy")).count();
        let mut events = bed.events("Service", "busy").await?;
        events.retain(|event| event.reason.as_deref() == Some(REASON));
        assert_eq!(events.len(), 1, "{events:?}");
        let event = events.pop().context("no Event")?;
        let count = event.count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        ensure!(told >= ROUNDS && count == told, "{count} of {told}");
        Ok(event.metadata.name.unwrap_or_default())
    });
    let name = counted.await.unwrap();
    let writes = bed.cluster.control_plane.audit_log().writes(pod.user()).unwrap();
    let of_it = writes.iter().filter(|it| it.resource == "events" && it.verb == "patch" && it.name == name);
    let (writes, most) = (of_it.count(), 1 + begin.elapsed().as_secs() / 10);
    assert!(
        (2..=usize::try_from(most).unwrap()).contains(&writes),
        "{writes} writes, but at most {most} are expected"
    );
}

async fn livez(bed: &Bed, pod: &str) -> u16 {
    bed.cluster.pods.look_at(pod).unwrap().http_status(Method::GET, "/livez").await.unwrap()
}

/// The token of a pod, in a file as a kubelet mounts it.
struct TokenFile {
    path: PathBuf,
    token: String,
}

impl TokenFile {
    /// For a pod that does not run yet.
    fn of(pod: &Pod) -> Self {
        let kubeconfig = Path::new(pod.env().get("KUBECONFIG").unwrap());
        let mut config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let user = config.pointer_mut("/users/0/user").unwrap();
        let token = user.get("token").and_then(Value::as_str).unwrap().to_owned();
        let path = kubeconfig.with_file_name("token");
        *user = json!({ "tokenFile": path });
        fs::write(kubeconfig, config.to_string()).unwrap();
        fs::write(&path, &token).unwrap();
        Self { path, token }
    }

    /// From now on, reading the token blocks.
    fn hangs(&self) {
        let pipe = self.path.with_extension("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::rename(pipe, &self.path).unwrap();
    }

    /// Opens the other end of the pipe, as soon as a process reads it.
    fn reader(&self) -> anyhow::Result<File> {
        let at_once = OFlags::NONBLOCK.bits().cast_signed();
        let end = OpenOptions::new().write(true).custom_flags(at_once).open(&self.path);
        end.context("no process reads it")
    }

    /// The waiting reader and all later readers get the token.
    fn comes(&self, mut reader: File) {
        let file = self.path.with_extension("file");
        fs::write(&file, &self.token).unwrap();
        fs::rename(file, &self.path).unwrap();
        reader.write_all(self.token.as_bytes()).unwrap();
    }
}
