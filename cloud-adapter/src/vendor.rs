//! The one way to the vendor: every request passes [`Session::call`], which spends the budget, counts, sends and classifies.
//!
//! Retries nothing. What waits, and in which order, is decided by the budget behind this interface.

mod bucket;
mod meter;
mod operation;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use cloud_adapter_security::{Caller, Role};
use cloud_api_proto::v1alpha1::Priority;
use cloud_budget::Class;
use tokio::time::Instant;

pub use self::{
    bucket::Buckets,
    meter::Meter,
    operation::{Family, Operation},
};
use crate::{
    driver::{Classify, Fault, VendorError},
    metrics::{Metrics, VendorCall},
};

/// What a driver sends.
pub type VendorRequest = http::Request<Bytes>;
/// What the vendor answers, read completely.
pub type VendorResponse = http::Response<Bytes>;

/// A vendor call that takes longer has failed. Drivers do not set their own.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The vendor's HTTP API behind the budget. One per process.
pub struct Vendor {
    http: reqwest::Client,
    buckets: Buckets,
    classify: Arc<dyn Classify>,
    metrics: Metrics,
}

impl fmt::Debug for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vendor").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

impl Vendor {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// If the TLS library cannot be set up.
    pub fn new(
        limits: &cloud_budget::Config,
        classify: Arc<dyn Classify>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        // A redirect or a proxy from the environment would be a call that nobody counted.
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self { http, buckets: Buckets::new(limits), classify, metrics })
    }

    /// Begins the vendor calls of one request.
    #[must_use]
    pub fn session(self: &Arc<Self>, purpose: Purpose) -> Session {
        self.metered(purpose, Arc::default())
    }

    /// The same, counted on a meter that is there already.
    pub(crate) fn metered(self: &Arc<Self>, purpose: Purpose, meter: Arc<Meter>) -> Session {
        Session { vendor: Arc::clone(self), purpose, meter }
    }

    /// Calls a second that a family may make now.
    #[must_use]
    pub(crate) fn rate(&self, family: Family) -> f64 {
        let mut budgets = self.buckets.report().into_iter();
        budgets.find(|budget| budget.bucket == family.word()).map_or(f64::INFINITY, |budget| budget.rate)
    }

    /// The buckets, for reports.
    #[must_use]
    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }
}

/// On whose behalf calls are made.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// How urgent they are.
    pub priority: Priority,
    /// When their answers are of no use any more. `None`: the work belongs to the adapter.
    pub deadline: Option<Instant>,
    /// Appears in the log beside each call.
    pub request_id: String,
    /// Who asked: the queue that its calls stand in.
    pub caller: Caller,
    /// What it is about, such as `Service shop/web`: objects of one queue take turns. Appears in the log of writes.
    pub object: Arc<str>,
}

impl Purpose {
    /// Work that the adapter does for itself.
    #[must_use]
    pub fn own(priority: Priority, what: &str) -> Self {
        let caller = Caller { role: Role::Adapter, subject: Arc::from("adapter") };
        Self { priority, deadline: None, request_id: what.to_owned(), caller, object: Arc::from(what) }
    }
}

/// The vendor calls of one request: counted together, paid from the shared budget.
#[derive(Clone, Debug)]
pub struct Session {
    vendor: Arc<Vendor>,
    purpose: Purpose,
    meter: Arc<Meter>,
}

impl Session {
    /// Sends one request and reads the whole answer.
    ///
    /// Cost: exactly one vendor call, or none if the budget refuses.
    ///
    /// # Errors
    /// What the driver's table makes of the answer; [`Fault::Budget`] before sending; [`Fault::Unavailable`] if no connection came
    /// about; for a write whose answer was lost [`Fault::OutcomeUnknown`].
    pub async fn call(
        &self,
        operation: Operation,
        request: VendorRequest,
    ) -> Result<VendorResponse, VendorError> {
        let waited = self.vendor.buckets.admit(operation.family, self.purpose.deadline).await?;
        self.meter.count(operation, waited);
        let started = Instant::now();
        let result = self.send(operation, request).await;
        let code = match &result {
            Ok(response) => response.status().as_u16(),
            Err(_) => 0,
        };
        self.vendor.metrics.vendor_call(VendorCall {
            operation,
            class: class(self.purpose.priority),
            controller: self.purpose.caller.role.word(),
            code,
            took: started.elapsed(),
        });
        let result = result.and_then(|response| match self.vendor.classify.classify(operation, &response) {
            None => Ok(response),
            Some(error) => Err(error),
        });
        self.log(operation, code, result.as_ref().err());
        if result.as_ref().is_err_and(|error| error.fault == Fault::Throttled) {
            self.vendor.buckets.throttled(operation.family);
        }
        result
    }

    /// The same budget and meter, for work that is shared: one caller's deadline is not everybody's.
    #[must_use]
    pub(crate) fn patient(&self) -> Self {
        Self { purpose: Purpose { deadline: None, ..self.purpose.clone() }, ..self.clone() }
    }

    /// The same, for calls about one object.
    #[must_use]
    pub fn about(&self, object: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose { object: object.into(), ..self.purpose.clone() }, ..self.clone() }
    }

    /// On whose behalf calls are made.
    #[must_use]
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// What the calls so far cost.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// One line a write at info: enough to answer "who deleted this load balancer?". Reads are told by who needs them.
    fn log(&self, operation: Operation, code: u16, error: Option<&VendorError>) {
        let Operation { family, name, write } = operation;
        let request_id = self.purpose.request_id.as_str();
        match (error, write) {
            (Some(error), true) => {
                tracing::warn!(%family, call = name, code, request_id, %error, "Vendor write failed");
            }
            (Some(error), false) => {
                tracing::debug!(%family, call = name, code, request_id, %error, "Vendor read failed");
            }
            (None, true) => tracing::info!(%family, call = name, code, request_id, "Vendor write"),
            (None, false) => tracing::debug!(%family, call = name, code, request_id, "Vendor read"),
        }
    }

    async fn send(
        &self,
        operation: Operation,
        request: VendorRequest,
    ) -> Result<VendorResponse, VendorError> {
        let request = reqwest::Request::try_from(request)
            .map_err(|error| VendorError::nonsense(format!("{operation}: cannot be sent: {error}")))?;
        let lost = |error: reqwest::Error| {
            // Only a connection that never came about proves that nothing was done.
            let fault = if operation.write && !error.is_connect() {
                Fault::OutcomeUnknown
            } else {
                Fault::Unavailable
            };
            VendorError::new(fault, format!("{operation}: {}", chain(&error)))
        };
        let answer = self.vendor.http.execute(request).await.map_err(lost)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut response = http::Response::new(answer.bytes().await.map_err(lost)?);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// The class of a priority. What names none is nobody's hurry.
fn class(priority: Priority) -> Class {
    match priority {
        Priority::Unspecified | Priority::Background => Class::Background,
        Priority::Lifecycle => Class::Lifecycle,
        Priority::Interactive => Class::Interactive,
        Priority::Traffic => Class::Traffic,
    }
}

/// An error with its causes; reqwest hides them from `Display`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
