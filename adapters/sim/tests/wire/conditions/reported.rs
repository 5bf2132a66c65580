//! An error as sent over gRPC, parsed without the contract's own parser.

use std::{collections::HashMap, time::Duration};

use cloud_api_proto::Reason;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Retry {
    /// The caller may not retry until the request or the state changes.
    Never,
    AtOnce,
    After(Duration),
}

#[derive(Debug)]
pub(crate) struct Reported {
    code: Code,
    pub(crate) message: String,
    info: Option<(String, String)>,
    pub(crate) metadata: HashMap<String, String>,
    /// `RetryInfo`.
    retry: Option<Duration>,
    pushback: Option<String>,
    pub(crate) fields: Vec<String>,
    pub(crate) quota: bool,
}

impl Reported {
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

    /// Asserts the properties that the contract requires for the condition.
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
        assert!(!self.message.is_empty(), "there is a message for users");
        assert_eq!(!self.fields.is_empty(), reason == Reason::FieldInvalid, "BadRequest: {self:#?}");
        assert_eq!(self.quota, reason == Reason::VendorQuota, "QuotaFailure: {self:#?}");
    }

    #[track_caller]
    pub(crate) fn quotes_the_vendor(&self, code: &str) {
        assert_eq!(self.metadata.get("vendor_code").map(String::as_str), Some(code), "{self:#?}");
        assert!(self.metadata.get("vendor_request_id").is_some_and(|id| !id.is_empty()), "{self:#?}");
    }

    pub(crate) fn delay(&self) -> Duration {
        self.retry.expect("a delay")
    }

    /// Asserts that gRPC itself refused the message, so the error has no reason of the contract.
    #[track_caller]
    pub(crate) fn is_grpcs_own(&self, code: Code) {
        assert_eq!(
            (self.code, &self.info, self.retry, &self.pushback),
            (code, &None, None, &None),
            "{self:#?}"
        );
    }
}
