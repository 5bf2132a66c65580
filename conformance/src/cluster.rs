//! A virtual cluster: a unique cluster ID, and requests with this ID. Adapters distinguish clusters only by their IDs, so concurrent checks
//! do not see each other's objects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, Backend, BackendList, BatchGetInstancesRequest, DeleteLoadBalancerRequest,
    EnsureLoadBalancerRequest, Fence, Instance, InstanceRef, IpFamily, Listener, LoadBalancerKey,
    LoadBalancerSpec, NextHop, Owner, Protocol, PutBackendSetRequest, RequestContext, RouteDelete, RouteKey,
    RouteUpsert, instance_address, instance_ref::Ref, load_balancer_spec::Scheme,
    put_backend_set_request::Content,
};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::params::Samples;

/// Number of pod CIDRs in a cluster, each a `/28` within the cluster's own `/18`.
pub const POD_CIDRS: u16 = 1024;
/// Number of `/18`s in 10.0.0.0/8.
const NETWORKS: u64 = 1024;

/// The names of the writers in fences. An adapter that authenticates callers accepts only the shard names of the caller's own controller.
const BALANCERS: &str = "service-controller";
const ROUTES: &str = "route-controller";

/// Maximum time that a request takes to arrive. `max_staleness` must include this time, because the adapter subtracts `max_staleness` from
/// the time of arrival.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// A virtual cluster. Clones share its fence.
#[derive(Clone, Debug)]
pub struct Cluster {
    id: Arc<str>,
    /// Suffix of the fence scopes of this cluster's writers, and part of the input of all UIDs.
    shard: Arc<str>,
    network: u64,
    sequence: Arc<AtomicU64>,
    samples: Arc<Samples>,
}

/// The desired state of one load balancer. Checks may change `request` and `set` before they send the requests.
#[derive(Clone, Debug)]
pub struct Balancer {
    /// The Ensure request; [`Self::backends`] sets `spec.backend_set_id`.
    pub request: EnsureLoadBalancerRequest,
    /// The backend set that the specification refers to.
    pub set: PutBackendSetRequest,
}

impl Cluster {
    pub(crate) fn new(id: &str, network: u64, samples: Arc<Samples>) -> Self {
        let shard = "0".into();
        Self { id: id.into(), shard, network: network % NETWORKS, sequence: Arc::default(), samples }
    }

    /// Returns the same cluster with another shard, and therefore with other objects. If the adapter serves only one cluster, shards keep
    /// checks independent of each other.
    pub(crate) fn sharded(self, shard: &str) -> Self {
        Self { shard: shard.into(), ..self }
    }

    /// The cluster ID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A request context with this cluster ID.
    pub fn context(&self) -> RequestContext {
        let sequence = self.sequence.load(Ordering::Relaxed);
        RequestContext {
            cluster_id: self.id.to_string(),
            cluster_name: "conformance".to_owned(),
            request_id: format!("{}-{sequence}", self.id),
            ..RequestContext::default()
        }
    }

    /// A request context that demands a fresh answer from the vendor.
    pub fn live(&self) -> RequestContext {
        RequestContext { max_staleness: Some(prost_types::Duration::default()), ..self.context() }
    }

    /// A request context that accepts answers read at `then` or later.
    pub fn as_of(&self, then: Instant) -> RequestContext {
        let age = then.elapsed() + UNDER_WAY;
        // The conversion fails only for an age beyond the range of a protobuf duration.
        RequestContext { max_staleness: age.try_into().ok(), ..self.context() }
    }

    /// The next fence of the first writer of load balancers (epoch 1).
    pub fn fence(&self) -> Fence {
        self.fence_of(1, self.next())
    }

    /// A fence of the writer of load balancers.
    pub fn fence_of(&self, epoch: u64, sequence: u64) -> Fence {
        Fence { scope: format!("{BALANCERS}/{}", self.shard), epoch, sequence }
    }

    /// The next fence of the first writer of routes (epoch 1).
    pub fn route_fence(&self) -> Fence {
        self.route_fence_of(1, self.next())
    }

