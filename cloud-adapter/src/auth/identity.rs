//! ServiceAccounts and their roles.

use std::{collections::BTreeMap, fmt, str::FromStr};

use telemetry::hint;

use crate::auth::Role;

/// A Kubernetes ServiceAccount: the identity of a caller, independent of how the caller proved it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

impl ServiceAccount {
    /// Returns `None` if one of the names is not a valid Kubernetes name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_name(namespace) && is_name(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Parses the subject of a token. Source: Kubernetes, "Authenticating", ServiceAccount tokens.
    #[must_use]
    pub fn from_subject(subject: &str) -> Option<Self> {
        let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        Self::new(namespace, name)
    }

    /// Parses a SPIFFE ID in the form that service meshes and cert-manager give to Kubernetes workloads:
    /// `spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/NAME`.
    #[must_use]
    pub fn from_spiffe(id: &str, trust_domain: &str) -> Option<Self> {
        let path = id.strip_prefix("spiffe://")?.strip_prefix(trust_domain)?.strip_prefix("/ns/")?;
        let (namespace, name) = path.split_once("/sa/")?;
        Self::new(namespace, name)
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Returns whether the name is a DNS subdomain, as Kubernetes requires. The check is approximate. Source: RFC 1123.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(plain)
}

/// A ServiceAccount and its role, in a flag written as `ROLE=NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The role of the ServiceAccount.
    pub role: Role,
    /// The ServiceAccount that has the role.
    pub account: ServiceAccount,
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str =
            "use ROLE=NAMESPACE/SERVICEACCOUNT, such as node-controller=kube-system/cloud-node-controller";
        let (role, account) = text.split_once('=').ok_or(EXAMPLE)?;
        let role = Role::from_word(role).ok_or_else(|| {
            let words: Vec<&str> = Role::NAMED.into_iter().map(Role::word).collect();
            format!("unknown role '{role}'{}", hint(role, words))
        })?;
        let account =
            account.split_once('/').and_then(|(namespace, name)| ServiceAccount::new(namespace, name));
        Ok(Self { role, account: account.ok_or(EXAMPLE)? })
    }
}

/// The roles of all known ServiceAccounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities(BTreeMap<ServiceAccount, Role>);

impl Identities {
    /// Collects the roles of these ServiceAccounts.
    pub fn new(identities: &[Identity]) -> Result<Self, String> {
        let mut roles = BTreeMap::new();
        for Identity { role, account } in identities {
            if let Some(other) = roles.insert(account.clone(), *role)
                && other != *role
            {
                let (one, two) = (other.word(), role.word());
                return Err(format!(
                    "ServiceAccount {account} has two roles, {one} and {two}: use a separate ServiceAccount for each"
                ));
            }
        }
        Ok(Self(roles))
    }

    /// Returns the role of a ServiceAccount. `None`: the ServiceAccount may call no method.
    #[must_use]
    pub fn role(&self, account: &ServiceAccount) -> Option<Role> {
        self.0.get(account).copied()
    }

    /// Returns whether no ServiceAccount has a role.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subjects_of_service_accounts_are_parsed() {
        let read = |subject: &str| ServiceAccount::from_subject(subject).map(|account| account.to_string());
        let good = "system:serviceaccount:kube-system:cloud-node-controller";
        assert_eq!(read(good).as_deref(), Some(good));
        for subject in [
            "",
            "system:serviceaccount:",
            "system:serviceaccount:kube-system",
            "system:serviceaccount:kube-system:",
            "system:serviceaccount::x",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount:a/b:c",
            "system:serviceaccounts:a:b",
            "system:node:a",
            "SYSTEM:serviceaccount:a:b",
        ] {
            assert_eq!(read(subject), None, "{subject}");
        }
    }

    #[test]
    fn a_spiffe_id_must_have_the_trust_domain_and_the_known_form() {
        let read =
            |id: &str| ServiceAccount::from_spiffe(id, "example.org").map(|account| account.to_string());
        assert_eq!(
            read("spiffe://example.org/ns/kube-system/sa/cloud-node-controller").as_deref(),
            Some("system:serviceaccount:kube-system:cloud-node-controller")
        );
        for id in [
            "spiffe://example.org.evil.net/ns/a/sa/b",
            "spiffe://evil.example.org/ns/a/sa/b",
            "spiffe://example.org/ns/a/sa/b/more",
            "spiffe://example.org/ns/a/sa/",
            "spiffe://example.org/ns//sa/b",
            "spiffe://example.org/ns/a/b/sa/c",
            "spiffe://example.org/sa/b/ns/a",
            "https://example.org/ns/a/sa/b",
        ] {
            assert_eq!(read(id), None, "{id}");
        }
    }

    #[test]
    fn a_flag_names_a_role_and_an_account() {
        let identity: Identity = "service-controller=kube-system/csc".parse().expect("good");
        assert_eq!(identity.role, Role::ServiceController);
        assert_eq!(identity.account.to_string(), "system:serviceaccount:kube-system:csc");
        for (text, wanted) in [
            ("service-controller", "use ROLE=NAMESPACE/SERVICEACCOUNT"),
            ("service-controller=csc", "use ROLE=NAMESPACE/SERVICEACCOUNT"),
            ("service-controller=a/b/c", "use ROLE=NAMESPACE/SERVICEACCOUNT"),
            ("anyone=a/b", "unknown role 'anyone': use one of: node-controller"),
            ("admin=a/b", "unknown role 'admin': use one of: node-controller"),
        ] {
            let refused = text.parse::<Identity>().expect_err(text);
            assert!(refused.contains(wanted), "{text}: {refused}");
        }
    }

    #[test]
    fn one_account_has_one_role() {
        let identity = |text: &str| text.parse::<Identity>().expect("good");
        let twice = [identity("operator=a/b"), identity("operator=a/b")];
        assert!(Identities::new(&twice).is_ok(), "the same role given twice");
        let two = [identity("operator=a/b"), identity("adapter=a/b")];
        assert!(Identities::new(&two).expect_err("two roles").contains("two roles"));
    }
}
