//! Provider IDs, by which Kubernetes and a cloud identify the instance of a Node. The text is parsed once, into a type.

use std::{fmt, str::FromStr};

/// The contract's limit, in bytes.
const MAX_LEN: usize = 512;

/// A provider ID, `<scheme>://<rest>`, such as `sim://north/i-17` or `openstack:///6b1f…`.
///
/// Provider IDs are compared byte by byte and not normalised, because `Node.spec.providerID` is immutable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId {
    text: String,
    /// Length of the scheme, which is always followed by `://`.
    scheme: usize,
}

impl ProviderId {
    /// Returns the scheme, the part before `://`, which names the cloud.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme).unwrap_or_default()
    }

    /// Returns the part after `://`, which identifies the instance. Only the adapter interprets this part.
    #[must_use]
    pub fn rest(&self) -> &str {
        self.text.get(self.scheme + 3..).unwrap_or_default()
    }

    /// Returns the whole ID, as in the Node.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Returns the other form of the provider ID of the same instance: with the adapter's region, or without a region. Returns `None` if there
/// is only one form, or if the region is not known. The contract defines both forms at `Scope.region`.
#[must_use]
pub fn other_form(id: &str, region: &str) -> Option<String> {
    let (scheme, rest) = id.split_once("://")?;
    if region.is_empty() {
        return None;
    }
    match rest.strip_prefix('/') {
        Some(id) => Some(format!("{scheme}://{region}/{id}")),
        None => rest.strip_prefix(region)?.strip_prefix('/').map(|id| format!("{scheme}:///{id}")),
    }
}

/// The reasons why a text is not a valid provider ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The ID does not contain `://`.
    #[error("provider ID has no scheme: expected <scheme>://<id>")]
    NoScheme,
    /// The scheme is empty or contains a character other than lower case letters, digits, `+`, `-` and `.`.
    #[error(
        "provider ID has an invalid scheme: expected a lower case letter, then letters, digits, +, - or ."
    )]
    BadScheme,
    /// The ID ends after the scheme.
    #[error("provider ID is empty after its scheme")]
    NoId,
    /// The ID contains blanks or control characters.
    #[error("provider ID contains blanks or control characters")]
    Unprintable,
    /// The ID exceeds the contract's limit.
    #[error("provider ID is longer than {MAX_LEN} bytes")]
    TooLong,
}

impl FromStr for ProviderId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_LEN {
            return Err(Error::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(Error::NoScheme)?;
        let tail = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_lowercase()) || !scheme.chars().all(tail) {
            return Err(Error::BadScheme);
        }
        if rest.trim_matches('/').is_empty() {
            return Err(Error::NoId);
        }
        if rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(Error::Unprintable);
        }
        Ok(Self { text: text.to_owned(), scheme: scheme.len() })
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_known_clouds_are_parsed() {
        let ids = [
            ("sim://north/i-17", "sim", "north/i-17"),
            ("aws:///eu-central-1a/i-0abc", "aws", "/eu-central-1a/i-0abc"),
            ("openstack:///6b1f-77", "openstack", "/6b1f-77"),
            ("openstack://RegionOne/6b1f-77", "openstack", "RegionOne/6b1f-77"),
            ("hcloud://12345", "hcloud", "12345"),
            ("gce://project/zone/name", "gce", "project/zone/name"),
            (
                "azure:///subscriptions/s/resourceGroups/g/virtualMachines/vm",
                "azure",
                "/subscriptions/s/resourceGroups/g/virtualMachines/vm",
            ),
            ("kind://docker/kind/control-plane", "kind", "docker/kind/control-plane"),
            ("x+y-1.0://a", "x+y-1.0", "a"),
            ("a://b://c", "a", "b://c"),
        ];
        for (text, scheme, rest) in ids {
            let id: ProviderId = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((id.scheme(), id.rest()), (scheme, rest), "{text}");
            assert_eq!(id.to_string(), text);
            assert_eq!(id.as_str(), text);
        }
    }

    #[test]
    fn an_invalid_id_is_refused_with_the_reason() {
        let long = format!("sim://{}", "x".repeat(MAX_LEN));
        let texts = [
            ("", Error::NoScheme),
            ("i-17", Error::NoScheme),
            ("sim:/i-17", Error::NoScheme),
            ("sim:i-17", Error::NoScheme),
            ("://i-17", Error::BadScheme),
            ("Sim://i-17", Error::BadScheme),
            ("1sim://i-17", Error::BadScheme),
            ("s im://i-17", Error::BadScheme),
            (" sim://i-17", Error::BadScheme),
            ("sim://", Error::NoId),
            ("sim:///", Error::NoId),
            ("sim://a b", Error::Unprintable),
            ("sim://a\n", Error::Unprintable),
            ("sim://a\u{0}", Error::Unprintable),
            (long.as_str(), Error::TooLong),
        ];
        for (text, error) in texts {
            assert_eq!(text.parse::<ProviderId>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn an_id_with_the_region_and_one_without_are_two_forms() {
        for (one, other) in [
            ("openstack:///6b1f", Some("openstack://RegionOne/6b1f")),
            ("openstack://RegionOne/6b1f", Some("openstack:///6b1f")),
            ("openstack://RegionTwo/6b1f", None),
            ("openstack://RegionOneAndAHalf/6b1f", None),
            ("sim://i-1", None),
            ("i-1", None),
        ] {
            assert_eq!(other_form(one, "RegionOne").as_deref(), other, "{one}");
            if let Some(other) = other {
                assert_eq!(other_form(other, "RegionOne").as_deref(), Some(one), "both directions");
            }
        }
        assert_eq!(other_form("openstack:///6b1f", ""), None, "the region is not known");
    }

    #[test]
    fn nothing_is_normalised() {
        let id = |text: &str| text.parse::<ProviderId>().expect("a good ID");
        assert_ne!(id("sim://north/i-1"), id("sim://North/i-1"));
        assert_ne!(id("openstack:///i-1"), id("openstack://i-1"));
        assert_ne!(id("sim://north/i-1"), id("sim://north/i-1/"));
    }

    #[test]
    fn the_longest_id_is_parsed() {
        let text = format!("sim://{}", "x".repeat(MAX_LEN - "sim://".len()));
        assert_eq!(text.parse::<ProviderId>().map(|id| id.as_str().len()), Ok(MAX_LEN));
    }
}
