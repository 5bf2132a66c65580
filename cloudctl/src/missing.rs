//! What could not be read, and why.

use serde::{Deserialize, Serialize};

/// Something that a report lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The source: a process, or objects of the cluster.
    pub source: String,
    /// The cause, and what to do.
    pub why: String,
}

impl Missing {
    pub(crate) fn new(source: impl Into<String>, why: impl Into<String>) -> Self {
        Self { source: source.into(), why: why.into() }
    }
}
