//! Errors without fields that clients need.

use cloud_api_proto::{AdapterError, Reason};
use secrecy::ExposeSecret as _;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use super::Front;
use crate::broken::Fault;

impl Front {
    pub(super) fn reported(&self, status: Status) -> Status {
        let mut error = AdapterError::from(&status);
        match self.fault {
            Fault::NoErrorInfo => return unexplained(&status, error.retry_after),
            Fault::FieldNotNamed if !error.violations.is_empty() => {
                error.violations.clear();
                "invalid request".clone_into(&mut error.message);
            }
            Fault::NoRetryInfo => error.retry_after = None,
            Fault::SecretInErrors if error.metadata.contains_key("vendor_code") => {
                error.message = format!("{} (requested with the token {})", error.message, self.secret());
            }
            _ => return status,
        }
        error.into()
    }

    fn secret(&self) -> String {
        let notes = self.memory.notes();
        notes.secret.as_ref().map(|secret| secret.expose_secret().to_owned()).unwrap_or_default()
    }
}

fn unexplained(status: &Status, retry_after: Option<std::time::Duration>) -> Status {
    let mut details = ErrorDetails::new();
    details.set_retry_info(retry_after);
    Status::with_error_details(status.code(), status.message(), details)
}

/// Returns whether the vendor rejected the credentials.
pub(super) const fn is_refusal(reason: Reason) -> bool {
    matches!(reason, Reason::VendorAuth | Reason::VendorForbidden)
}
