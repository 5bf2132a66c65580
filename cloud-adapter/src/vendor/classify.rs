//! How a driver interprets the vendor's answers.

use cloud_budget::Hint;
use secrecy::SecretString;

use super::{Operation, VendorError, VendorResponse, headers};

/// Interprets the vendor's answers.
pub trait Classify: Send + Sync {
    /// Classifies an answer; `None` means success. Drivers implement this as a table and test it with recorded answers.
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError>;

    /// Returns how many calls the vendor's rate limit still allows, if the answer contains that number. Default: from the headers
    /// `RateLimit-Remaining`, `-Limit`, `-Reset`, with or without `X-`.
    fn hint(&self, _operation: Operation, response: &VendorResponse) -> Option<Hint> {
        headers::hint(response.headers())
    }

    /// Returns the bucket that is named in a throttled answer, for vendors with several limits per family.
    fn bucket(&self, _operation: Operation, _response: &VendorResponse) -> Option<&'static str> {
        None
    }

    /// Returns the vendor's ID of the request. Default: from one of the usual headers.
    fn request_id(&self, response: &VendorResponse) -> Option<String> {
        headers::request_id(response.headers())
    }

    /// Returns the credentials to remove from the vendor's texts. Default: only the values of request headers that are marked as sensitive.
    fn secrets(&self) -> Vec<SecretString> {
        Vec::new()
    }
}
