//! Parses the annotations of a Service and the cluster's defaults. Nothing here is specific to a vendor.
//!
//! An unknown name with this controller's prefix is refused and never ignored, also if the prefix lacks `lb.`. If a misspelt `internal` were
//! ignored, a private Service would be exposed to the internet.

pub(crate) mod keys;
mod name;
pub(crate) mod settings;
pub(crate) mod template;
pub(crate) mod values;

use std::{collections::BTreeMap, net::IpAddr};

use controller_core::selector::Selector;

use self::{
    keys::Key,
    settings::{Defaults, Given, Origin, Settings},
    values::{
        Adopt, Algorithm, HealthMode, HealthProtocol, IpMode, ListenerProtocol, OnDelete, ProxyProtocol,
        Seconds, Switch,
    },
};
use super::{
    Refusal,
    bounds::{Bounds, Ports},
    service::{Port, Service, Transport},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish<T> {
    pub(crate) value: T,
    pub(crate) given: Given,
}

/// The requested values. `None`: the Service and the cluster do not set the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) internal: Option<Wish<Switch>>,
    pub(crate) id: Option<Wish<String>>,
    pub(crate) adopt: Option<Wish<Adopt>>,
    pub(crate) share_with: Option<Wish<Vec<String>>>,
    pub(crate) on_delete: Option<Wish<OnDelete>>,
    pub(crate) name: Option<Wish<String>>,
    pub(crate) addresses: Option<Wish<Vec<IpAddr>>>,
    pub(crate) address_pool: Option<Wish<String>>,
    pub(crate) subnets: Option<Wish<Vec<String>>>,
    pub(crate) health: Health,
    pub(crate) hostname: Option<Wish<String>>,
    pub(crate) ip_mode: Option<Wish<IpMode>>,
    pub(crate) tags: Option<Wish<BTreeMap<String, String>>>,
    pub(crate) size: Option<Wish<String>>,
    pub(crate) zone: Option<Wish<String>>,
    /// The settings of each port, in the sequence of the Service's ports.
    pub(crate) ports: Vec<PortWishes>,
    pub(crate) vendor: Vec<VendorWish>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) enabled: Option<Wish<Switch>>,
    pub(crate) mode: Option<Wish<HealthMode>>,
    pub(crate) protocol: Option<Wish<HealthProtocol>>,
    pub(crate) port: Option<Wish<u32>>,
    pub(crate) path: Option<Wish<String>>,
    pub(crate) interval: Option<Wish<Seconds>>,
    pub(crate) timeout: Option<Wish<Seconds>>,
    pub(crate) healthy: Option<Wish<u32>>,
    pub(crate) unhealthy: Option<Wish<u32>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortWishes {
    pub(crate) proxy_protocol: Option<Wish<ProxyProtocol>>,
    pub(crate) algorithm: Option<Wish<Algorithm>>,
    pub(crate) protocol: Option<Wish<ListenerProtocol>>,
    pub(crate) certificates: Option<Wish<Vec<String>>>,
    pub(crate) idle_timeout: Option<Wish<Seconds>>,
    pub(crate) connect_timeout: Option<Wish<Seconds>>,
    pub(crate) connection_limit: Option<Wish<u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VendorWish {
    pub(crate) adapter: String,
    pub(crate) key: String,
    pub(crate) value: Wish<String>,
}

/// Parses all settings of a Service and returns all errors. The error for an unknown name suggests the most similar known name. The error
/// for an invalid value names the expected values. Valid settings are returned even if others are invalid, so that later validation covers
/// them.
pub(crate) fn wishes(service: &Service, defaults: &Defaults) -> (Wishes, Vec<Refusal>) {
    let (settings, refusals) = Settings::of(service, defaults);
    let Bounds { health_check_ports: ports, members: certificates } = defaults.bounds();
    let mut reader = Reader { settings: &settings, service, ports, certificates: *certificates, refusals };
    (reader.wishes(service.ports.len()), reader.refusals)
}

/// Adds a cluster default. `name` is the name of the annotation without the prefix.
pub(crate) fn add_default(defaults: &mut Defaults, name: &str, value: &str) -> Result<(), String> {
    let mut alone = Defaults::default().within(defaults.bounds().clone());
    alone.set(name, value)?;
    let port = Port::plain(Transport::Tcp, 80, 0);
    let any = Service { ports: vec![port], ..Service::default() };
    match wishes(&any, &alone).1.first() {
        None => defaults.set(name, value),
        Some(refusal) => Err(refusal.why().to_owned()),
    }
}

/// The node selector, which is needed before planning. [`wishes`] refuses an invalid selector.
pub(crate) fn node_selector(service: &Service, defaults: &Defaults) -> Option<Selector> {
    let (settings, _refusals) = Settings::of(service, defaults);
    settings.get(keys::NODE_SELECTOR).and_then(|given| Selector::read(&given.value).ok())
}

/// Where the node selector is set, for messages.
pub(crate) fn place_of_selector(service: &Service, defaults: &Defaults) -> String {
    let (settings, _refusals) = Settings::of(service, defaults);
    let place = settings.get(keys::NODE_SELECTOR).map(|given| given.place.clone());
    // A selector that the Service no longer has is still in force if the requested settings are invalid.
    place.unwrap_or_else(|| keys::NODE_SELECTOR.name.to_owned())
}

/// The requested addresses. [`wishes`] refuses an invalid list.
pub(crate) fn addresses(service: &Service, defaults: &Defaults) -> Vec<IpAddr> {
    let (settings, _refusals) = Settings::of(service, defaults);
    let given = settings.get(keys::ADDRESS);
    given.and_then(|given| values::addresses(&given.value).ok()).unwrap_or_default()
}

/// The namespaces that may share the load balancer. `None`: the list is invalid, which [`wishes`] refuses.
pub(crate) fn share_with(service: &Service, defaults: &Defaults) -> Option<Vec<String>> {
    let (settings, _refusals) = Settings::of(service, defaults);
    settings
        .get(keys::SHARE_WITH)
        .map_or_else(|| Some(Vec::new()), |given| values::namespaces(&given.value).ok())
}

struct Reader<'a> {
    settings: &'a Settings,
    service: &'a Service,
    /// Ports that any Service may use for health checks.
    ports: &'a Ports,
    /// Number of certificates that the remaining ports may have in total.
    certificates: usize,
    refusals: Vec<Refusal>,
}

