//! Builds Services, for example `service("web").port(80).annotation("…", "…")`

use k8s_openapi::{
    api::core::v1::{
        LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::{BEGIN, node::insert};

/// Starts to build a Service of type LoadBalancer in namespace `default`, without ports. The UID of the Service is `uid-<name>`.
pub fn service(name: &str) -> ServiceBuilder {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        uid: Some(format!("uid-{name}")),
        creation_timestamp: Some(Time(BEGIN)),
        ..ObjectMeta::default()
    };
    let spec = ServiceSpec {
        type_: Some("LoadBalancer".to_owned()),
        ip_families: Some(vec!["IPv4".to_owned()]),
        external_traffic_policy: Some("Cluster".to_owned()),
        session_affinity: Some("None".to_owned()),
        ..ServiceSpec::default()
    };
    ServiceBuilder(Service { metadata, spec: Some(spec), status: Some(ServiceStatus::default()) })
}

/// Builds a Service.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServiceBuilder(Service);

impl ServiceBuilder {
    /// Sets another namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.metadata.namespace = Some(namespace.to_owned());
        self
    }

    /// Sets the type.
    pub fn of_type(mut self, type_: &str) -> Self {
        self.spec().type_ = Some(type_.to_owned());
        self
    }

    /// Adds a TCP port, named `tcp-<port>`. Its node port is 30000 + port.
    pub fn port(self, port: i32) -> Self {
        self.port_of("TCP", port)
    }

    /// Adds a port of a protocol, named `<protocol>-<port>`. Its node port is 30000 + port.
    pub fn port_of(mut self, protocol: &str, port: i32) -> Self {
        let port = ServicePort {
            name: Some(format!("{}-{port}", protocol.to_lowercase())),
            protocol: Some(protocol.to_owned()),
            port,
            node_port: Some(30_000 + port),
            ..ServicePort::default()
        };
        self.spec().ports.get_or_insert_default().push(port);
        self
    }

    /// Sets the load balancer class.
    pub fn class(mut self, class: &str) -> Self {
        self.spec().load_balancer_class = Some(class.to_owned());
        self
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.annotations, key, value);
        self
    }

    /// Adds a finalizer.
    pub fn finalizer(mut self, finalizer: &str) -> Self {
        self.0.metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
        self
    }

    /// Marks the Service for deletion.
    pub fn deleted(mut self) -> Self {
        self.0.metadata.deletion_timestamp = Some(Time(BEGIN));
        self
    }

    /// Adds this address to the status, in the form in which the API server stores it.
    pub fn ingress(mut self, ip: &str) -> Self {
        let ingress = LoadBalancerIngress {
            ip: Some(ip.to_owned()),
            ip_mode: Some("VIP".to_owned()),
            ..LoadBalancerIngress::default()
        };
        let status = self.0.status.get_or_insert_default();
        let load_balancer: &mut LoadBalancerStatus = status.load_balancer.get_or_insert_default();
        load_balancer.ingress.get_or_insert_default().push(ingress);
        self
    }

    /// Makes any other change.
    pub fn with(mut self, change: impl FnOnce(&mut ServiceSpec)) -> Self {
        change(self.spec());
        self
    }

    /// Returns the Service.
    #[must_use]
    pub fn build(self) -> Service {
        self.0
    }

    fn spec(&mut self) -> &mut ServiceSpec {
        self.0.spec.get_or_insert_default()
    }
}

impl From<ServiceBuilder> for Service {
    fn from(builder: ServiceBuilder) -> Self {
        builder.0
    }
}
