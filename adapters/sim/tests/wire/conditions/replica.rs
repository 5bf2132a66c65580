//! Tests of adapters that do not serve: during the start, during the shutdown, or because another replica leads.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    WatchInstancesRequest, instance_service_client::InstanceServiceClient, watch_instances_response::Event,
};
use futures::StreamExt as _;
use tonic::Status;

use crate::{
    conditions::program::Program,
    conditions::world::{UNLIMITED, World, cloud, look_up},
    support::context,
    support::until,
};

const CALL_TIMEOUT: Duration = Duration::from_secs(20);

fn unused_port() -> String {
    format!("http://{}", test_support::ports::loopback().expect("a free port"))
}

pub(crate) async fn starting() -> Status {
    let adapter = Program::start(&unused_port(), UNLIMITED, &[]).await;
    look_up(&adapter, CALL_TIMEOUT).await.expect_err("no cloud is reachable yet")
}

/// Returns the error of a replica that cannot reach its API server and so never learns which replica leads.
pub(crate) async fn standby() -> Status {
    let cloud = cloud().await;
    let mut kubeconfig = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "{{apiVersion: v1, kind: Config, clusters: [{{name: c, cluster: {{server: \"{}\"}}}}], users: [{{name: u, user: {{}}}}], \
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x}}",
        unused_port()
    );
    std::io::Write::write_all(&mut kubeconfig, text.as_bytes()).expect("a written file");
    let path = kubeconfig.path().to_str().expect("a plain path");
    let flags =
        ["--replicas", "active-standby", "--advertise-address", "127.0.0.1:1", "--lease-namespace", "n"];
    let adapter =
        Program::start(&cloud.url, UNLIMITED, &[&flags[..], &["--kubeconfig", path]].concat()).await;
    let status = look_up(&adapter, CALL_TIMEOUT).await.expect_err("another replica serves");
    assert_eq!(cloud.counts().total, 0, "a standby makes no vendor calls");
    status
}

/// Returns the error with which a watch ends when the adapter shuts down.
pub(crate) async fn draining() -> Status {
    let world = World::start().await;
    let mut client = InstanceServiceClient::new(world.adapter.channel.clone());
    let request = WatchInstancesRequest { context: Some(context()), ..WatchInstancesRequest::default() };
    let mut watch = client.watch_instances(request).await.expect("a stream").into_inner();
    until("a complete listing", async || {
        let event = watch.next().await.expect("more").expect("no error").event;
        matches!(event, Some(Event::Synced(_)))
    })
    .await;
    world.adapter.stop().await;
    loop {
        if let Err(status) = watch.next().await.expect("a farewell") {
            return status;
        }
    }
}
