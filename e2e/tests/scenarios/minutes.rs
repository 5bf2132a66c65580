//! What is told only when it lasts for minutes, waited for all at once and beside the other tests: whose finalizer holds a Service, writes
//! that fail again and again, a worker that is stuck. And Events that are told over and over.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

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

/// So long a worker may be at one key, and another controller at a Service that shall go.
const PATIENCE: Duration = Duration::from_mins(5);
/// So long before that nothing is said yet.
const SHORTLY: Duration = seconds(10);

/// What cannot be written, each in its way: 0 stands for no answer at all.
const REFUSED: [(&str, u16); 4] = [
    ("/api/v1/namespaces/default/services/conflict/status", 409),
    ("/api/v1/namespaces/default/services/error/status", 500),
    ("/api/v1/namespaces/default/services/unavailable/status", 503),
    ("/api/v1/namespaces/default/services/silence/status", 0),
];

#[tokio::test]
async fn what_lasts_is_told_when_its_time_has_come_and_not_before() {
    let values = json!({
        "nodeController": {
            // Whoever has a Lease ends when it cannot be renewed, and is not stuck for long.
            "extraArgs": ["--leader-elect=false"],
            // One of them is stuck, and the others serve the pages.
            "extraEnv": [{ "name": "TOKIO_WORKER_THREADS", "value": "4" }],
        },
        "routeController": { "enabled": false },
        "adapter": { "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } } },
    });
    let mut bed = Bed::install_with(&values).await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get(SERVICES).unwrap()).unwrap();
    let token = TokenFile::of(bed.cluster.pods.look_at(NODES).unwrap());
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.told("Node", "a", "Synced").await.unwrap();
    tokio::join!(
        a_worker_that_is_stuck_is_not_alive(&bed, &token),
        who_holds_a_service_is_told(&bed),
        writes_that_fail_are_told(&bed, &proxy),
        a_repeated_event_counts(&bed),
    );
    assert_eq!(livez(&bed, SERVICES).await, 200, "a Service that cannot be written keeps no worker");
}

/// The volume with the token hangs, and a worker with it: no limit of its own helps whoever does not get back from a read.
async fn a_worker_that_is_stuck_is_not_alive(bed: &Bed, token: &TokenFile) {
    let kept = bed.nodes().get("a").await.unwrap().metadata.labels.unwrap();
    token.hangs();
    let mut edits = 0;
    // A token is read again when it is a minute old: these edits are undone until then.
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
    assert_eq!(livez(bed, NODES).await, 200, "so long it may take");
    let pod = bed.cluster.pods.look_at(NODES).unwrap();
    let told = eventually("it is not alive", WITHIN, || async {
        let Err(error) = pod.page("/livez").await else { bail!("it is") };
        Ok(format!("{error:#}"))
    });
    let told = told.await.unwrap();
    assert!(told.contains("503") && told.contains("Nodes: a worker has been at one key for 30"), "{told}");

    token.comes(reader);
    bed.until_node("a", "has its label again", |node| {
        let labels = node.metadata.labels.as_ref().context("it has none")?;
        ensure!(labels.get(TYPE[1]) == kept.get(TYPE[1]), "{labels:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(livez(bed, NODES).await, 200, "it goes on");
}

/// Its controller may be at work, and people hear of it only when that is unlikely.
async fn who_holds_a_service_is_told(bed: &Bed) {
    service("held").port(80).spec("type", json!("ClusterIP")).create(&bed.client()).await.unwrap();
    let theirs =
        PatchParams { field_manager: Some("vendor-controller-manager".to_owned()), ..<_>::default() };
    let finalizer = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    bed.services().patch("held", &theirs, &finalizer).await.unwrap();
    bed.services().delete("held", &DeleteParams::default()).await.unwrap();
    sleep(PATIENCE.checked_sub(SHORTLY).unwrap()).await;
    assert_eq!(bed.events("Service", "held").await.unwrap(), []);
    let told = bed.told("Service", "held", "HeldByAnother").await.unwrap();
    assert!(told.contains("vendor-controller-manager put it there"), "{told}");
    let held = bed.services().get("held").await.unwrap();
    assert_eq!(held.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert_eq!(bed.times("Service", "held", "HeldByAnother").await.unwrap(), 1);
    assert_eq!(bed.times("Service", "held", "DeletingLoadBalancer").await.unwrap(), 0);
}

/// Once or twice it may pass; what fails for the third time is told, and no more after that.
async fn writes_that_fail_are_told(bed: &Bed, proxy: &ApiProxy) {
    proxy.order(Trouble::Refuses("PATCH", &REFUSED));
    for (path, _) in REFUSED {
        service(service_of(path)).port(80).create(&bed.client()).await.unwrap();
    }
    let told = REFUSED.map(|(path, status)| async move {
        let name = service_of(path);
        let what = format!("{status} is told");
        let told = eventually(&what, 2 * WITHIN, || async {
            let (times, tries) = (failures(bed, name).await?, proxy.met(path));
            assert!(times == 0 || tries >= 3, "{status} is told when it was tried {tries} times");
            ensure!(times > 0, "tried {tries} times");
            Ok(())
        });
        told.await.unwrap();
        let told = bed.told("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        assert!(told.contains("add the finalizer"), "{told}");
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
        // The pauses have grown by now.
        let what = format!("{name} has an address");
        let served = eventually(&what, PATIENCE, || async {
            address(&bed.services().get(name).await?).context("it has none")
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

/// It is one object, which is not written each time and says in the end how often it was told.
async fn a_repeated_event_counts(bed: &Bed) {
    const ROUNDS: usize = 25;
    const REASON: &str = "EnsuredLoadBalancer";
    service("busy").port(80).create(&bed.client()).await.unwrap();
    bed.address("busy").await.unwrap();
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
    let counted = eventually("the Event counts what was told", WITHIN, || async {
        let log = fs::read_to_string(pod.log())?;
        let told = log.lines().filter(|line| line.contains(REASON) && line.contains("busy")).count();
        let mut events = bed.events("Service", "busy").await?;
        events.retain(|event| event.reason.as_deref() == Some(REASON));
        assert_eq!(events.len(), 1, "{events:?}");
        let event = events.pop().context("there is none")?;
        let count = event.count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        ensure!(told >= ROUNDS && count == told, "{count} of {told}");
        Ok(event.metadata.name.unwrap_or_default())
    });
    let name = counted.await.unwrap();
    let writes = bed.cluster.control_plane.audit_log().writes(pod.user()).unwrap();
    let of_it = writes.iter().filter(|it| it.resource == "events" && it.verb == "patch" && it.name == name);
    let (writes, most) = (of_it.count(), 1 + begin.elapsed().as_secs() / 10);
    assert!((2..=usize::try_from(most).unwrap()).contains(&writes), "{writes} writes, not {most} at most");
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
    /// Of a pod that does not run yet.
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

    /// From now on whoever reads it waits.
    fn hangs(&self) {
        let pipe = self.path.with_extension("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::rename(pipe, &self.path).unwrap();
    }

    /// The other end of it, as soon as somebody reads.
    fn reader(&self) -> anyhow::Result<File> {
        let at_once = OFlags::NONBLOCK.bits().cast_signed();
        let end = OpenOptions::new().write(true).custom_flags(at_once).open(&self.path);
        end.context("nobody reads it")
    }

    /// Whoever waits gets it, and so does everybody after that.
    fn comes(&self, mut reader: File) {
        let file = self.path.with_extension("file");
        fs::write(&file, &self.token).unwrap();
        fs::rename(file, &self.path).unwrap();
        reader.write_all(self.token.as_bytes()).unwrap();
    }
}
