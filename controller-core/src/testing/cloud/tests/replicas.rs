//! These tests use a mirror with two replicas of an adapter. The replicas are real servers, and one of them is killed.

use std::{net::SocketAddr, sync::PoisonError, time::Duration};

use adapter_client::{ChannelSecurity, Connection};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic_health::{ServingStatus, server::HealthReporter};

use super::*;

const SERVICE: &str = "cloudadapter.v1alpha1.AdapterService";

/// One replica in a runtime of its own. Dropping this value is like killing the replica.
struct Replica {
    cloud: FakeCloud,
    health: HealthReporter,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Replica {
    async fn start(serves: ServingStatus) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.spawn(TcpListener::bind("127.0.0.1:0")).await;
        let listener = listener.expect("a task").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (health, service) = tonic_health::server::health_reporter();
        health.set_service_status(SERVICE, serves).await;
        let cloud = FakeCloud::new();
        let server = Server::builder().add_routes(routes(&cloud.shared)).add_service(service);
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { cloud, health, address, runtime: Some(runtime) }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The new leader does not know the resume token of the old leader's watch, so the new leader lists again. The mirror shows no gap.
#[tokio::test]
async fn a_mirror_resumes_at_the_new_leader() {
    let old = Replica::start(ServingStatus::Serving).await;
    let new = Replica::start(ServingStatus::NotServing).await;
    for replica in [&old, &new] {
        replica.cloud.put(instance("sim://north/i-1").named("a"));
    }
    let target = format!("static:///{},{}", old.address, new.address).parse().expect("a target");
    let connection = Connection::new(target, &ChannelSecurity::default()).expect("no conflict");
    let channel = connection.open().expect("a channel");
    let adapter = Adapter::over(channel, cluster(), &old.cloud.clock());
    let mirror: Mirror<String, String> = Mirror::new("instances", old.cloud.clock());
    let woken: Arc<Mutex<Vec<String>>> = Arc::default();
    let (follower, wakes) = (mirror.clone(), Arc::clone(&woken));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let wake = |change: crate::mirror::Change<String, String>| {
            wakes.lock().unwrap_or_else(PoisonError::into_inner).push(change.key);
        };
        follower.follow_cloud(&adapter, Instances, |item| item.name, wake).await;
    });
    soon("the mirror is synced", || mirror.is_synced()).await;
    assert_eq!((old.cloud.calls("WatchInstances"), new.cloud.calls("WatchInstances")), (1, 0));

    drop(old);
    new.health.set_service_status(SERVICE, ServingStatus::Serving).await;
    new.cloud.put(instance("sim://north/i-2").named("b"));
    soon("the new leader is followed", || names(&mirror) == ["a", "b"]).await;
    let woken = woken.lock().expect("not poisoned").clone();
    assert_eq!(woken, ["sim://north/i-1", "sim://north/i-2"], "no unchanged item is reported as changed");
}

/// Waits in real time, which real servers need.
async fn soon(what: &str, condition: impl Fn() -> bool) {
    let waits = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waits).await.expect(what);
}