impl Reader<'_> {
    fn wishes(&mut self, n_ports: usize) -> Wishes {
        let _judged = self.read(keys::NODE_SELECTOR, Selector::read);
        Wishes {
            internal: self.read(keys::INTERNAL, values::word),
            id: self.read(keys::ID, values::text),
            adopt: self.read(keys::ADOPT, values::word),
            share_with: self.read(keys::SHARE_WITH, values::namespaces),
            on_delete: self.read(keys::ON_DELETE, values::word),
            name: self.name(),
            addresses: self.read(keys::ADDRESS, values::addresses),
            address_pool: self.read(keys::ADDRESS_POOL, values::text),
            subnets: self.read(keys::SUBNET, values::texts),
            health: self.health(),
            hostname: self.read(keys::HOSTNAME, values::hostname),
            ip_mode: self.read(keys::IP_MODE, values::word),
            tags: self.read(keys::TAGS, values::tags),
            size: self.read(keys::SIZE, values::text),
            zone: self.read(keys::ZONE, values::text),
            ports: (0..n_ports).map(|at| self.port(at)).collect(),
            vendor: self.vendor(),
        }
    }

    /// A default is a template from the operator, into which only the Service's own names are inserted. An annotation comes from a user,
    /// who could write another Service's name.
    fn name(&mut self) -> Option<Wish<String>> {
        match self.settings.get(keys::NAME)?.origin {
            Origin::Default => self.read(keys::NAME, values::name),
            Origin::Service | Origin::Port => self.read(keys::NAME, values::chosen_name),
        }
    }

    fn health(&mut self) -> Health {
        Health {
            enabled: self.read(keys::HEALTH_ENABLED, values::word),
            mode: self.read(keys::HEALTH_MODE, values::word),
            protocol: self.read(keys::HEALTH_PROTOCOL, values::word),
            port: self.health_port(),
            path: self.read(keys::HEALTH_PATH, values::path),
            interval: self.read(keys::HEALTH_INTERVAL, values::duration),
            timeout: self.read(keys::HEALTH_TIMEOUT, values::duration),
            healthy: self.read(keys::HEALTH_HEALTHY, values::probes),
            unhealthy: self.read(keys::HEALTH_UNHEALTHY, values::probes),
        }
    }

    /// A default applies to all Services. A port is therefore not a valid default merely because one Service has it as a node port.
    fn health_port(&mut self) -> Option<Wish<u32>> {
        let (ports, service) = (self.ports, self.service);
        match self.settings.get(keys::HEALTH_PORT)?.origin {
            Origin::Default => {
                self.read(keys::HEALTH_PORT, |text| values::port(text).and_then(|port| ports.for_all(port)))
            }
            Origin::Service | Origin::Port => self.read(keys::HEALTH_PORT, |text| {
                values::port(text).and_then(|port| ports.for_one(service, port))
            }),
        }
    }

    fn port(&mut self, at: usize) -> PortWishes {
        PortWishes {
            proxy_protocol: self.read_port(at, keys::PROXY_PROTOCOL, values::word),
            algorithm: self.read_port(at, keys::ALGORITHM, values::word),
            protocol: self.read_port(at, keys::LISTENER_PROTOCOL, values::word),
            certificates: self.certificates(at),
            idle_timeout: self.read_port(at, keys::IDLE_TIMEOUT, values::duration),
            connect_timeout: self.read_port(at, keys::CONNECT_TIMEOUT, values::duration),
            connection_limit: self.read_port(at, keys::CONNECTION_LIMIT, values::connections),
        }
    }

    /// The number of certificates of all ports together is limited, because each port stores a copy of its list.
    fn certificates(&mut self, at: usize) -> Option<Wish<Vec<String>>> {
        let room = self.certificates;
        let wish = self.read_port(at, keys::TLS_CERT_REFS, |text| {
            let all = values::certificates(text)?;
            if all.len() > room {
                let why =
                    "more certificates for all ports than serviceController.maxMembersPerService: use fewer";
                return Err(why.to_owned());
            }
            Ok(all)
        })?;
        self.certificates = room.saturating_sub(wish.value.len());
        Some(wish)
    }

    fn vendor(&mut self) -> Vec<VendorWish> {
        let settings = self.settings;
        let wish = |(adapter, key, given): (&str, &str, &Given)| {
            let value = self.judge(given, values::extra)?;
            Some(VendorWish { adapter: adapter.to_owned(), key: key.to_owned(), value })
        };
        settings.of_vendors().filter_map(wish).collect()
    }

    fn read<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, String>) -> Option<Wish<T>> {
        let given = self.settings.get(key)?;
        self.judge(given, parse)
    }

    fn read_port<T>(
        &mut self,
        at: usize,
        key: Key,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Wish<T>> {
        let given = self.settings.of_port(at, key)?;
        self.judge(given, parse)
    }

    /// An error in a setting that applies to several ports is reported once.
    fn judge<T>(&mut self, given: &Given, parse: impl Fn(&str) -> Result<T, String>) -> Option<Wish<T>> {
        match parse(&given.value) {
            Ok(value) => Some(Wish { value, given: given.without_value() }),
            Err(why) => {
                let refusal = given.refusal(why);
                if !self.refusals.contains(&refusal) {
                    self.refusals.push(refusal);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
