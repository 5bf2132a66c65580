//! Maps the cloud's answers to the runtime's faults, by status and error code.
//!
//! Add the cloud's own error codes, each with a recorded answer as its test. A wrong row could make rejected credentials look like a
//! missing instance, and the controller would then delete the Node.

use cloud_adapter::{
    driver::VendorError,
    kit::{excerpt, fault_of_status, retry_after},
    vendor::{Operation, VendorResponse},
};

/// Returns the fault of an answer. `None`: the answer is a success.
pub(crate) fn classify(operation: Operation, response: &VendorResponse) -> Option<VendorError> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let fault = fault_of_status(operation, status);
    let error = VendorError::new(fault, format!("{operation}: {}", excerpt(response)));
    Some(VendorError { retry_after: retry_after(response.headers()), ..error })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cloud_adapter::{driver::Fault, vendor::Family};
    use http::header;

    use super::*;

    const READ: Operation = Operation::read(Family::Compute, "Read");

    fn answer(status: u16) -> VendorResponse {
        let answer = http::Response::builder().status(status).header(header::RETRY_AFTER, "7");
        answer.body("no".into()).expect("a valid answer")
    }

    #[test]
    fn each_status_has_its_meaning() {
        assert_eq!(classify(READ, &answer(200)), None);
        for (status, wanted) in [(401, Fault::Auth), (404, Fault::Nonsense), (429, Fault::Throttled)] {
            let error = classify(READ, &answer(status)).expect("the answer is an error");
            assert_eq!((error.fault, error.retry_after), (wanted, Some(Duration::from_secs(7))), "{status}");
        }
    }
}
