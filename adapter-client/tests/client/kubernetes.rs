//! Tests of `kubernetes:///` with the fake API server of the controllers.

use adapter_client::{AdapterChannel, ChannelSecurity, Connection};
use controller_core::testing::{FakeKube, Fault, Verb};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::{
    ask, ask_within,
    replica::{Replica, Setup},
};

/// Creates an API server with a slice of the Service `adapter`, and one of another Service.
fn api(port: u16, endpoints: &[(&str, Value)]) -> FakeKube {
    let kube = FakeKube::new();
    kube.put::<EndpointSlice>(slice("adapter", port, endpoints));
    kube.put::<EndpointSlice>(slice("other", port, &[("192.0.2.1", json!({"ready": true}))]));
    kube
}

/// Builds a Service's EndpointSlice with the adapter's port, the metrics port, and one endpoint for each address, with its conditions.
fn slice(service: &str, port: u16, endpoints: &[(&str, Value)]) -> EndpointSlice {
    let endpoint =
        |(address, conditions): &(&str, Value)| json!({"addresses": [address], "conditions": conditions});
    let slice = json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {
            "name": format!("{service}-x"), "namespace": "cloud", "labels": {"kubernetes.io/service-name": service},
        },
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 1}, {"name": "grpc", "port": port}],
    });
    serde_json::from_value(slice).unwrap()
}

fn open(target: &str, api: &FakeKube) -> AdapterChannel {
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
    let api = api(port, &[("127.0.0.2", ready.clone()), ("127.0.0.3", json!({}))]);
    let channel = open("kubernetes:///cloud/adapter", &api);
    assert_eq!(ask(&channel).await.unwrap(), "a");
    a.lead(false).await;
    b.lead(true).await;
    assert_eq!(ask(&channel).await.unwrap(), "b");

    // A new replica replaces both old replicas.
    let c = at([127, 0, 0, 4], port, "c").await;
    api.put::<EndpointSlice>(slice("adapter", port, &[("127.0.0.4", ready)]));
    drop((a, b));
    assert_eq!(ask(&channel).await.unwrap(), "c");
    drop(c);
}

#[tokio::test]
async fn a_port_is_taken_by_its_name() {
    let a = at([127, 0, 0, 2], 0, "a").await;
    let api = api(a.address.port(), &[("127.0.0.2", json!({"ready": true}))]);
    assert_eq!(ask(&open("kubernetes:///cloud/adapter:grpc", &api)).await.unwrap(), "a");
    let limit = std::time::Duration::from_millis(500);
    let error = ask_within(&open("kubernetes:///cloud/adapter:other", &api), limit).await.unwrap_err();
    assert!(error.message().contains("no replica is known yet"), "{error}");
}

#[tokio::test]
async fn forbidden_endpoint_slices_are_reported_and_retried() {
    let a = at([127, 0, 0, 2], 0, "a").await;
    let api = api(a.address.port(), &[("127.0.0.2", json!({"ready": true}))]);
    api.order(Fault::status(403).on(Verb::List, "endpointslices"));
    let channel = open("kubernetes:///cloud/adapter", &api);
    let error = ask_within(&channel, std::time::Duration::from_millis(500)).await.unwrap_err();
    let said = error.message();
    assert!(said.contains("cannot watch the EndpointSlices of cloud/adapter"), "{said}");
    assert!(said.contains("ordered by the test"), "{said}");
    api.heal();
    assert_eq!(ask(&channel).await.unwrap(), "a");
}
