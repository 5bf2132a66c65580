//! Determines the health check of the nodes only from the Service and its health-check annotations. This module is pure.

use cloud_api_proto::v1alpha1::{HealthCheck, Listener, Protocol, health_check::Kind};

use super::{
    Refusal,
    annotations::{
        Health, Wish, keys,
        settings::Origin,
        values::{HealthMode, HealthProtocol, Switch},
    },
    bounds::KUBE_PROXY_PORT,
    listeners::protocol,
    service::{Port, Service, Traffic},
};

/// Path of the health endpoints of kube-proxy and its replacements. The endpoint for one Service is on `spec.healthCheckNodePort`, and the
/// endpoint for the node is on a port of kube-proxy.
const HEALTH_PATH: &str = "/healthz";

/// The health check, and the setting that selected it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Probe {
    /// The health check. `None`: the driver chooses the health check.
    pub(crate) check: Option<HealthCheck>,
    /// The setting that requires HTTP, if the health check uses HTTP.
    pub(crate) field: String,
}

pub(crate) fn probe(service: &Service, wishes: &Health) -> Result<Probe, Vec<Refusal>> {
    if let Some(Wish { value: Switch::Off, .. }) = wishes.enabled {
        let none = HealthCheck { kind: Kind::None.into(), ..HealthCheck::default() };
        return Ok(Probe { check: Some(none), ..Probe::default() });
    }
    let Probe { check, mut field } = basis(service, wishes.mode.as_ref()).map_err(|refusal| vec![refusal])?;
    let mut refusals = Vec::new();
    let mut chosen = check.clone().unwrap_or_default();
    if let Some(wish) = &wishes.protocol {
        field.clone_from(&wish.given.place);
        by_protocol(wish.value, &mut chosen);
    }
    if let Some(wish) = &wishes.port {
        chosen.port = Some(wish.value);
    }
    match &wishes.path {
        Some(wish) if chosen.kind() == Kind::Http => chosen.path.clone_from(&wish.value),
        Some(wish) if wish.given.origin != Origin::Default => {
            let why = format!(
                "only HTTP has paths: set {} to http, or remove the annotation",
                keys::HEALTH_PROTOCOL
            );
            refusals.push(wish.given.refusal(why));
        }
        Some(_) | None => (),
    }
    refusals.extend(too_long(wishes));
    let tuned = tune(wishes, &mut chosen);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let said = wishes.protocol.is_some() || wishes.port.is_some();
    let check = match (check, tuned) {
        (None, Some(wish)) if !said && wish != Origin::Default => return Err(vec![nothing_to_probe()]),
        (None, _) if !said => None,
        (None | Some(_), _) => Some(chosen),
    };
    Ok(Probe { check, field })
}

/// Returns the health check that the mode implies. With `Local`, the node reports whether it has an endpoint. With `Cluster`, any node is
/// healthy if its node port accepts connections.
fn basis(service: &Service, mode: Option<&Wish<HealthMode>>) -> Result<Probe, Refusal> {
    let place = |default: &str| mode.map_or_else(|| default.to_owned(), |wish| wish.given.place.clone());
    let check = match (mode.map_or(HealthMode::Auto, |wish| wish.value), service.traffic) {
        (HealthMode::KubeProxy, _) => Some(http(KUBE_PROXY_PORT)),
        (HealthMode::NodePort, _) | (HealthMode::Auto, Traffic::Cluster) => node_port(service),
        (HealthMode::Auto | HealthMode::Local, Traffic::Local { health_check_node_port: port @ 1.. }) => {
            Some(http(port.into()))
        }
        (HealthMode::Auto, Traffic::Local { .. }) => {
            Some(HealthCheck { kind: Kind::None.into(), ..HealthCheck::default() })
        }
        (HealthMode::Local, Traffic::Local { .. } | Traffic::Cluster) => {
            let why = "the Service has no health check node port: set spec.externalTrafficPolicy to Local, or another mode";
            match mode.filter(|wish| wish.given.origin != Origin::Default) {
                Some(wish) => return Err(wish.given.refusal(why)),
                None => node_port(service),
            }
        }
    };
    Ok(Probe { check, field: place("spec.externalTrafficPolicy Local") })
}

