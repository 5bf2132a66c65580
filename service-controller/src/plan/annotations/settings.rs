//! What was said of one Service, by whom: its own annotations first, then the cluster's defaults. Values are texts here.
//!
//! An annotation that is removed lets the default through again: nothing is remembered.

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
    keys::{Key, NAME, PREFIX, Reach},
    name::Name,
    template::Template,
};

/// Who said it. What is meant for all does not insist where it makes no sense; what is said of one thing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A default of the cluster.
    Default,
    /// An annotation for the whole load balancer.
    Service,
    /// An annotation for one port.
    Port,
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) origin: Origin,
    /// As people are told: `annotation lb.cloudadapter.dev/internal`.
    pub(crate) place: String,
    pub(crate) value: String,
}

impl Given {
    pub(crate) fn refusal(&self, why: impl fmt::Display) -> Refusal {
        Refusal::new(self.place.clone(), why.to_string())
    }
}

/// What the cluster says of every Service that says nothing itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// Values by names without the prefix.
    said: BTreeMap<String, String>,
    /// How load balancers are called.
    names: Option<Template>,
    /// What no Service may ask for, whatever it says.
    bounds: Bounds,
}

impl Defaults {
    /// The same with names by this template.
    pub(crate) fn called(self, names: Option<Template>) -> Self {
        Self { names, ..self }
    }

    /// The same with these bounds: values that are set from now on are judged by them.
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// What no Service may ask for.
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Takes one, by its name without the prefix.
    ///
    /// # Errors
    /// What is wrong with the name. Values are judged by [`super::wishes`], as those of an annotation are.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let of_one = |name| Err(format!("{name} is about one Service or port, and has no default"));
        match Name::read(name)? {
            Name::Port { .. } => of_one(name),
            Name::Plain(Key { reach: Reach::One, .. }) => of_one(name),
            Name::Plain(_) | Name::Vendor { .. } if self.said.contains_key(name) => {
                Err(format!("{name} is there twice: give it once"))
            }
            Name::Plain(_) | Name::Vendor { .. } => {
                self.said.insert(name.to_owned(), value.to_owned());
                Ok(())
            }
        }
    }
}

/// All that was said of one Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    plain: BTreeMap<&'static str, Given>,
    /// By the place of the port in the Service.
    ports: BTreeMap<(usize, &'static str), Given>,
    /// By adapter and key.
    vendor: BTreeMap<(String, String), Given>,
}

impl Settings {
    /// Gathers it. What names no port of the Service, or nothing known, is refused.
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
        (settings, refusals)
    }

    /// What was said of the whole load balancer, or of all its ports.
    pub(crate) fn get(&self, key: Key) -> Option<&Given> {
        self.plain.get(key.name)
    }

    /// What was said of the port that stands there in the Service.
    pub(crate) fn of_port(&self, at: usize, key: Key) -> Option<&Given> {
        self.ports.get(&(at, key.name)).or_else(|| self.get(key))
    }

    /// What was said to adapters of one vendor: adapter, key, and value.
    pub(crate) fn of_vendors(&self) -> impl Iterator<Item = (&str, &str, &Given)> {
        self.vendor.iter().map(|((adapter, key), given)| (adapter.as_str(), key.as_str(), given))
    }

    /// All of them, each once, for people: where it stands, and the value.
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
            Ok(Name::Port { port, key }) => return self.put_on_port((port, key), &given, ports),
        }
        None
    }

    fn put_on_port(&mut self, (port, key): (&str, Key), given: &Given, ports: &[Port]) -> Option<Refusal> {
        let is_meant = |it: &Port| it.name == port || it.port.to_string() == port;
        let meant: Vec<usize> =
            ports.iter().enumerate().filter(|(_, it)| is_meant(it)).map(|(at, _)| at).collect();
        if meant.is_empty() {
            let known: Vec<String> = ports.iter().map(|it| it.port.to_string()).collect();
            return Some(
                given.refusal(format!("the Service has no port {port:?}: it has {}", known.join(", "))),
            );
        }
        for at in meant {
            let given = Given { origin: Origin::Port, ..given.clone() };
            if let Some(other) = self.ports.insert((at, key.name), given.clone())
                && other.value != given.value
            {
                return Some(
                    given.refusal(format!(
                        "{} says {:?} of the same port: keep one",
                        other.place, other.value
                    )),
                );
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
    fn the_nearest_word_counts() {
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
    fn a_port_is_meant_by_its_number_or_its_name_and_not_in_two_ways() {
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
        annotation lb.cloudadapter.dev/port.dns.algorithm: annotation lb.cloudadapter.dev/port.53.algorithm says "source-ip" of the same port: keep one
        "#);
    }

    #[test]
    fn a_default_is_about_every_service() {
        let mut defaults = Defaults::default();
        let faults =
            ["port.80.algorithm", "hostname", "intern"].map(|name| defaults.set(name, "x").unwrap_err());
        insta::assert_snapshot!(faults.join("\n"), @r"
        port.80.algorithm is about one Service or port, and has no default
        hostname is about one Service or port, and has no default
        no such annotation, did you mean lb.cloudadapter.dev/internal?
        ");
        defaults.set("size", "small").unwrap();
        assert_eq!(defaults.set("size", "large").unwrap_err(), "size is there twice: give it once");
    }
}
