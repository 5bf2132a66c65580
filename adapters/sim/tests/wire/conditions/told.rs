//! What an error says on the wire, read without the help of the contract's own reader.

use std::{collections::HashMap, time::Duration};

use cloud_api_proto::Reason;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// When a caller may come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Retry {
    /// Not before something changes.
    Never,
    AtOnce,
    /// After at least so long.
    After(Duration),
}

/// An error, with all that it carries.
#[derive(Debug)]
pub(crate) struct Told {
    code: Code,
    pub(crate) message: String,
    /// `ErrorInfo`: domain and reason.
    info: Option<(String, String)>,
    pub(crate) metadata: HashMap<String, String>,
    /// `RetryInfo`.
    retry: Option<Duration>,
    /// The header `grpc-retry-pushback-ms`.
    pushback: Option<String>,
    /// The fields of `BadRequest`.
    pub(crate) fields: Vec<String>,
    /// Whether there is a `QuotaFailure`.
    pub(crate) quota: bool,
}

impl Told {
    pub(crate) fn read(status: &Status) -> Self {
        let details = status.check_error_details().expect("details that can be read");
        let info = details.error_info();
        let pushback = status.metadata().get("grpc-retry-pushback-ms");
        let bad = details.bad_request().map_or(&[][..], |bad| &bad.field_violations);
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            info: info.map(|info| (info.domain.clone(), info.reason.clone())),
            metadata: info.map(|info| info.metadata.clone()).unwrap_or_default(),
            retry: details.retry_info().and_then(|info| info.retry_delay),
            pushback: pushback.map(|value| value.to_str().expect("ASCII").to_owned()),
            fields: bad.iter().map(|violation| violation.field.clone()).collect(),
            quota: details.quota_failure().is_some(),
        }
    }

    /// Checks what the contract says of the condition.
    #[track_caller]
    pub(crate) fn is(&self, reason: Reason, code: Code, retry: Retry) {
        let info = Some(("cloudadapter.dev".to_owned(), reason.word().to_owned()));
        assert_eq!((self.code, &self.info), (code, &info), "{self:#?}");
        match (retry, self.retry) {
            (Retry::Never, None) => (),
            (Retry::AtOnce, Some(delay)) if delay.is_zero() => (),
            (Retry::After(least), Some(delay)) if delay >= least => (),
            _ => panic!("retry {retry:?}: {self:#?}"),
        }
        let header = self.retry.map(|delay| delay.as_millis().to_string());
        assert_eq!(self.pushback, header, "the header repeats RetryInfo: {self:#?}");
        assert!(!self.message.is_empty(), "people read it");
        assert_eq!(!self.fields.is_empty(), reason == Reason::FieldInvalid, "BadRequest: {self:#?}");
        assert_eq!(self.quota, reason == Reason::VendorQuota, "QuotaFailure: {self:#?}");
    }

    /// Checks that the vendor's own words are there.
    #[track_caller]
    pub(crate) fn quotes_the_vendor(&self, code: &str) {
        assert_eq!(self.metadata.get("vendor_code").map(String::as_str), Some(code), "{self:#?}");
        assert!(self.metadata.get("vendor_request_id").is_some_and(|id| !id.is_empty()), "{self:#?}");
    }

    /// How long to wait.
    pub(crate) fn delay(&self) -> Duration {
        self.retry.expect("a delay")
    }

    /// `RESOURCE_EXHAUSTED` without a reason is gRPC's own word for a message that is too large.
    #[track_caller]
    pub(crate) fn is_grpcs_own(&self, code: Code) {
        assert_eq!(
            (self.code, &self.info, self.retry, &self.pushback),
            (code, &None, None, &None),
            "{self:#?}"
        );
    }
}
