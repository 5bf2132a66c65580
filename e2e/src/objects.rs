//! Kubernetes objects as kubelets and users create them: Nodes and Services.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Map, Value, from_value, json};

/// The taint that an external cloud provider removes.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A node to register; see [`node`].
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Value>,
    pod_cidrs: Vec<String>,
    provider_id: Option<String>,
    ready: Ready,
}

/// A node as a kubelet with `--cloud-provider=external` registers it: tainted, without provider ID, ready, and with its hostname as the
/// only address.
pub fn node(name: &str) -> NodeBuilder {
    let labels = [("hostname", name), ("os", "linux"), ("arch", "amd64")];
    NodeBuilder {
        name: name.to_owned(),
        labels: labels.map(|(key, value)| (format!("kubernetes.io/{key}"), value.to_owned())).into(),
        annotations: BTreeMap::new(),
        taints: vec![json!({ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" })],
        pod_cidrs: Vec::new(),
        provider_id: None,
        ready: Ready::True,
    }
}

impl NodeBuilder {
    /// Adds a pod network, such as `10.244.1.0/24`.
    #[must_use]
    pub fn pods(mut self, cidr: &str) -> Self {
        self.pod_cidrs.push(cidr.to_owned());
        self
    }

    /// Makes the node not ready: its kubelet reports that it cannot run pods yet.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        self.ready = Ready::False;
        self
    }

    /// Sets the provider ID, as a kubelet with `--provider-id` does.
    #[must_use]
    pub fn provider_id(mut self, id: &str) -> Self {
        self.provider_id = Some(id.to_owned());
        self
    }

    /// Sets the address, as a kubelet with `--node-ip` does.
    #[must_use]
    pub fn node_ip(self, ip: &str) -> Self {
        self.annotation("alpha.kubernetes.io/provided-node-ip", ip)
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        self.taints.push(json!({ "key": key, "effect": effect }));
        self
    }

    /// Builds the Node.
    pub fn build(self) -> anyhow::Result<Node> {
        let resources = json!({ "cpu": "2", "memory": "4Gi", "pods": "110" });
        let object = json!({
            "metadata": { "name": self.name, "labels": self.labels, "annotations": self.annotations },
            "spec": {
                "taints": self.taints,
                "podCIDR": self.pod_cidrs.first(),
                "podCIDRs": self.pod_cidrs,
                "providerID": self.provider_id,
            },
            "status": {
                "addresses": [{ "type": "Hostname", "address": self.name }],
                "conditions": [self.ready.condition()],
                "capacity": resources,
                "allocatable": resources,
            },
        });
        from_value(object).context("invalid Node")
    }

    /// Registers the node.
    pub async fn register(self, client: &Client) -> anyhow::Result<Node> {
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &self.build()?).await.context("cannot register the node")
    }
}

/// Publishes an endpoint of a Service in the namespace `default`, as the endpoint slice controller does for a pod.
pub async fn publish_endpoint(client: &Client, service: &str, ready: bool) -> anyhow::Result<()> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": format!("{service}-e2e"), "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["192.0.2.7"], "conditions": { "ready": ready } }],
    });
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    let params = PatchParams::apply("e2e").force();
    let written = slices.patch(&format!("{service}-e2e"), &params, &Patch::Apply(&slice)).await;
    written.map(drop).context("cannot write the EndpointSlice")
}

/// Sets the Ready condition, as a kubelet does.
pub async fn set_ready(client: &Client, node: &str, ready: Ready) -> anyhow::Result<()> {
    let patch = json!({ "status": { "conditions": [ready.condition()] } });
    let nodes: Api<Node> = Api::all(client.clone());
    let done = nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await;
    done.map(drop).with_context(|| format!("cannot set the condition of {node}"))
}

/// The state of a Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The node can run pods.
    True,
    /// The kubelet reports that the node cannot run pods.
    False,
    /// The kubelet has stopped reporting.
    Unknown,
}

impl Ready {
    fn condition(self) -> Value {
        let (status, reason, message) = match self {
            Self::True => ("True", "KubeletReady", "kubelet is posting ready status"),
            Self::False => ("False", "KubeletNotReady", "container runtime network not ready"),
            Self::Unknown => ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
        };
        json!({ "type": "Ready", "status": status, "reason": reason, "message": message })
    }
}

/// Deletes a Node object. A kubelet does not do this when its instance is deleted.
pub async fn delete_node(client: &Client, node: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let done = nodes.delete(node, &DeleteParams::default()).await;
    done.map(drop).with_context(|| format!("cannot delete node {node}"))
}

/// A Service to create; see [`service`].
#[derive(Clone, Debug)]
pub struct ServiceBuilder {
    name: String,
    namespace: String,
    annotations: BTreeMap<String, String>,
    spec: Map<String, Value>,
    ports: Vec<Value>,
}

/// A Service of type LoadBalancer, in the namespace `default` unless another one is set.
pub fn service(name: &str) -> ServiceBuilder {
    let spec = [("type", json!("LoadBalancer")), ("selector", json!({ "app": name }))];
    ServiceBuilder {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        annotations: BTreeMap::new(),
        spec: spec.map(|(field, value)| (field.to_owned(), value)).into_iter().collect(),
        ports: Vec::new(),
    }
}

impl ServiceBuilder {
    /// Sets the namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Adds a TCP port; the API server chooses its node port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.port_of("TCP", port)
    }

    /// Adds a port with a protocol.
    #[must_use]
    pub fn port_of(mut self, protocol: &str, port: u16) -> Self {
        let name = format!("{}-{port}", protocol.to_lowercase());
        self.ports.push(json!({ "name": name, "protocol": protocol, "port": port }));
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets another field of the spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }

    /// Builds the Service.
    pub fn build(mut self) -> anyhow::Result<Service> {
        self.spec.insert("ports".to_owned(), json!(self.ports));
        let object = json!({
            "metadata": { "name": self.name, "namespace": self.namespace, "annotations": self.annotations },
            "spec": self.spec,
        });
        from_value(object).context("invalid Service")
    }

    /// Creates the Service.
    pub async fn create(self, client: &Client) -> anyhow::Result<Service> {
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace);
        services.create(&PostParams::default(), &self.build()?).await.context("cannot create the Service")
    }
}

/// The Events on an object, oldest first, as `Reason: message`.
pub async fn events_on(client: &Client, kind: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let events: Api<Event> = Api::all(client.clone());
    let of = ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    let mut events = events.list(&of).await.context("cannot list events")?.items;
    events.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    let line =
        |event: Event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
    Ok(events.into_iter().map(line).collect())
}
