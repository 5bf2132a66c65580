//! Translates annotations of other controllers into annotations of this controller.
//!
//! The translation comes before every other use of the Service, so no other module knows the origin of a key. An annotation that cannot be
//! translated is refused instead of ignored, and the error names the replacement to write.

pub(crate) mod openstack;

use std::collections::{BTreeMap, BTreeSet};

use telemetry::nearest;

use super::{Refusal, annotations::keys::PREFIX, foreign::Foreign};

/// The setting to adopt load balancers without an owner, because another controller already created a load balancer for the Service.
const ADOPT: (&str, &str) = ("adopt", "owned");

/// The other controller whose annotations are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compat {
    /// The annotations of openstack-cloud-controller-manager.
    Openstack,
}

impl Compat {
    /// Returns the field manager of the other controller's writes to Services. The other controller's load balancers are adopted, and its
    /// finalizers are treated as this controller's finalizers.
    pub(crate) fn manager(self) -> &'static str {
        match self {
            Self::Openstack => "openstack-cloud-controller-manager",
        }
    }
}

/// An annotation of another controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The full key.
    pub(crate) old: &'static str,
    pub(crate) becomes: Becomes,
}

/// How an annotation of another controller is translated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes {
    /// Sets the setting with this name, which has no prefix.
    Setting(&'static str, Read),
    /// Sets this setting and a second one.
    SettingWith(&'static str, Read, (&'static str, &'static str)),
    /// Sets the setting that is named second, unless the Service has the annotation that is named first. That annotation takes precedence.
    SettingUnless(&'static str, &'static str, Read),
    /// Sets nothing, because the other controller wrote the annotation for information only.
    Nothing,
    /// Cannot be translated. The text says what to do instead.
    Refused(&'static str),
    /// Cannot be translated. The text says what to do instead. If the Service has the annotation that is named first, that annotation takes
    /// precedence, and nothing is refused.
    RefusedUnless(&'static str, &'static str),
}

/// Converts a value. `Ok(None)`: the value is the default. `Err`: the value is invalid, for this reason.
pub(crate) type Read = fn(&str) -> Result<Option<String>, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Annotations of this controller, and those that belong to no known controller.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) foreign: Foreign,
}

/// Prefixes of the annotations of known controllers that are never translated: hcloud, AWS, Azure, MetalLB with both of its domains.
const UNSUPPORTED_PREFIXES: [&str; 5] = [
    "load-balancer.hetzner.cloud/",
    "service.beta.kubernetes.io/aws-load-balancer-",
    "service.beta.kubernetes.io/azure-",
    "metallb.universe.tf/",
    "metallb.io/",
];

pub(crate) fn is_foreign(key: &str) -> bool {
    may_be_understood(key) || UNSUPPORTED_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Whether a value of `--compat` exists that translates this key.
pub(crate) fn may_be_understood(key: &str) -> bool {
    openstack::is_own(key)
}

/// Translates a Service's annotations. This controller's own annotations take precedence.
pub(crate) fn translate(compat: Option<Compat>, annotations: BTreeMap<String, String>) -> Translation {
    let (old, own): (BTreeMap<_, _>, BTreeMap<_, _>) =
        annotations.into_iter().partition(|(key, _)| is_foreign(key));
    let understood = |key: &String| match compat {
        None => false,
        Some(Compat::Openstack) => openstack::is_own(key),
    };
    let (old, ignored): (BTreeMap<_, _>, BTreeMap<_, _>) =
        old.into_iter().partition(|(key, _)| understood(key));
    let foreign = Foreign { ignored: ignored.into_keys().collect(), ..Foreign::default() };
    let mut translation = Translation { annotations: own, foreign };
    match compat {
        None => (),
        Some(Compat::Openstack) => translation.take(&old, &openstack::TABLE),
    }
    translation
}

impl Translation {
    fn take(&mut self, old: &BTreeMap<String, String>, table: &[Row]) {
        let said: BTreeSet<String> = self.annotations.keys().cloned().collect();
        for row in table {
            if let Some(value) = old.get(row.old) {
                self.take_one(row, value, old, &said);
            }
        }
        for key in old.keys().filter(|key| table.iter().all(|row| row.old != *key)) {
            let why = match nearest(key, table.iter().map(|row| row.old)) {
                Some(near) => format!("unknown key, did you mean '{near}'? Remove it"),
                None => "unknown key: remove it".to_owned(),
            };
            self.foreign.refusals.push(Refusal::new(format!("annotation {key}"), why));
        }
        let (name, value) = ADOPT;
        self.annotations.entry(format!("{PREFIX}{name}")).or_insert_with(|| value.to_owned());
    }

    /// `said`: the annotations of this controller that the user wrote.
    fn take_one(&mut self, row: &Row, value: &str, old: &BTreeMap<String, String>, said: &BTreeSet<String>) {
        let refused = |why: String| Refusal::new(format!("annotation {}", row.old), why);
        let says = |value: &String| !value.trim().is_empty();
        let (name, read, with) = match row.becomes {
            Becomes::Nothing => return,
            Becomes::SettingUnless(other, ..) | Becomes::RefusedUnless(other, _)
                if old.get(other).is_some_and(says) =>
            {
                self.foreign.understood.push(format!("{} has no effect because {other} is set", row.old));
                return;
            }
            Becomes::Refused(_) | Becomes::RefusedUnless(..) if value.trim().is_empty() => {
                self.foreign.understood.push(format!("{} is not needed", row.old));
                return;
            }
            Becomes::Refused(instead) | Becomes::RefusedUnless(_, instead) => {
                self.foreign.refusals.push(refused(format!("not supported: {instead}")));
                return;
            }
            Becomes::Setting(name, read) | Becomes::SettingUnless(_, name, read) => (name, read, None),
            Becomes::SettingWith(name, read, with) => (name, read, Some(with)),
        };
        let key = format!("{PREFIX}{name}");
        if said.contains(&key) {
            self.foreign.understood.push(format!("{} has no effect because {key} is set", row.old));
            return;
        }
        match read(value) {
            Err(why) => {
                self.foreign.refusals.push(refused(format!("{why}; correct it, or write {key} instead")));
            }
            Ok(None) => self.foreign.understood.push(format!("{} is not needed", row.old)),
            Ok(Some(value)) => {
                let pairs = [Some((name, value)), with.map(|(name, value)| (name, value.to_owned()))];
                let ours = pairs.into_iter().flatten().map(|(name, value)| self.put(name, value, row.old));
                let ours: Vec<String> = ours.collect();
                self.foreign.understood.push(format!("{} (new: {})", row.old, ours.join(" and ")));
            }
        }
    }

    /// Sets an annotation unless the user set it, and returns the resulting setting.
    fn put(&mut self, name: &str, value: String, old: &'static str) -> String {
        let key = format!("{PREFIX}{name}");
        let value = self.annotations.entry(key.clone()).or_insert_with(|| {
            self.foreign.from.insert(key.clone(), old);
            value
        });
        format!("{key}: {value}")
    }
}

#[cfg(test)]
mod tests;
