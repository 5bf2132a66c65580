//! The settings of one Service as text, with their origin. An annotation of the Service takes precedence over a cluster default.
//!
//! When an annotation is removed, the default applies again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    super::{
        Refusal,
        bounds::Bounds,
        service::{Port, Service},
    },
    keys::{Key, MISTAKEN_PREFIX, NAME, PREFIX, Reach},
    name::{Name, without_prefix},
    template::Template,
};

/// The origin of a setting, which decides what happens if the setting cannot apply to a port. A setting for all ports is then ignored, and
/// a setting for that port alone is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Default,
    /// An annotation for the whole load balancer.
    Service,
    /// An annotation for one port.
    Port,
}

/// Maximum number of ports that are listed in a message.
const NAMED: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) origin: Origin,
    /// The origin as shown in messages, such as `annotation lb.cloudadapter.dev/internal`.
    pub(crate) place: String,
    pub(crate) value: String,
}

impl Given {
    pub(crate) fn refusal(&self, why: impl fmt::Display) -> Refusal {
        Refusal::new(self.place.clone(), why.to_string())
    }

    /// Returns the setting without its value. Each port stores a copy of the origin, and a copied value could be as long as all annotations
    /// of an object together.
    pub(crate) fn without_value(&self) -> Self {
        Self { origin: self.origin, place: self.place.clone(), value: String::new() }
    }
}

/// Cluster defaults for Services that do not set the annotation themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// Values, by annotation name without the prefix.
    said: BTreeMap<String, String>,
    names: Option<Template>,
    bounds: Bounds,
}

impl Defaults {
    /// Sets the template for the names of load balancers.
    pub(crate) fn called(self, names: Option<Template>) -> Self {
        Self { names, ..self }
    }

