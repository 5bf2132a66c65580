//! Step 4: defines the errors, decides which are retried and when, and which are reported as Events.

use controller_core::{Again, kube_api};

/// The step that failed. The text does not include the cause, which is the error's source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot write addresses")]
    Addresses { source: kube_api::Error },
    #[error("cannot write labels")]
    Labels { source: kube_api::Error },
    #[error("cannot write provider ID, labels and taints")]
    Initialise { source: kube_api::Error },
    #[error("cannot build the patch")]
    Patch { source: serde_json::Error },
}

impl Error {
    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => {
                // If the node is gone, the watch reports the deletion. Any other error may be temporary; a change of the node triggers an
                // earlier reconcile.
                if source.is_not_found() { Again::OnChange } else { Again::Backoff }
            }
            Self::Patch { .. } => Again::OnChange,
        }
    }

    /// Whether the write failed because another client wrote first, which is harmless.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Self::Addresses { source } | Self::Labels { source } | Self::Initialise { source } => {
                source.is_stale()
            }
            Self::Patch { .. } => false,
        }
    }

    /// Whether the API server refused the write in a way that is worth an Event: not a conflict, and not throttling.
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
