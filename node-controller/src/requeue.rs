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

    /// What the API server refused, if it is worth telling: not that somebody else wrote first, nor that it was away.
    pub(crate) fn refused(&self) -> bool {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => source
                .status()
                .is_some_and(|status| (400..500).contains(&status) && !matches!(status, 404 | 409 | 429)),
            Self::Patch { .. } => true,
        }
    }
}
