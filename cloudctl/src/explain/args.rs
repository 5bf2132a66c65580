//! The object that the user asks about, in the forms that kubectl accepts: `svc/web`, `service web`, `nodes a`.

use std::ffi::OsStr;

use clap::{
    Arg, Args,
    builder::{PossibleValue, TypedValueParser},
};

use crate::{
    objects::{self, Key, Object},
    options::Component,
};

/// Arguments of `cloudctl explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// Type of the object: node or service; short forms and plurals, as in no/a and svc/web, are accepted
    #[arg(value_name = "TYPE", value_parser = TypeParser, hide_possible_values = true)]
    first: String,
    /// Name of the object. For a Service, NAMESPACE/NAME also works
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// The object that the user asks about. A Service has no namespace yet if the user did not specify a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Node(String),
    Service(Key),
}

/// The types, with the names that kubectl accepts.
const TYPES: [(&str, &[&str]); 2] =
    [("node", &["node", "nodes", "no"]), ("service", &["service", "services", "svc"])];

/// Accepts any first argument, and names the types for completion. [`ExplainArgs::asked`] refuses unknown types, because its advice depends
/// on the second argument.
#[derive(Clone)]
struct TypeParser;

impl TypedValueParser for TypeParser {
    type Value = String;

    fn parse_ref(
        &self,
        _command: &clap::Command,
        _arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        Ok(value.to_string_lossy().into_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(TYPES.iter().map(|(name, _)| PossibleValue::new(*name))))
    }
}

/// Returns the error about an unknown type. A single word without a slash may be the name of an object whose type the user has left out.
fn unknown_type(word: &str, is_alone: bool) -> String {
    let meant = if is_alone && objects::name(word).is_ok() {
        format!("; to explain the object '{word}', write svc/{word} or node/{word}")
    } else {
        String::new()
    };
    format!("unknown type '{word}': use one of: node (no), service (svc){meant}")
}

fn type_of(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    TYPES.iter().find(|(_, names)| names.contains(&word.as_str())).map(|(name, _)| *name)
}

impl ExplainArgs {
    /// `namespace`: the value of `-n`.
    pub(super) fn asked(&self, namespace: Option<&str>) -> Result<Asked, String> {
        let word = self.first.split('/').next().unwrap_or_default();
        if type_of(word).is_none() {
            return Err(unknown_type(word, self.first == word && self.name.is_none()));
        }
        let (word, name) = match (self.first.split_once('/'), self.name.as_deref()) {
            (Some((word, name)), None) => (word, name),
            (None, Some(name)) => (self.first.as_str(), name),
            (Some(_), Some(extra)) => {
                return Err(format!("invalid argument '{extra}': {} already has a name", self.first));
            }
            (None, None) => {
                let form = if type_of(&self.first) == Some("node") { "NAME" } else { "[NAMESPACE/]NAME" };
                return Err(format!("explain {}: add the name: {form}", self.first));
            }
        };
        match type_of(word) {
            Some("node") => objects::name(name).map(Asked::Node),
            _ => objects::key(name)?.within(namespace).map(Asked::Service),
        }
    }
}

impl Asked {
    pub(super) const fn controllers(&self) -> &'static [Component] {
        match self {
            Self::Node(_) => &[Component::NodeController, Component::RouteController],
            Self::Service(_) => &[Component::ServiceController],
        }
    }

    /// `home`: the namespace of the kubeconfig's context.
    pub(super) fn object(&self, home: &str) -> Object {
        match self {
            Self::Node(name) => Object::node(name),
            Self::Service(key) => Object::service(key, home),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str], namespace: Option<&str>) -> Result<String, String> {
        let mut words = words.iter().map(|it| (*it).to_owned());
        let args = ExplainArgs { first: words.next().expect("a type"), name: words.next() };
        args.asked(namespace).map(|it| it.object("home").to_string())
    }

    #[test]
    fn objects_are_named_as_in_kubectl() {
        for (words, namespace, object) in [
            (&["svc/web"][..], None, "Service home/web"),
            (&["svc", "web"], Some("shop"), "Service shop/web"),
            (&["service", "web"], None, "Service home/web"),
            (&["Services", "a/web"], None, "Service a/web"),
            (&["service/a/web"], Some("a"), "Service a/web"),
            (&["node/a"], None, "Node a"),
            (&["nodes", "a"], Some("shop"), "Node a"),
            (&["no/a.b"], None, "Node a.b"),
        ] {
            assert_eq!(asked(words, namespace).as_deref(), Ok(object), "{words:?}");
        }
    }

    #[test]
    fn incomplete_and_contradictory_names_are_refused() {
        for (words, namespace, why) in [
            (&["svc"][..], None, "add the name: [NAMESPACE/]NAME"),
            (&["node"], None, "add the name: NAME"),
            (&["svc/web", "db"], None, "invalid argument 'db'"),
            (&["svc/"], None, "lower case letters"),
            (&["node", "a/b"], None, "lower case letters"),
            (&["svc", "a/web"], Some("b"), "invalid namespace 'b'"),
            (&["foo/bar"], None, "unknown type 'foo': use one of: node (no), service (svc)"),
            (&["foo", "bar"], None, "unknown type 'foo': use one of: node (no), service (svc)"),
            (&["web"], None, "to explain the object 'web', write svc/web or node/web"),
        ] {
            let refused = asked(words, namespace).expect_err("is wrong");
            assert!(refused.contains(why), "{words:?}: {refused}");
            assert!(words == ["web"] || !refused.contains("to explain the object"), "{words:?}: {refused}");
        }
    }
}
