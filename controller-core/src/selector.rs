//! Label selectors of nodes, in the syntax of `kubectl get --selector`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Maximum length of a label's name and value, and of the prefix of a name.
const WORD_MAX: usize = 63;
const DOMAIN_MAX: usize = 253;

/// Requirements that a node's labels must all meet. Selectors with the same requirements are equal, regardless of the sequence in which the
/// requirements were written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(BTreeSet<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    There(String),
    NotThere(String),
    In(String, BTreeSet<String>),
    /// A node without the label also meets the requirement.
    NotIn(String, BTreeSet<String>),
    /// No node meets this requirement. It has no syntax, so users cannot write it.
    Never,
}

impl Selector {
    /// Returns a selector that no node matches.
    #[must_use]
    pub fn nothing() -> Self {
        Self([Requirement::Never].into())
    }

    /// Whether this is [`Self::nothing`].
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.0.contains(&Requirement::Never)
    }

    /// Parses a selector such as `zone=a,tier in (front, edge),!spot`.
    ///
    /// Errors: The text has unbalanced brackets or an invalid requirement; the error contains the fault.
    pub fn read(text: &str) -> Result<Self, String> {
        let parts = parts(text).ok_or_else(|| format!("{text:?} has unbalanced brackets"))?;
        parts.into_iter().map(Requirement::read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a node with these labels meets all requirements.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.is_met_by(labels))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl Requirement {
    fn read(part: &str) -> Result<Self, String> {
        let wrong = || {
            format!("invalid requirement {part:?}: write key=value, key!=value, key in (a, b), key or !key")
        };
        Self::of(part.trim()).ok_or_else(wrong)
    }

    fn of(part: &str) -> Option<Self> {
        if let Some(key) = part.strip_prefix('!') {
            return key_of(key).map(Self::NotThere);
        }
        if let Some((key, value)) = part.split_once("!=") {
            return Some(Self::NotIn(key_of(key)?, [value_of(value)?].into()));
        }
        if let Some((key, value)) = part.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            return Some(Self::In(key_of(key)?, [value_of(value)?].into()));
        }
        if let Some(rest) = part.strip_suffix(')') {
            let (head, values) = rest.split_once('(')?;
            let values = values.split(',').map(value_of).collect::<Option<BTreeSet<_>>>()?;
            let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
            return match word {
                "in" => Some(Self::In(key_of(key)?, values)),
                "notin" => Some(Self::NotIn(key_of(key)?, values)),
                _ => None,
            };
        }
        key_of(part).map(Self::There)
    }

    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::There(key) => labels.contains_key(key),
            Self::NotThere(key) => !labels.contains_key(key),
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Never => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
        match self {
            Self::There(key) => f.write_str(key),
            Self::NotThere(key) => write!(f, "!{key}"),
            Self::In(key, values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Self::In(key, values) => write!(f, "{key} in ({})", list(values)),
            Self::NotIn(key, values) if values.len() == 1 => write!(f, "{key}!={}", list(values)),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", list(values)),
            Self::Never => f.write_str("(nothing)"),
        }
    }
}

/// Splits a text at the commas that are outside of brackets. `None`: the brackets are unbalanced.
fn parts(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut inside, mut begin) = (false, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return None,
            ',' if !inside => {
                parts.push(text.get(begin..at)?);
                begin = at.checked_add(1)?;
            }
            _ => (),
        }
    }
    parts.push(text.get(begin..)?);
    (!inside).then_some(parts)
}

/// Parses a label's name, with or without a domain.
fn key_of(text: &str) -> Option<String> {
    let text = text.trim();
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let good = !name.is_empty() && is_word(name) && domain.is_none_or(is_domain);
    good.then(|| text.to_owned())
}

/// Parses a label's value, which may be empty.
fn value_of(text: &str) -> Option<String> {
    let text = text.trim();
    (text.is_empty() || is_word(text)).then(|| text.to_owned())
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= WORD_MAX && bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

fn is_domain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= DOMAIN_MAX && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn selectors_match_like_kubectl() {
        let node = labels(&[("zone", "a"), ("example.com/tier", "edge"), ("flag", "")]);
        let rows = [
            ("zone=a", true),
            ("zone==a", true),
            ("zone = a", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("other!=b", true),
            ("zone!=a", false),
            ("zone in (a, b)", true),
            ("zone in (b)", false),
            ("zone notin (a,b)", false),
            ("other notin (a)", true),
            ("flag", true),
            ("flag=", true),
            ("!flag", false),
            ("!spot", true),
            ("example.com/tier=edge,zone=a,!spot", true),
            ("example.com/tier=edge,zone in (b,c)", false),
        ];
        for (text, want) in rows {
            assert_eq!(Selector::read(text).unwrap().matches(&node), want, "{text}");
        }
        let nothing = Selector::nothing();
        assert!(!nothing.matches(&node) && !nothing.matches(&labels(&[])));
        assert!(Selector::read(&nothing.to_string()).is_err(), "no user can write it");
    }

    #[test]
    fn selectors_ignore_order_and_spelling() {
        let one = Selector::read("zone in (b, a),tier==edge").unwrap();
        assert_eq!(Selector::read("tier=edge , zone in (a,b)"), Ok(one.clone()));
        assert_eq!(one.to_string(), "tier=edge,zone in (a,b)");
    }

    #[test]
    fn invalid_selectors_are_refused() {
        let rows = [
            "",
            "zone=a,",
            "zone=(a)",
            "zone in a",
            "zone in (a",
            "zone)",
            "a b",
            "!",
            "=a",
            "zo ne=a",
            "a/b/c",
        ];
        for text in rows {
            assert!(Selector::read(text).is_err(), "{text}");
        }
        let fault = |text| Selector::read(text).unwrap_err();
        let expected = "invalid requirement \" \": write key=value, key!=value, key in (a, b), key or !key";
        assert_eq!(fault("zone=a, ,tier"), expected);
        assert_eq!(fault("zone in (a"), "\"zone in (a\" has unbalanced brackets");
    }

    proptest! {
        #[test]
        fn parsed_values_print_and_parse_again(text in "[ab/.]{0,3}( in | notin |=|==|!=|!)?[(]?[ab, ]{0,4}[)]?(,!?c)?") {
            if let Ok(selector) = Selector::read(&text) {
                prop_assert_eq!(Selector::read(&selector.to_string()), Ok(selector));
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in any::<String>()) {
            let _judged = Selector::read(&text);
        }
    }
}
