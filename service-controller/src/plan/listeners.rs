//! Determines the listeners of a load balancer from the Service's ports and the settings of each port. This module is pure.
//!
//! A setting for all ports is ignored on ports to which it does not apply, such as the PROXY protocol on UDP. It is refused if it applies
//! to no port. A setting for one port must apply to that port. A cluster default is never refused.

use cloud_api_proto::v1alpha1::{
    Listener, Protocol,
    listener::{self as contract, TargetKind},
};

use super::{
    Refusal,
    annotations::{
        PortWishes, Wish, Wishes, keys,
        settings::Origin,
        values::{Algorithm, ListenerProtocol, ProxyProtocol},
    },
    service::{Port, Service, Transport},
};

/// The listeners in the sequence of the Service's ports, and the refusals.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
    pub(crate) refusals: Vec<Refusal>,
}

impl Listeners {
    pub(crate) fn of(service: &Service, wishes: &Wishes) -> Self {
        let mut listeners = Self::default();
        let everybody = CommonInputs::of(service, wishes);
        for (port, wishes) in service.ports.iter().zip(&wishes.ports) {
            let one = listeners.one(port, wishes, everybody);
            listeners.all.push(one);
        }
        listeners
    }

    fn one(&mut self, port: &Port, wishes: &PortWishes, everybody: CommonInputs) -> Listener {
        let application = self.application(port, wishes, everybody);
        Listener {
            name: port.name.clone(),
            protocol: protocol(port.transport).into(),
            port: port.port.into(),
            node_port: Some(port.node_port.into()),
            target_kind: TargetKind::NodePort.into(),
            idle_timeout: wishes.idle_timeout.as_ref().map(|wish| wish.value.into()),
            proxy_protocol: self.header(port, wishes, everybody).into(),
            tls_refs: self.certificates(application, wishes, everybody),
            algorithm: algorithm(wishes).into(),
            application: application.into(),
            connect_timeout: wishes.connect_timeout.as_ref().map(|wish| wish.value.into()),
            connection_limit: wishes.connection_limit.as_ref().map(|wish| wish.value),
            // The adapter may ignore the application protocol, so no capability is needed.
            app_protocol: port.app_protocol.clone(),
        }
    }

    fn header(
        &mut self,
        port: &Port,
        wishes: &PortWishes,
        everybody: CommonInputs,
    ) -> contract::ProxyProtocol {
        let wish = wishes.proxy_protocol.as_ref();
        let Some((wish, header)) = wish.and_then(|wish| Some((wish, header(wish.value)?))) else {
            return contract::ProxyProtocol::Off;
        };
        let here = port.transport == Transport::Tcp;
        let why = "applies to TCP ports only and the Service has none: remove the annotation";
        if !self.fits(wish, here, everybody.has_tcp, why) {
            return contract::ProxyProtocol::Off;
        }
        header
    }

    fn application(
        &mut self,
        port: &Port,
        wishes: &PortWishes,
        everybody: CommonInputs,
    ) -> contract::Application {
        let Some(wish) = &wishes.protocol else { return contract::Application::Unspecified };
        let (transport, application) = spoken(wish.value);
        let anywhere = if transport == Transport::Tcp { everybody.has_tcp } else { everybody.has_udp };
        let why =
            format!("applies to {transport} ports only and the Service has none: remove the annotation");
        let fits = self.fits(wish, port.transport == transport, anywhere, &why);
        if fits { application } else { contract::Application::Unspecified }
    }

    fn certificates(
        &mut self,
        application: contract::Application,
        wishes: &PortWishes,
        everybody: CommonInputs,
    ) -> Vec<String> {
        let here = ends_tls(application);
        match (&wishes.certificates, &wishes.protocol) {
            (Some(wish), _) => {
                let why = format!("no port terminates TLS: set {} to https or tls", keys::LISTENER_PROTOCOL);
                if !self.fits(wish, here, everybody.ends_tls, &why) {
                    return Vec::new();
                }
                wish.value.clone()
            }
            (None, Some(wish)) if here => {
                let why = format!(
                    "the load balancer terminates TLS: set its certificate with {}",
                    keys::TLS_CERT_REFS
                );
                self.refuse(wish.given.refusal(why));
                Vec::new()
            }
            (None, _) => Vec::new(),
        }
    }

    /// Whether the setting applies to this port. Refuses a setting that should apply but does not.
    fn fits<T>(&mut self, wish: &Wish<T>, here: bool, anywhere: bool, nowhere: &str) -> bool {
        match wish.given.origin {
            _ if here => (),
            Origin::Port => self.refuse(wish.given.refusal("does not apply to this port: remove it")),
            Origin::Service if !anywhere => self.refuse(wish.given.refusal(nowhere)),
            Origin::Service | Origin::Default => (),
        }
        here
    }

    /// Reports a refusal only once, even if the setting applies to several ports.
    fn refuse(&mut self, refusal: Refusal) {
        if !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct CommonInputs {
    has_tcp: bool,
    has_udp: bool,
    ends_tls: bool,
}

impl CommonInputs {
    fn of(service: &Service, wishes: &Wishes) -> Self {
        let has = |transport| service.ports.iter().any(|port| port.transport == transport);
        let ends = |(port, wishes): (&Port, &PortWishes)| {
            let protocol = wishes.protocol.as_ref().map(|wish| spoken(wish.value));
            protocol
                .is_some_and(|(transport, application)| transport == port.transport && ends_tls(application))
        };
        Self {
            has_tcp: has(Transport::Tcp),
            has_udp: has(Transport::Udp),
            ends_tls: service.ports.iter().zip(&wishes.ports).any(ends),
        }
    }
}

pub(crate) fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Sctp => Protocol::Sctp,
    }
}

fn algorithm(wishes: &PortWishes) -> contract::Algorithm {
    match wishes.algorithm.as_ref().map(|wish| wish.value) {
        None => contract::Algorithm::Unspecified,
        Some(Algorithm::RoundRobin) => contract::Algorithm::RoundRobin,
        Some(Algorithm::LeastConnections) => contract::Algorithm::LeastConnections,
        Some(Algorithm::SourceIp) => contract::Algorithm::SourceIp,
        Some(Algorithm::SourceIpPort) => contract::Algorithm::SourceIpPort,
    }
}

fn header(version: ProxyProtocol) -> Option<contract::ProxyProtocol> {
    match version {
        ProxyProtocol::Off => None,
        ProxyProtocol::V1 => Some(contract::ProxyProtocol::V1),
        ProxyProtocol::V2 => Some(contract::ProxyProtocol::V2),
    }
}

/// The transport of a listener protocol, and the application protocol that the load balancer handles.
fn spoken(protocol: ListenerProtocol) -> (Transport, contract::Application) {
    match protocol {
        ListenerProtocol::Tcp => (Transport::Tcp, contract::Application::Unspecified),
        ListenerProtocol::Udp => (Transport::Udp, contract::Application::Unspecified),
        ListenerProtocol::Http => (Transport::Tcp, contract::Application::Http),
        ListenerProtocol::Https => (Transport::Tcp, contract::Application::Https),
        ListenerProtocol::Tls => (Transport::Tcp, contract::Application::Tls),
    }
}

fn ends_tls(application: contract::Application) -> bool {
    matches!(application, contract::Application::Https | contract::Application::Tls)
}