    /// A fence of the writer of routes.
    pub fn route_fence_of(&self, epoch: u64, sequence: u64) -> Fence {
        Fence { scope: format!("{ROUTES}/{}", self.shard), epoch, sequence }
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// A valid load balancer for the Service `shop/<name>`: on the internet, IPv4, TCP port 80, without backends.
    ///
    /// The same name always denotes the same Service. Add backends before sending the request.
    pub fn balancer(&self, name: &str) -> Balancer {
        let uid = self.uid(name);
        let request = EnsureLoadBalancerRequest {
            context: Some(self.context()),
            key: Some(LoadBalancerKey { cluster_id: self.id.to_string(), owner_uid: uid.clone() }),
            owner: Some(Owner {
                kind: "Service".to_owned(),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid,
            }),
            fence: Some(self.fence()),
            spec: Some(LoadBalancerSpec {
                class: self.samples.class.clone(),
                scheme: Scheme::Internet.into(),
                ip_families: vec![IpFamily::Ipv4.into()],
                listeners: vec![tcp(80)],
                parameters: self.samples.parameters.clone().into_iter().collect(),
                ..LoadBalancerSpec::default()
            }),
            ..EnsureLoadBalancerRequest::default()
        };
        let set = PutBackendSetRequest { context: Some(self.context()), ..PutBackendSetRequest::default() };
        Balancer { request, set }.backends(&[])
    }

    /// The UID of an object of this cluster, derived from its name.
    pub fn uid(&self, name: &str) -> String {
        uuid(&[&self.id, &self.shard, name])
    }

    /// The n-th pod CIDR of this cluster in canonical form, for `n` in 0..[`POD_CIDRS`]. Clusters of the same run have different pod CIDRs.
    pub fn pod_cidr(&self, n: u16) -> String {
        let base = (10_u32 << 24) | (u32::try_from(self.network).unwrap_or(0) << 14);
        let address = base | (u32::from(n % POD_CIDRS) << 4);
        format!("{}/28", std::net::Ipv4Addr::from_bits(address))
    }

    /// One CIDR that contains all pod CIDRs of the cluster, for the field `cluster_cidrs` of requests.
    pub fn cluster_cidr(&self) -> String {
        self.pod_cidr(0).replace("/28", "/18")
    }

    /// The route to the n-th pod CIDR through an instance, for the Node `node-<n>`.
    pub fn route(&self, n: u16, machine: &Instance) -> RouteUpsert {
        let name = format!("node-{n}");
        let uid = self.uid(&name);
        RouteUpsert {
            key: Some(RouteKey {
                cluster_id: self.id.to_string(),
                node_uid: uid.clone(),
                destination: self.pod_cidr(n),
            }),
            next_hop: Some(NextHop { provider_id: machine.provider_id.clone(), ..NextHop::default() }),
            owner: Some(Owner { kind: "Node".to_owned(), namespace: String::new(), name, uid }),
        }
    }

    /// A request that creates these routes.
    pub fn routes(&self, upserts: Vec<RouteUpsert>) -> ApplyRoutesRequest {
        ApplyRoutesRequest {
            context: Some(self.context()),
            fence: Some(self.route_fence()),
            upserts,
            cluster_cidrs: vec![self.cluster_cidr()],
            ..ApplyRoutesRequest::default()
        }
    }

    /// A request for these instances by provider ID, with the freshness of `context`.
    pub fn instances<'a>(
        &self,
        context: RequestContext,
        provider_ids: impl IntoIterator<Item = &'a str>,
    ) -> BatchGetInstancesRequest {
        let refs = provider_ids
            .into_iter()
            .map(|id| InstanceRef { r#ref: Some(Ref::ProviderId(id.to_owned())), ..InstanceRef::default() });
        BatchGetInstancesRequest { context: Some(context), refs: refs.collect() }
    }
}

impl Balancer {
    /// Sets these instances as backends.
    pub fn backends(mut self, machines: &[Instance]) -> Self {
        let backends: Vec<Backend> = machines.iter().map(backend).collect();
        let list = BackendList { backends };
        let digest = Sha256::digest(list.encode_to_vec());
        self.set.id = hex(&digest);
        self.set.content = Some(Content::Full(list));
        let set = self.set.id.clone();
        self.spec(|spec| spec.backend_set_id = set)
    }

    /// Sets the listeners.
    pub fn listeners(self, listeners: impl Into<Vec<Listener>>) -> Self {
        let listeners = listeners.into();
        self.spec(|spec| spec.listeners = listeners)
    }

    /// Changes the specification.
    pub fn spec(mut self, change: impl FnOnce(&mut LoadBalancerSpec)) -> Self {
        change(self.request.spec.get_or_insert_default());
        self
    }

    /// Sets the fence of the writer.
    pub fn fence(mut self, fence: Fence) -> Self {
        self.request.fence = Some(fence);
        self
    }

    /// The key of the load balancer.
    pub fn key(&self) -> LoadBalancerKey {
        self.request.key.clone().unwrap_or_default()
    }

    /// The request by which the same writer deletes the load balancer.
    pub fn removal(&self) -> DeleteLoadBalancerRequest {
        let EnsureLoadBalancerRequest { context, key, owner, fence, known, .. } = self.request.clone();
        DeleteLoadBalancerRequest {
            context,
            key,
            owner,
            fence,
            known,
            ..DeleteLoadBalancerRequest::default()
        }
    }
}

/// The deletion of the route that an upsert creates.
pub fn removal(upsert: &RouteUpsert) -> RouteDelete {
    let RouteUpsert { key, next_hop, .. } = upsert.clone();
    RouteDelete { key, next_hop, ..RouteDelete::default() }
}

/// A TCP listener with its own node port.
pub fn tcp(port: u32) -> Listener {
    Listener {
        name: format!("tcp-{port}"),
        protocol: Protocol::Tcp.into(),
        port,
        node_port: Some(30_000_u32.saturating_add(port % 2768)),
        ..Listener::default()
    }
}

/// A UDP listener with its own node port.
pub fn udp(port: u32) -> Listener {
    Listener { name: format!("udp-{port}"), protocol: Protocol::Udp.into(), ..tcp(port) }
}

/// An instance as a backend, with one internal address per family.
pub fn backend(machine: &Instance) -> Backend {
    let internal = i32::from(instance_address::Type::InternalIp);
    let mut addresses: Vec<(u32, String)> = Vec::new();
    for address in machine.addresses.iter().filter(|address| address.r#type == internal) {
        let known = addresses.iter().any(|(family, _ip)| *family == address.family);
        if let (Some(instance_address::Value::Ip(ip)), false) = (&address.value, known) {
            addresses.push((address.family, ip.clone()));
        }
    }
    Backend {
        provider_id: machine.provider_id.clone(),
        node_name: machine.name.clone(),
        addresses: addresses.into_iter().map(|(_family, ip)| ip).collect(),
        zone: machine.zone.clone(),
        ..Backend::default()
    }
}

/// Derives a UUID from words. The UUID has version 8, which permits any content. Source: RFC 9562, section 5.8.
pub(crate) fn uuid(words: &[&str]) -> String {
    let digest = hex(&Sha256::digest(words.join("/")));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_share_no_pod_cidr() {
        let cluster = |network| Cluster::new("c", network, Arc::default());
        assert_eq!(cluster(0).cluster_cidr(), "10.0.0.0/18");
        assert_eq!(cluster(0).pod_cidr(POD_CIDRS - 1), "10.0.63.240/28");
        assert_eq!(cluster(1).pod_cidr(0), "10.0.64.0/28");
        assert_eq!(cluster(1023).pod_cidr(1023), "10.255.255.240/28");
    }

    #[test]
    fn uids_depend_on_names_only() {
        let cluster = Cluster::new("c", 0, Arc::default());
        assert_eq!(cluster.uid("web"), cluster.uid("web"));
        assert_ne!(cluster.uid("web"), Cluster::new("d", 0, Arc::default()).uid("web"));
        assert_ne!(cluster.uid("web"), cluster.clone().sharded("1").uid("web"));
        assert_eq!(cluster.uid("web").len(), 36);
    }

    #[test]
    fn other_backends_have_another_set_id() {
        let cluster = Cluster::new("c", 0, Arc::default());
        let web = cluster.balancer("web");
        let machine = Instance { provider_id: "sim://a/b".into(), ..Instance::default() };
        let more = web.clone().backends(&[machine]);
        assert_ne!(web.set.id, more.set.id);
        assert_eq!(more.request.spec.as_ref().map(|spec| &spec.backend_set_id), Some(&more.set.id));
    }
}
