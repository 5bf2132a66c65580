//! Room 4: the errors; which is tried again, when, and under which name people hear of it.

use controller_core::{Again, kube_api};

/// The step that failed. The cause is the source and is not repeated in the text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot write addresses")]
    Addresses { source: kube_api::Error },
    #[error("cannot write labels")]
    Labels { source: kube_api::Error },
    #[error("cannot write provider ID, labels and taints")]
    Initialise { source: kube_api::Error },
    #[error("cannot form the patch")]
    Patch { source: serde_json::Error },
}

impl Error {
    /// When the node is looked at again.
    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => {
                // A node that is gone is seen to be gone; everything else may pass: a newer node wakes this key sooner anyway.
                if source.is_not_found() { Again::OnChange } else { Again::Backoff }
            }
            Self::Patch { .. } => Again::OnChange,
        }
    }

    /// Somebody else wrote first: nothing to worry about.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => {
                source.is_stale()
            }
            Self::Patch { .. } => false,
        }
    }

    /// What the API server refused, if it is worth telling: not that somebody else wrote first, nor that it is busy.
    pub(crate) fn refused(&self) -> bool {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => {
                let refusal = |status: u16| (400..500).contains(&status) && !matches!(status, 404 | 429);
                source.status().is_some_and(refusal) && !source.is_stale()
            }
            Self::Patch { .. } => true,
        }
    }
}
