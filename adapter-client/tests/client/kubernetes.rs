//! Tests of `kubernetes:///` with a fake API server.

use std::convert::Infallible;

use adapter_client::{AdapterChannel, ChannelSecurity, Connection};
use futures::{StreamExt as _, stream::BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::{
    ask, ask_within,
    replica::{Replica, Setup},
};

/// A fake API server with one EndpointSlice. `None`: requests are forbidden.
#[derive(Clone)]
struct FakeApi(watch::Sender<Option<Value>>);

impl FakeApi {
    fn new(slice: Option<Value>) -> Self {
        Self(watch::Sender::new(slice))
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = api.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<bytes::Bytes, Infallible>> {
        let path = "/apis/discovery.k8s.io/v1/namespaces/cloud/endpointslices";
        let query = request.uri().query().unwrap_or_default();
        assert_eq!(request.uri().path(), path);
        assert!(query.contains("labelSelector=kubernetes.io%2Fservice-name%3Dadapter"), "{query}");
        let mut slices = self.0.subscribe();
        let Some(slice) = slices.borrow_and_update().clone() else {
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": 403, "status": "Failure",
                "reason": "Forbidden", "message": "endpointslices is forbidden"});
            return respond(403, futures::stream::iter([status]).boxed());
        };
        if query.contains("watch=true") {
            let changes = WatchStream::from_changes(slices).filter_map(std::future::ready);
            return respond(200, changes.map(|slice| json!({"type": "MODIFIED", "object": slice})).boxed());
        }
        let list = json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": [slice]});
        respond(200, futures::stream::iter([list]).boxed())
    }
}

fn respond(
    status: u16,
    lines: BoxStream<'static, Value>,
) -> Response<UnsyncBoxBody<bytes::Bytes, Infallible>> {
    let frames = lines.map(|line| Ok(http_body::Frame::data(format!("{line}\n").into())));
    let body = StreamBody::new(frames).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// Builds an EndpointSlice with the adapter's port, the metrics port, and one endpoint for each address, with its conditions.
fn slice(port: u16, endpoints: &[(&str, Value)]) -> Value {
    let endpoint =
        |(address, conditions): &(&str, Value)| json!({"addresses": [address], "conditions": conditions});
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {"name": "adapter-x", "namespace": "cloud", "resourceVersion": "2"},
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 1}, {"name": "grpc", "port": port}],
    })
}

fn open(target: &str, api: &FakeApi) -> AdapterChannel {
    let connection = Connection::new(target.parse().unwrap(), &ChannelSecurity::default()).unwrap();
    connection.through(api.client()).open().unwrap()
}

async fn at(host: [u8; 4], port: u16, name: &'static str) -> Replica {
    Replica::start(Setup { listen: (host, port).into(), ..Setup::new(name) }).await
}

#[tokio::test]
async fn the_endpoints_of_a_service_are_its_replicas() {
    let a = at([127, 0, 0, 2], 0, "a").await;
    let port = a.address.port();
    let b = at([127, 0, 0, 3], port, "b").await;
    b.lead(false).await;
    let ready = json!({"ready": true});
    let api = FakeApi::new(Some(slice(port, &[("127.0.0.2", ready.clone()), ("127.0.0.3", json!({}))])));
    let channel = open("kubernetes:///cloud/adapter", &api);
    assert_eq!(ask(&channel).await.unwrap(), "a");
    a.lead(false).await;
    b.lead(true).await;
    assert_eq!(ask(&channel).await.unwrap(), "b");

    // A new replica replaces both old replicas.
    let c = at([127, 0, 0, 4], port, "c").await;
    api.0.send_replace(Some(slice(port, &[("127.0.0.4", ready)])));
    drop((a, b));
    assert_eq!(ask(&channel).await.unwrap(), "c");
    drop(c);
}

#[tokio::test]
async fn a_port_is_taken_by_its_name() {
    let a = at([127, 0, 0, 2], 0, "a").await;
    let api = FakeApi::new(Some(slice(a.address.port(), &[("127.0.0.2", json!({"ready": true}))])));
    assert_eq!(ask(&open("kubernetes:///cloud/adapter:grpc", &api)).await.unwrap(), "a");
    let limit = std::time::Duration::from_millis(500);
    let error = ask_within(&open("kubernetes:///cloud/adapter:other", &api), limit).await.unwrap_err();
    assert!(error.message().contains("no replica is known yet"), "{error}");
}

#[tokio::test]
async fn forbidden_endpoint_slices_are_reported_and_retried() {
    let a = at([127, 0, 0, 2], 0, "a").await;
    let api = FakeApi::new(None);
    let channel = open("kubernetes:///cloud/adapter", &api);
    let error = ask_within(&channel, std::time::Duration::from_millis(500)).await.unwrap_err();
    let said = error.message();
    assert!(said.contains("cannot watch the EndpointSlices of cloud/adapter"), "{said}");
    assert!(said.contains("endpointslices is forbidden"), "{said}");
    api.0.send_replace(Some(slice(a.address.port(), &[("127.0.0.2", json!({"ready": true}))])));
    assert_eq!(ask(&channel).await.unwrap(), "a");
}