    /// Sets the limits, which apply to defaults that are set afterwards.
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Adds a default. `name` is the name of the annotation without the prefix.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let of_one =
            |name| Err(format!("{name} applies to a single Service or port, so it cannot have a default"));
        match Name::read(name)? {
            Name::Port { .. } => of_one(name),
            Name::Plain(Key { reach: Reach::One, .. }) => of_one(name),
            Name::Plain(_) | Name::Vendor { .. } if self.said.contains_key(name) => {
                Err(format!("{name} is set twice: set it once"))
            }
            Name::Plain(_) | Name::Vendor { .. } => {
                self.said.insert(name.to_owned(), value.to_owned());
                Ok(())
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    plain: BTreeMap<&'static str, Given>,
    /// The settings of single ports, keyed by the port's index in the Service and the annotation's name.
    ports: BTreeMap<(usize, &'static str), Given>,
    /// The vendor-specific settings, keyed by adapter and key.
    vendor: BTreeMap<(String, String), Given>,
}

impl Settings {
    /// Collects the settings. Refuses unknown names, names without `lb.` in the prefix, and ports that the Service does not have.
    pub(crate) fn of(service: &Service, defaults: &Defaults) -> (Self, Vec<Refusal>) {
        let mut settings = Self::default();
        let mut refusals = Vec::new();
        if let Some(template) = &defaults.names {
            let (origin, place) = (Origin::Default, "--load-balancer-name-template".to_owned());
            let given = Given { origin, place, value: template.name(&service.id) };
            settings.plain.insert(NAME.name, given);
        }
        for (name, value) in &defaults.said {
            let place = format!("cluster default {name}");
            let given = Given { origin: Origin::Default, place, value: value.clone() };
            refusals.extend(settings.put(name, given, &service.ports));
        }
        let ours =
            service.annotations.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
        for (name, value) in ours {
            let place = service.foreign.place(&format!("{PREFIX}{name}"));
            let given = Given { origin: Origin::Service, place, value: value.clone() };
            refusals.extend(settings.put(name, given, &service.ports));
        }
        let mistaken = service
            .annotations
            .keys()
            .filter_map(|key| Some((key, without_prefix(key.strip_prefix(MISTAKEN_PREFIX)?))));
        refusals.extend(mistaken.map(|(key, why)| Refusal::new(format!("annotation {key}"), why)));
        (settings, refusals)
    }

    /// Returns the setting for the whole load balancer or for all its ports.
    pub(crate) fn get(&self, key: Key) -> Option<&Given> {
        self.plain.get(key.name)
    }

    /// Returns the setting that applies to the port with this index in the Service.
    pub(crate) fn of_port(&self, at: usize, key: Key) -> Option<&Given> {
        self.ports.get(&(at, key.name)).or_else(|| self.get(key))
    }

    /// Returns the vendor-specific settings as adapter, key, and value.
    pub(crate) fn of_vendors(&self) -> impl Iterator<Item = (&str, &str, &Given)> {
        self.vendor.iter().map(|((adapter, key), given)| (adapter.as_str(), key.as_str(), given))
    }

    /// Returns all settings without duplicates, as lines that contain the origin and the value.
    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.plain.values().chain(self.ports.values()).chain(self.vendor.values());
        let lines: BTreeSet<String> = all.map(|given| format!("{}: {}", given.place, given.value)).collect();
        lines.into_iter().collect()
    }

    fn put(&mut self, name: &str, given: Given, ports: &[Port]) -> Option<Refusal> {
        match Name::read(name) {
            Err(why) => return Some(given.refusal(why)),
            Ok(Name::Plain(key)) => drop(self.plain.insert(key.name, given)),
            Ok(Name::Vendor { adapter, key }) => {
                self.vendor.insert((adapter.to_owned(), key.to_owned()), given);
            }
            Ok(Name::Port { port, key }) => return self.put_on_port(port, key, &given, ports),
        }
        None
    }

    fn put_on_port(&mut self, port: &str, key: Key, given: &Given, ports: &[Port]) -> Option<Refusal> {
        let is_meant = |it: &Port| it.name == port || it.port.to_string() == port;
        let meant: Vec<usize> =
            ports.iter().enumerate().filter(|(_, it)| is_meant(it)).map(|(at, _)| at).collect();
        if meant.is_empty() {
            let known: Vec<String> = ports.iter().take(NAMED).map(|it| it.port.to_string()).collect();
            let more = if ports.len() > NAMED { ", ..." } else { "" };
            let known = known.join(", ");
            return Some(given.refusal(format!("the Service has no port {port:?}: it has {known}{more}")));
        }
        for at in meant {
            let given = Given { origin: Origin::Port, ..given.clone() };
            if let Some(other) = self.ports.insert((at, key.name), given.clone())
                && other.value != given.value
            {
                return Some(given.refusal(format!(
                    "{} is {:?} for the same port: remove one of them",
                    other.place, other.value
                )));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::keys::{ALGORITHM, INTERNAL},
        *,
    };
    use crate::plan::service::Transport;

    fn service(annotations: &[(&str, &str)]) -> Service {
        let port = |name: &str, port, transport| Port {
            name: name.to_owned(),
            ..Port::plain(transport, port, 30_000)
        };
        Service {
            ports: vec![
                port("http", 80, Transport::Tcp),
                port("dns", 53, Transport::Udp),
                port("dns-tcp", 53, Transport::Tcp),
            ],
            annotations: annotations
                .iter()
                .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
                .collect(),
            ..Service::default()
        }
    }

    fn values(settings: &Settings) -> [Option<&str>; 3] {
        [0, 1, 2].map(|at| settings.of_port(at, ALGORITHM).map(|given| given.value.as_str()))
    }

    #[test]
    fn port_annotation_overrides_service_and_default() {
        let mut defaults = Defaults::default();
        defaults.set("algorithm", "round-robin").unwrap();
        defaults.set("internal", "true").unwrap();
        let (settings, refusals) = Settings::of(&service(&[]), &defaults);
        assert_eq!(values(&settings), [Some("round-robin"); 3]);
        assert_eq!(settings.get(INTERNAL).unwrap().place, "cluster default internal");
        assert!(refusals.is_empty());
        let said =
            [("algorithm", "source-ip"), ("port.53.algorithm", "least-connections"), ("internal", "false")];
        let (settings, refusals) = Settings::of(&service(&said), &defaults);
        assert_eq!(
            values(&settings),
            [Some("source-ip"), Some("least-connections"), Some("least-connections")]
        );
        assert_eq!(settings.get(INTERNAL).unwrap().value, "false");
        assert!(refusals.is_empty());
    }

    #[test]
    fn port_annotations_use_number_or_name_without_conflict() {
        let (settings, _) =
            Settings::of(&service(&[("port.dns.algorithm", "source-ip")]), &Defaults::default());
        assert_eq!(values(&settings), [None, Some("source-ip"), None]);
        let said = [
            ("port.53.algorithm", "source-ip"),
            ("port.dns.algorithm", "round-robin"),
            ("port.81.algorithm", "x"),
        ];
        let (_, refusals) = Settings::of(&service(&said), &Defaults::default());
        let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        annotation lb.cloudadapter.dev/port.81.algorithm: the Service has no port "81": it has 80, 53, 53
        annotation lb.cloudadapter.dev/port.dns.algorithm: annotation lb.cloudadapter.dev/port.53.algorithm is "source-ip" for the same port: remove one of them
        "#);
    }

    #[test]
    fn defaults_for_single_service_or_port_are_refused() {
        let mut defaults = Defaults::default();
        let faults =
            ["port.80.algorithm", "hostname", "intern"].map(|name| defaults.set(name, "x").unwrap_err());
        insta::assert_snapshot!(faults.join("\n"), @r"
        port.80.algorithm applies to a single Service or port, so it cannot have a default
        hostname applies to a single Service or port, so it cannot have a default
        unknown key, did you mean 'lb.cloudadapter.dev/internal'?
        ");
        defaults.set("size", "small").unwrap();
        assert_eq!(defaults.set("size", "large").unwrap_err(), "size is set twice: set it once");
    }
}
