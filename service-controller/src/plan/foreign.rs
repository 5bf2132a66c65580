//! The annotations of another controller on a Service, as `compat.rs` translated them.

use std::collections::BTreeMap;

use super::Refusal;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The replacements, one line per key.
    pub(crate) understood: Vec<String>,
    /// Keys that are ignored because `--compat` is not set.
    pub(crate) ignored: Vec<String>,
    /// Annotations that cannot be translated or have an invalid value.
    pub(crate) refusals: Vec<Refusal>,
    /// The original key of each translated annotation.
    pub(crate) from: BTreeMap<String, &'static str>,
}

impl Foreign {
    /// Returns an annotation's name for messages, which contains the key that the user wrote.
    pub(crate) fn place(&self, key: &str) -> String {
        match self.from.get(key) {
            Some(old) => format!("annotation {old} (new name: {key})"),
            None => format!("annotation {key}"),
        }
    }
}
