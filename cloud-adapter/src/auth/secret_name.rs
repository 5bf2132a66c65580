//! The name of a Secret in a flag.

use std::{fmt, str::FromStr};

/// The name of a Secret, in a flag written as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretName {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name in the namespace.
    pub name: String,
}

impl FromStr for SecretName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("use NAMESPACE/NAME, such as kube-system/cloud-adapter-ca"),
        }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
