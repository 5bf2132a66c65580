//! Parses the name of an annotation after the prefix: a key, a key of one port, or a vendor-specific key.

use std::fmt;

use telemetry::nearest;

use super::keys::{ALL, Key, PREFIX, Reach};

const OF_PORT: &str = "port.";
const OF_VENDOR: &str = "x.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// A setting of all ports, or of the whole load balancer.
    Plain(Key),
    /// A setting of one port, which is given by its number or name.
    Port { port: &'a str, key: Key },
    /// A vendor-specific setting, passed unchanged as a parameter of the adapter.
    Vendor { adapter: &'a str, key: &'a str },
}

impl<'a> Name<'a> {
    /// Parses the part of an annotation's name after the prefix.
    pub(crate) fn read(text: &'a str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix(OF_VENDOR) {
            let whole = rest.split_once('.').filter(|(adapter, key)| !adapter.is_empty() && !key.is_empty());
            let incomplete = || format!("is incomplete: write {PREFIX}{OF_VENDOR}<adapter>.<key>");
            return whole.map(|(adapter, key)| Self::Vendor { adapter, key }).ok_or_else(incomplete);
        }
        let Some(rest) = text.strip_prefix(OF_PORT) else {
            let key = Key::find(text).map(Self::Plain);
            return key.ok_or_else(|| unknown(text, PREFIX, ALL.into_iter()));
        };
        let incomplete = || format!("is incomplete: write {PREFIX}{OF_PORT}<number or name>.<key>");
        let (port, name) =
            rest.split_once('.').filter(|(port, _)| !port.is_empty()).ok_or_else(incomplete)?;
        match Key::find(name) {
            Some(key) if key.reach == Reach::Port => Ok(Self::Port { port, key }),
            Some(key) => Err(format!("applies to the whole load balancer, not to a port: write {key}")),
            None => {
                let known = ALL.into_iter().filter(|key| key.reach == Reach::Port);
                Err(unknown(name, &format!("{PREFIX}{OF_PORT}{port}."), known))
            }
        }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(key) => f.write_str(key.name),
            Self::Port { port, key } => write!(f, "{OF_PORT}{port}.{}", key.name),
            Self::Vendor { adapter, key } => write!(f, "{OF_VENDOR}{adapter}.{key}"),
        }
    }
}

/// Returns the error for an annotation that has the domain of the prefix, but not the prefix. `text` is the part after the domain.
pub(super) fn without_prefix(text: &str) -> String {
    match Name::read(text) {
        Ok(name) => format!("unknown key, did you mean '{PREFIX}{name}'?"),
        Err(why) => why,
    }
}

/// Returns the error for an unknown key, with a suggestion if a known key is similar.
fn unknown(key: &str, prefix: &str, known: impl Iterator<Item = Key>) -> String {
    match nearest(key, known.map(|known| known.name)) {
        Some(near) => format!("unknown key, did you mean '{prefix}{near}'?"),
        None => "unknown key: remove it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn annotation_name_kinds() {
        for key in ALL {
            assert_eq!(Name::read(key.name), Ok(Name::Plain(key)));
        }
        let limit = Key::find("connection-limit").unwrap();
        assert_eq!(Name::read("port.80.connection-limit"), Ok(Name::Port { port: "80", key: limit }));
        let flavor = Name::Vendor { adapter: "openstack", key: "provider.flavor" };
        assert_eq!(Name::read("x.openstack.provider.flavor"), Ok(flavor));
    }

    #[test]
    fn unknown_annotation_names_get_a_suggestion() {
        let rows =
            ["intrenal", "port.80.algoritm", "port.80.internal", "port.80", "port..x", "x.sim.", "x..key"];
        let reported = rows.map(|name| format!("{name:17} {}", Name::read(name).unwrap_err()));
        insta::assert_snapshot!(reported.join("\n"), @r"
        intrenal          unknown key, did you mean 'lb.cloudadapter.dev/internal'?
        port.80.algoritm  unknown key, did you mean 'lb.cloudadapter.dev/port.80.algorithm'?
        port.80.internal  applies to the whole load balancer, not to a port: write lb.cloudadapter.dev/internal
        port.80           is incomplete: write lb.cloudadapter.dev/port.<number or name>.<key>
        port..x           is incomplete: write lb.cloudadapter.dev/port.<number or name>.<key>
        x.sim.            is incomplete: write lb.cloudadapter.dev/x.<adapter>.<key>
        x..key            is incomplete: write lb.cloudadapter.dev/x.<adapter>.<key>
        ");
    }

    #[test]
    fn names_without_the_prefix_get_a_suggestion() {
        let rows = ["internal", "intrenal", "port.80.algorithm", "x.sim.zone", "team-of-the-owner"];
        let reported = rows.map(|name| format!("{name:17} {}", without_prefix(name)));
        insta::assert_snapshot!(reported.join("\n"), @r"
        internal          unknown key, did you mean 'lb.cloudadapter.dev/internal'?
        intrenal          unknown key, did you mean 'lb.cloudadapter.dev/internal'?
        port.80.algorithm unknown key, did you mean 'lb.cloudadapter.dev/port.80.algorithm'?
        x.sim.zone        unknown key, did you mean 'lb.cloudadapter.dev/x.sim.zone'?
        team-of-the-owner unknown key: remove it
        ");
    }

    proptest! {
        #[test]
        fn parsed_names_print_unchanged(text in "(port\\.|x\\.)?[a-z0-9.-]{0,12}(algorithm|internal)?") {
            if let Ok(name) = Name::read(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in any::<String>()) {
            let _judged = Name::read(&text);
        }
    }
}
