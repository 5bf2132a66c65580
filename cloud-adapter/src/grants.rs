//! The operator's grants: what the Services of a namespace may use beyond their own objects. This module is pure.
//!
//! A user that may create Services in one namespace can name any ID or address of the cloud project. Therefore a Service may use only its
//! own objects, unless the owner of another object or the operator allows more. This module contains the operator's permissions.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;
use telemetry::hint;

use crate::driver::Inheritance;

const ANY: &str = "*";
const KINDS: [&str; 9] = [
    "adopt",
    "adopt-and-delete",
    "share",
    "parameter",
    "subnet",
    "certificate",
    "addresses",
    "pool",
    "former",
];

/// One permission: `NAMESPACE:KIND=VALUE`, the value of `--grant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    namespace: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Services may adopt the load balancer with this vendor ID, if it has no owner.
    Adopt(String),
    /// Services may adopt the load balancer with this vendor ID, if it has no owner. The load balancer is deleted with its Service.
    AdoptAndDelete(String),
    /// Services may share the load balancer with this vendor ID, whatever its owner.
    Share(String),
    /// Services may set this vendor parameter, which affects more than the Service.
    Parameter(String),
    Subnet(String),
    /// Services may terminate TLS with the certificate that has this reference.
    Certificate(String),
    /// Services may request addresses of this range, which is reserved for the namespaces with this grant.
    Addresses(IpNet),
    Pool(String),
    /// Services may adopt what another controller created for a Service of the same name in the cluster with this name.
    Former(String),
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected NAMESPACE:KIND=VALUE, such as shop:adopt=8f14e45f";
        let (namespace, rest) = text.split_once(':').ok_or(FORM)?;
        let (kind, value) = rest.split_once('=').ok_or(FORM)?;
        let is_label = |word: &str| {
            !word.is_empty()
                && word.len() <= 63
                && word.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
        };
        if namespace != ANY && !is_label(namespace) {
            return Err(format!(
                "invalid namespace {namespace:?}: expected the name of a namespace, or * for all"
            ));
        }
        if value.is_empty() {
            return Err(format!("{kind} has no value: {FORM}"));
        }
        let word = value.to_owned();
        let kind = match kind {
            "adopt" => Kind::Adopt(word),
            "adopt-and-delete" => Kind::AdoptAndDelete(word),
            "share" => Kind::Share(word),
            "parameter" => Kind::Parameter(word),
            "subnet" => Kind::Subnet(word),
            "certificate" => Kind::Certificate(word),
            "addresses" => Kind::Addresses(range(value)?),
            "pool" => Kind::Pool(word),
            "former" => Kind::Former(word),
            other => {
                return Err(format!("unknown kind '{other}'{}", hint(other, KINDS)));
            }
        };
        Ok(Self { namespace: namespace.to_owned(), kind })
    }
}

/// Parses a range of addresses: a CIDR, or a single address.
fn range(text: &str) -> Result<IpNet, String> {
    let alone = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
    let range = text.parse::<IpNet>().ok().or_else(alone);
    range
        .map(|range| range.trunc())
        .ok_or_else(|| format!("invalid range {text:?}: expected a CIDR or an IP address"))
}

/// All grants of an adapter. Without grants, Services can use only their own objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<Grant>);

impl From<Vec<Grant>> for Grants {
    fn from(all: Vec<Grant>) -> Self {
        Self(all)
    }
}

impl Grants {
    fn any(&self, namespace: &str, fits: impl Fn(&Kind) -> bool) -> bool {
        self.0.iter().any(|grant| is(&grant.namespace, namespace) && fits(&grant.kind))
    }

    /// Returns whether Services of the namespace may adopt the load balancer with this ID.
    #[must_use]
    pub fn may_adopt(&self, namespace: &str, id: &str) -> bool {
        self.any(
            namespace,
            |kind| matches!(kind, Kind::Adopt(granted) | Kind::AdoptAndDelete(granted) if is(granted, id)),
        )
    }

    /// Returns whether the load balancer with this ID is deleted with the Service of the namespace that adopted it.
    #[must_use]
    pub fn may_delete_adopted(&self, namespace: &str, id: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::AdoptAndDelete(granted) if is(granted, id)))
    }

    /// Returns whether Services of the namespace may share the load balancer with this ID.
    #[must_use]
    pub fn may_share(&self, namespace: &str, id: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::Share(granted) if is(granted, id)))
    }

    /// Returns whether Services of the namespace may set this vendor parameter.
    #[must_use]
    pub fn may_set(&self, namespace: &str, parameter: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::Parameter(granted) if is(granted, parameter)))
    }

    /// Returns whether Services of the namespace may use this subnet.
    #[must_use]
    pub fn may_use_subnet(&self, namespace: &str, subnet: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::Subnet(granted) if is(granted, subnet)))
    }

    /// Returns whether Services of the namespace may terminate TLS with the certificate that has this reference.
    #[must_use]
    pub fn may_use_certificate(&self, namespace: &str, reference: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::Certificate(granted) if is(granted, reference)))
    }

    /// Returns whether Services of the namespace may request addresses of this pool.
    #[must_use]
    pub fn may_use_pool(&self, namespace: &str, pool: &str) -> bool {
        self.any(namespace, |kind| matches!(kind, Kind::Pool(granted) if is(granted, pool)))
    }

    /// Returns the proof that a Service of the namespace needs to adopt a load balancer by name in the cluster with this name.
    #[must_use]
    pub fn inheritance(&self, namespace: &str, cluster_name: &str) -> Inheritance {
        if self.any(namespace, |kind| matches!(kind, Kind::Former(granted) if is(granted, cluster_name))) {
            Inheritance::ByName
        } else {
            Inheritance::ByUid
        }
    }

    /// Returns the granted range that contains the address, if the range is granted only to other namespaces.
    #[must_use]
    pub fn reserved_for_others(&self, namespace: &str, address: IpAddr) -> Option<IpNet> {
        let holding = self.0.iter().filter_map(|grant| match &grant.kind {
            Kind::Addresses(range) if range.contains(&address) => Some((&grant.namespace, *range)),
            Kind::Addresses(_)
            | Kind::Adopt(_)
            | Kind::AdoptAndDelete(_)
            | Kind::Share(_)
            | Kind::Parameter(_)
            | Kind::Subnet(_)
            | Kind::Certificate(_)
            | Kind::Pool(_)
            | Kind::Former(_) => None,
        });
        let mut holding = holding.peekable();
        let (_, first) = *holding.peek()?;
        (!holding.any(|(granted, _)| is(granted, namespace))).then_some(first)
    }
}

