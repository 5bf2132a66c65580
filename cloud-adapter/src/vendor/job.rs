//! A request that waits to be sent.

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::Span;

use super::error::VendorError;
use super::{
    Meter, Operation, Purpose, VendorRequest, VendorResponse,
    trace::{self, Sent},
};

#[derive(Debug)]
pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) request: VendorRequest,
    pub(super) purpose: Purpose,
    pub(super) meter: Arc<Meter>,
    /// The error of the first try, if the vendor throttled the request.
    pub(super) throttled: Option<VendorError>,
    /// The span of the call from submission to result.
    pub(super) span: Span,
    pub(super) sent: Sent,
    pub(super) reply: oneshot::Sender<Result<VendorResponse, VendorError>>,
}

impl Job {
    pub(super) fn tell(self, result: Result<VendorResponse, VendorError>) {
        trace::end(&self.span, &self.sent, result.as_ref().err());
        // The waiter may no longer exist, but the call is counted anyway.
        self.reply.send(result).ok();
    }
}
