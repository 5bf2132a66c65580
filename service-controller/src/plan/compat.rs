//! Annotations of the controllers that people come from, put into the words of our own vocabulary.
//!
//! A pure translation, before anything else looks at a Service: nothing behind it knows where a key came from. What cannot be said in
//! our words is refused with what to write instead, and never passed over.

pub(crate) mod openstack;

use std::collections::{BTreeMap, BTreeSet};

use super::Refusal;

/// Begins every annotation of ours.
const PREFIX: &str = super::annotations::keys::PREFIX;

/// Takes over what nobody owns: whoever comes from another controller has load balancers already.
const ADOPT: (&str, &str) = ("adopt", "owned");

/// Whose annotations are understood beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compat {
    /// Those of openstack-cloud-controller-manager.
    Openstack,
}

impl Compat {
    /// Under which name that controller writes to Services: what it made is taken over, its finalizers too.
    pub(crate) fn manager(self) -> &'static str {
        match self {
            Self::Openstack => "openstack-cloud-controller-manager",
        }
    }
}

/// An annotation of another controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The whole key.
    pub(crate) old: &'static str,
    pub(crate) becomes: Becomes,
}

/// What becomes of an annotation of another controller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes {
    /// The setting of ours with this name, without the prefix.
    Setting(&'static str, Read),
    /// The same, and another setting that goes with it.
    SettingWith(&'static str, Read, (&'static str, &'static str)),
    /// The first, unless this other annotation of that controller is there, which counts more and says it all.
    SettingUnless(&'static str, &'static str, Read),
    /// Nothing: the other controller wrote it for people to read.
    Nothing,
    /// Nothing that we can do. What to do instead.
    Refused(&'static str),
    /// The same, unless this other annotation of that controller is there, which counts more.
    RefusedUnless(&'static str, &'static str),
}

/// Reads a value and writes it as ours are written. `None`: it says what is so anyway. An error says what is wrong with it.
pub(crate) type Read = fn(&str) -> Result<Option<String>, String>;

/// What a Service's annotations say, in our words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Those of our vocabulary, and whatever belongs to nobody.
    pub(crate) annotations: BTreeMap<String, String>,
    /// What people shall know of the others.
    pub(crate) foreign: Foreign,
}

/// What is said of annotations of another controller, and what came of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// What to write in place of them, one line a key.
    pub(crate) understood: Vec<String>,
    /// Keys that nobody was asked to understand.
    pub(crate) ignored: Vec<String>,
    /// What cannot be done, or not be read.
    pub(crate) refusals: Vec<Refusal>,
    /// Which of them each annotation of ours comes from: nobody wrote that one.
    pub(crate) from: BTreeMap<String, &'static str>,
}

impl Foreign {
    /// How people are told of an annotation of ours: as they wrote it.
    pub(crate) fn place(&self, key: &str) -> String {
        match self.from.get(key) {
            Some(old) => format!("annotation {old} (here {key})"),
            None => format!("annotation {key}"),
        }
    }
}

/// Begin the annotations of controllers that are known, and whose annotations are never understood: hcloud, AWS, Azure, MetalLB under both of
/// its names.
const NEVER_UNDERSTOOD: [&str; 5] = [
    "load-balancer.hetzner.cloud/",
    "service.beta.kubernetes.io/aws-load-balancer-",
    "service.beta.kubernetes.io/azure-",
    "metallb.universe.tf/",
    "metallb.io/",
];

/// Whether a key belongs to a controller that we know.
pub(crate) fn is_foreign(key: &str) -> bool {
    may_be_understood(key) || NEVER_UNDERSTOOD.iter().any(|prefix| key.starts_with(prefix))
}

/// Whether there is a flag with which a key of another controller is understood.
pub(crate) fn may_be_understood(key: &str) -> bool {
    openstack::is_own(key)
}

/// Puts a Service's annotations into our words. Ours count more than what is translated.
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
            let why = format!("no such annotation, did you mean {}? Remove it", nearest(key, table));
            self.foreign.refusals.push(Refusal::new(format!("annotation {key}"), why));
        }
        let (name, value) = ADOPT;
        self.annotations.entry(format!("{PREFIX}{name}")).or_insert_with(|| value.to_owned());
    }

    /// `said`: the annotations of ours that the user wrote.
    fn take_one(&mut self, row: &Row, value: &str, old: &BTreeMap<String, String>, said: &BTreeSet<String>) {
        let refused = |why: String| Refusal::new(format!("annotation {}", row.old), why);
        let says = |value: &String| !value.trim().is_empty();
        let (name, read, with) = match row.becomes {
            Becomes::Nothing => return,
            Becomes::SettingUnless(other, ..) | Becomes::RefusedUnless(other, _)
                if old.get(other).is_some_and(says) =>
            {
                self.foreign.understood.push(format!("{} counts nothing beside {other}", row.old));
                return;
            }
            Becomes::Refused(_) | Becomes::RefusedUnless(..) if value.trim().is_empty() => {
                self.foreign.understood.push(format!("{} is not needed", row.old));
                return;
            }
            Becomes::Refused(instead) | Becomes::RefusedUnless(_, instead) => {
                self.foreign.refusals.push(refused(format!("cannot be done here: {instead}")));
                return;
            }
            Becomes::Setting(name, read) | Becomes::SettingUnless(_, name, read) => (name, read, None),
            Becomes::SettingWith(name, read, with) => (name, read, Some(with)),
        };
        let key = format!("{PREFIX}{name}");
        if said.contains(&key) {
            self.foreign.understood.push(format!("{} counts nothing beside {key}", row.old));
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
                self.foreign.understood.push(format!("{} is {}", row.old, ours.join(" and ")));
            }
        }
    }

    /// What was said before stays. Says how it stands now.
    fn put(&mut self, name: &str, value: String, old: &'static str) -> String {
        let key = format!("{PREFIX}{name}");
        let value = self.annotations.entry(key.clone()).or_insert_with(|| {
            self.foreign.from.insert(key.clone(), old);
            value
        });
        format!("{key}: {value}")
    }
}

/// The key of the table that looks most like it.
fn nearest<'a>(key: &str, table: &'a [Row]) -> &'a str {
    let likeness = |row: &&Row| (strsim::jaro(row.old, key) * 1e6).round();
    let best = table.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.map_or("", |row| row.old)
}

#[cfg(test)]
mod tests;