fn is(granted: &str, asked: &str) -> bool {
    granted == ANY || granted == asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(all: &[&str]) -> Grants {
        all.iter().map(|text| text.parse().expect(text)).collect::<Vec<Grant>>().into()
    }

    #[test]
    fn nothing_is_allowed_without_a_grant() {
        let none = Grants::default();
        assert!(!none.may_adopt("shop", "lb-1") && !none.may_delete_adopted("shop", "lb-1"));
        assert!(!none.may_share("shop", "lb-1") && !none.may_set("shop", "member-subnet-id"));
        assert!(!none.may_use_subnet("shop", "s-1") && !none.may_use_certificate("shop", "cert-1"));
        assert!(!none.may_use_pool("shop", "dmz"));
        assert_eq!(none.inheritance("shop", "kubernetes"), Inheritance::ByUid);
        assert_eq!(none.reserved_for_others("shop", [192, 0, 2, 1].into()), None);
    }

    #[test]
    fn grant_applies_to_its_namespace_and_value_only() {
        let some = grants(&[
            "shop:adopt=lb-1",
            "shop:share=lb-2",
            "*:parameter=flavor",
            "ops:adopt-and-delete=*",
            "shop:former=prod",
        ]);
        for (what, allowed, wanted) in [
            ("adopt", some.may_adopt("shop", "lb-1"), true),
            ("adopt another", some.may_adopt("shop", "lb-2"), false),
            ("adopt from another namespace", some.may_adopt("evil", "lb-1"), false),
            ("delete with a grant to adopt", some.may_delete_adopted("shop", "lb-1"), false),
            ("delete", some.may_delete_adopted("ops", "lb-9"), true),
            ("adopt with a grant to delete", some.may_adopt("ops", "lb-9"), true),
            ("share", some.may_share("shop", "lb-2"), true),
            ("share with a grant to adopt", some.may_share("shop", "lb-1"), false),
            ("set with a grant to all namespaces", some.may_set("evil", "flavor"), true),
            ("set another", some.may_set("evil", "subnet"), false),
            ("inherit", some.inheritance("shop", "prod") == Inheritance::ByName, true),
            ("inherit in another namespace", some.inheritance("evil", "prod") == Inheritance::ByName, false),
            ("inherit from another cluster", some.inheritance("shop", "test") == Inheritance::ByName, false),
        ] {
            assert_eq!(allowed, wanted, "{what}");
        }
    }

    #[test]
    fn a_range_that_is_granted_is_reserved() {
        let some = grants(&[
            "shop:addresses=192.0.2.0/28",
            "ops:addresses=192.0.2.3",
            "shop:addresses=2001:db8::/64",
        ]);
        let reserved = |namespace, text: &str| {
            some.reserved_for_others(namespace, text.parse().expect(text)).map(|range| range.to_string())
        };
        assert_eq!(reserved("evil", "192.0.2.5").as_deref(), Some("192.0.2.0/28"));
        assert_eq!(reserved("shop", "192.0.2.5"), None);
        assert_eq!(reserved("ops", "192.0.2.3"), None);
        assert_eq!(reserved("ops", "192.0.2.5").as_deref(), Some("192.0.2.0/28"));
        assert_eq!(reserved("evil", "2001:db8::7").as_deref(), Some("2001:db8::/64"));
        assert_eq!(reserved("evil", "198.51.100.1"), None);
    }

    /// The chart and the adapter accept the same values.
    #[test]
    fn chart_accepts_each_grant_kind() {
        let formats = include_str!("../../helm/cloud-controllers/files/formats.yaml");
        for kind in KINDS {
            let value = if kind == "addresses" { "192.0.2.0/28" } else { "x" };
            assert!(format!("shop:{kind}={value}").parse::<Grant>().is_ok(), "{kind}");
            let is_in = |mark: &str| {
                formats.contains(&format!("{mark}{kind}|")) || formats.contains(&format!("|{kind})="))
            };
            assert!(is_in("(") || is_in("|"), "{kind} is not in the formats of the chart");
        }
    }

    #[test]
    fn invalid_grant_is_refused_with_the_format() {
        for (text, says) in [
            ("", "NAMESPACE:KIND=VALUE"),
            ("shop", "NAMESPACE:KIND=VALUE"),
            ("shop:adopt", "NAMESPACE:KIND=VALUE"),
            ("shop:adopt=", "adopt has no value"),
            ("Shop:adopt=x", "invalid namespace \"Shop\""),
            ("shop:steal=x", "unknown kind 'steal'"),
            ("shop:addresses=192.0.2", "invalid range \"192.0.2\""),
        ] {
            let error = text.parse::<Grant>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