fn http(port: u32) -> HealthCheck {
    let path = HEALTH_PATH.to_owned();
    HealthCheck { kind: Kind::Http.into(), port: Some(port), path, ..HealthCheck::default() }
}

/// Returns `None` if no port uses TCP, because only the driver knows how its vendor checks UDP.
fn node_port(service: &Service) -> Option<HealthCheck> {
    let port = |port: &Port| (protocol(port.transport), u32::from(port.port), u32::from(port.node_port));
    one_of(&service.ports.iter().map(port).collect::<Vec<_>>())
}

/// Returns a TCP health check of node ports. `ports` contains the protocol, port and node port of each listener. `None`: no port uses TCP.
fn one_of(ports: &[(Protocol, u32, u32)]) -> Option<HealthCheck> {
    let tcp = ports.iter().filter(|(protocol, ..)| *protocol == Protocol::Tcp);
    let (_, _, node_port) = tcp.min_by_key(|(_, port, _)| *port)?;
    let mixed = ports.iter().any(|(protocol, ..)| *protocol != Protocol::Tcp);
    // By default, each listener checks its own node port. UDP ports do not answer health checks, so with mixed protocols all listeners
    // check the node port of the lowest TCP port.
    let port = mixed.then_some(*node_port);
    Some(HealthCheck { kind: Kind::Tcp.into(), port, ..HealthCheck::default() })
}

/// Moves the health check to the node ports of these listeners. If none of them uses TCP, health checks are switched off.
pub(super) fn moved_to(check: &HealthCheck, listeners: &[Listener]) -> HealthCheck {
    let port = |it: &Listener| (it.protocol(), it.port, it.node_port.unwrap_or_default());
    match one_of(&listeners.iter().map(port).collect::<Vec<_>>()) {
        Some(HealthCheck { kind, port, .. }) => {
            HealthCheck { kind, port, path: String::new(), ..check.clone() }
        }
        None => HealthCheck { kind: Kind::None.into(), ..HealthCheck::default() },
    }
}

fn by_protocol(protocol: HealthProtocol, check: &mut HealthCheck) {
    match protocol {
        HealthProtocol::Tcp => {
            check.set_kind(Kind::Tcp);
            check.path.clear();
        }
        HealthProtocol::Http => {
            check.set_kind(Kind::Http);
            if check.path.is_empty() {
                "/".clone_into(&mut check.path);
            }
        }
    }
}

/// Sets intervals and thresholds. Returns the most specific origin of these settings.
fn tune(wishes: &Health, check: &mut HealthCheck) -> Option<Origin> {
    let Health { interval, timeout, healthy, unhealthy, .. } = wishes;
    check.interval = interval.as_ref().map(|wish| wish.value.into());
    check.timeout = timeout.as_ref().map(|wish| wish.value.into());
    check.healthy_threshold = healthy.as_ref().map(|wish| wish.value);
    check.unhealthy_threshold = unhealthy.as_ref().map(|wish| wish.value);
    let times = [interval, timeout].map(|wish| wish.as_ref().map(|wish| wish.given.origin));
    let counts = [healthy, unhealthy].map(|wish| wish.as_ref().map(|wish| wish.given.origin));
    times.into_iter().chain(counts).flatten().max()
}

fn too_long(wishes: &Health) -> Option<Refusal> {
    let (interval, timeout) = (wishes.interval.as_ref()?, wishes.timeout.as_ref()?);
    let why = || {
        format!(
            "{} is longer than the interval, {}: reduce the timeout or increase the interval",
            timeout.value, interval.value
        )
    };
    (timeout.value > interval.value).then(|| timeout.given.refusal(why()))
}

fn nothing_to_probe() -> Refusal {
    let field = format!("annotation {}health-check.*", keys::PREFIX);
    let why = format!(
        "no port uses TCP, so nothing answers a health check: set {} to kube-proxy",
        keys::HEALTH_MODE
    );
    Refusal::new(field, why)
}

#[cfg(test)]
mod tests;
