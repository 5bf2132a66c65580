//! Things that could not be read, and the causes.

use serde::{Deserialize, Serialize};

/// Something that is missing in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The source that could not be read: a process, or objects of the cluster.
    pub source: String,
    /// The cause, and advice for the user.
    pub why: String,
    /// Whether the API server refused the request because the user lacks a right.
    #[serde(skip)]
    pub(crate) forbidden: bool,
}

impl Missing {
    pub(crate) fn new(source: impl Into<String>, why: impl Into<String>) -> Self {
        Self { source: source.into(), why: why.into(), forbidden: false }
    }

    pub(crate) fn forbidden(source: impl Into<String>, why: impl Into<String>) -> Self {
        Self { forbidden: true, ..Self::new(source, why) }
    }
}

/// A flag has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);
