//! Discovery by the EndpointSlices of a Service. Requires the permissions `get`, `list` and `watch` on `endpointslices` in the namespace of
//! the Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};
use tokio::{sync::watch, time::sleep};
use tracing::warn;

use crate::{
    connector::Address,
    replicas::Found,
    target::{HostPort, ServicePort},
};

/// The label that assigns a slice to its Service. Source: Kubernetes, "EndpointSlices".
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The name of the port that is used if the target names no port and the Service has several.
const DEFAULT_PORT: &str = "grpc";
/// The API server ends a watch after this number of seconds; the default of kube is 290. kube replaces a watch that has been silent for 5 s
/// longer than this.
const WATCH_SECONDS: u32 = 30;
/// First pause after a failed watch. The pause doubles after each failure, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The addresses in each slice, by the name of the slice.
type Slices = BTreeMap<String, BTreeSet<Address>>;

/// Updates `found` from the Service's EndpointSlices. Never returns; the caller drops it to stop.
pub(crate) async fn follow(kube: Client, service: ServicePort, found: watch::Sender<Found>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = follow_watch(&kube, &service, &found, &mut pause).await;
        let ServicePort { namespace, service, .. } = &service;
        let trouble = format!("cannot watch the EndpointSlices of {namespace}/{service}: {error}");
        if found.borrow().trouble.is_none() {
            warn!(namespace, service, %error, "Cannot watch EndpointSlices; keeping the known replicas");
        }
        found.send_modify(|found| found.trouble = Some(trouble));
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// Lists and watches until an error occurs, and returns that error.
async fn follow_watch(
    kube: &Client,
    service: &ServicePort,
    found: &watch::Sender<Found>,
    pause: &mut Duration,
) -> String {
    let slices = Api::<EndpointSlice>::namespaced(kube.clone(), &service.namespace);
    let labels = format!("{SERVICE_LABEL}={}", service.service);
    let ours = watcher::Config::default().labels(&labels).timeout(WATCH_SECONDS);
    let mut events = pin!(watcher(slices, ours));
    let (mut known, mut listing) = (Slices::new(), Slices::new());
    let mut listed = false;
    loop {
        let event = match events.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => return error.to_string(),
            None => return "the watch ended".to_owned(),
        };
        match event {
            Event::Init => (listing, listed) = (Slices::new(), false),
            Event::InitApply(slice) => drop(listing.insert(slice.name_any(), addresses(&slice, service))),
            Event::InitDone => (known, listed) = (std::mem::take(&mut listing), true),
            Event::Apply(slice) => drop(known.insert(slice.name_any(), addresses(&slice, service))),
            Event::Delete(slice) => drop(known.remove(&slice.name_any())),
        }
        if listed {
            *pause = FIRST_PAUSE;
            let new = Found { addresses: known.values().flatten().cloned().collect(), trouble: None };
            found.send_if_modified(|found| {
                let changed = *found != new;
                *found = new;
                changed
            });
        }
    }
}

/// Returns the endpoints of one slice, ready or not, because each replica itself reports whether it serves.
fn addresses(slice: &EndpointSlice, service: &ServicePort) -> BTreeSet<Address> {
    let Some(port) = port(slice, service) else { return BTreeSet::new() };
    let hosts = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    hosts.map(|host| Address::Tcp(HostPort { host: host.clone(), port })).collect()
}

/// Returns the port that the target names. If the target names no port, returns the Service's only port, or the port named `grpc`.
fn port(slice: &EndpointSlice, service: &ServicePort) -> Option<u16> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let named = |name: &str| ports.iter().find(|port| port.name.as_deref() == Some(name));
    let port = match (&service.port, ports) {
        (Some(name), _) => named(name),
        (None, [only]) => Some(only),
        (None, _) => named(DEFAULT_PORT),
    };
    port?.port?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

    use super::*;

    #[test]
    fn endpoints_that_are_not_ready_are_used() {
        let endpoint = |host: &str, ready, serving| Endpoint {
            addresses: vec![host.to_owned()],
            conditions: Some(EndpointConditions { ready, serving, terminating: None }),
            ..Endpoint::default()
        };
        let slice = EndpointSlice {
            endpoints: vec![
                endpoint("192.0.2.1", Some(true), Some(true)),
                endpoint("192.0.2.2", Some(false), Some(false)),
                endpoint("192.0.2.3", None, None),
            ],
            ports: Some(vec![EndpointPort { port: Some(1), ..EndpointPort::default() }]),
            ..EndpointSlice::default()
        };
        let service =
            ServicePort { namespace: "cloud".to_owned(), service: "adapter".to_owned(), port: None };
        let found: Vec<_> = addresses(&slice, &service).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"]);
    }

    #[test]
    fn a_port_is_found_by_name_or_if_there_is_only_one() {
        let ports = |ports: &[(&str, i32)]| {
            let port = |&(name, port): &(&str, i32)| EndpointPort {
                name: Some(name.to_owned()),
                port: Some(port),
                ..EndpointPort::default()
            };
            EndpointSlice { ports: Some(ports.iter().map(port).collect()), ..EndpointSlice::default() }
        };
        for (slice, name, found) in [
            (ports(&[("any", 1)]), None, Some(1)),
            (ports(&[("http", 1), ("grpc", 2)]), None, Some(2)),
            (ports(&[("http", 1), ("api", 2)]), None, None),
            (ports(&[("http", 1), ("api", 2)]), Some("api"), Some(2)),
            (ports(&[("http", 1)]), Some("api"), None),
            (ports(&[("any", 70_000)]), None, None),
            (EndpointSlice::default(), None, None),
        ] {
            let (namespace, service) = ("cloud".to_owned(), "adapter".to_owned());
            let wanted = ServicePort { namespace, service, port: name.map(str::to_owned) };
            assert_eq!(port(&slice, &wanted), found, "{wanted:?} in {:?}", slice.ports);
        }
    }
}
