//! Handles one request: sends it, reads and counts the answer, lets the driver classify the answer, and logs the result.

use std::{fmt, sync::Arc, time::Duration};

use cloud_budget::{CallResult, Outcome};
use tokio::{sync::Notify, time::Instant};

use super::{Permit, wire::Transport};
use crate::{
    metrics::{Metrics, VendorCall},
    vendor::{
        Classify, Fault, Operation, VendorError, VendorRequest, VendorResponse, audit, job::Job, scrub,
        trace::Sent, translate, writes::Writes,
    },
};

#[derive(Debug)]
pub(super) struct SendResult {
    /// The result that the waiter gets.
    pub(super) result: Result<VendorResponse, VendorError>,
    /// The result that the scheduler gets.
    pub(super) answer: CallResult,
    /// The data for traces.
    pub(super) sent: Sent,
}

pub(in crate::vendor) struct Flight {
    pub(in crate::vendor) wire: Box<dyn Transport>,
    pub(in crate::vendor) classify: Arc<dyn Classify>,
    pub(in crate::vendor) metrics: Metrics,
    /// Notified when the vendor rejects the credentials.
    pub(in crate::vendor) rejected: Arc<Notify>,
    /// The last writes, for the status page.
    pub(in crate::vendor) writes: Writes,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl Flight {
    pub(super) async fn send(&self, permit: Permit, job: &Job, waited: Duration) -> SendResult {
        let Job { operation, purpose, .. } = job;
        let (class, controller) = (translate::class(purpose.priority), purpose.caller.role.word());
        job.meter.count(*operation, waited);
        self.metrics.queue_wait(class, controller, waited);
        audit::request(*operation, &job.request);
        let started = Instant::now();
        let sent = self.wire.send(permit, *operation, job.request.clone()).await;
        let took = started.elapsed();
        let sent = sent.map(|response| self.scrubbed(response, &job.request));
        let code = sent.as_ref().map_or(0, |response| response.status().as_u16());
        self.metrics.vendor_call(VendorCall { operation: *operation, class, controller, code, took });
        let vendor_request_id = sent.as_ref().ok().and_then(|response| self.classify.request_id(response));
        let mut landed = self.judge(*operation, sent, took);
        landed.result = landed.result.map_err(|error| {
            if error.fault == Fault::OutcomeUnknown {
                self.metrics.outcome_unknown(operation.name);
            }
            let request_id = error.request_id.clone().or_else(|| vendor_request_id.clone());
            VendorError { request_id, status: (code != 0).then_some(code), ..error }.bounded()
        });
        audit::answer(job, code, landed.result.as_ref().err(), vendor_request_id.as_deref());
        self.writes.note(job, landed.result.as_ref().err());
        landed.sent = job.sent.again(purpose, waited).answered(code, vendor_request_id);
        landed
    }

    /// Removes the secrets from an answer: those that the driver names, and those in the headers of the request.
    fn scrubbed(&self, mut response: VendorResponse, request: &VendorRequest) -> VendorResponse {
        let secrets: Vec<_> = self.classify.secrets().into_iter().chain(scrub::carried(request)).collect();
        scrub::scrub(&mut response, &secrets);
        response
    }

    /// The result of a request during which the driver panicked. The request was probably sent.
    pub(super) fn broken(operation: Operation) -> SendResult {
        let fault = if operation.write { Fault::OutcomeUnknown } else { Fault::Nonsense };
        let error =
            VendorError::new(fault, format!("{operation}: the driver panicked on the cloud's answer"));
        let answer = CallResult { outcome: Outcome::Failed, latency: Duration::ZERO, hint: None };
        SendResult { result: Err(error), answer, sent: Sent::default() }
    }

    /// Classifies an answer, both for the waiter and for the scheduler.
    fn judge(
        &self,
        operation: Operation,
        sent: Result<VendorResponse, VendorError>,
        took: Duration,
    ) -> SendResult {
        let (mut bucket, mut hint) = (None, None);
        let result = sent.and_then(|response| {
            bucket = self.classify.bucket(operation, &response);
            hint = self.classify.hint(operation, &response);
            match self.classify.classify(operation, &response) {
                None => Ok(response),
                Some(error) => Err(error),
            }
        });
        let outcome = translate::outcome(result.as_ref().err(), bucket);
        SendResult { answer: CallResult { outcome, latency: took, hint }, result, sent: Sent::default() }
    }
}
