//! Parses error bodies of the services, in four formats.

use std::{collections::BTreeMap, time::Duration};

use cloud_adapter::{kit::excerpt, vendor::VendorResponse};
use serde::Deserialize;

#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    /// The service's own error code, if it has any.
    pub(super) code: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    ours: bool,
}

impl Refusal {
    pub(super) fn read(response: &VendorResponse) -> Self {
        let body = response.body();
        let reported = serde_json::from_slice::<Octavia>(body).map(Self::from);
        reported
            .or_else(|_other| serde_json::from_slice::<Named>(body).map(Self::from))
            .unwrap_or_else(|_other| Self::unread(response))
    }

    /// Returns whether the answer is from a service, and not from a proxy or another server at the address of the service.
    pub(super) fn is_ours(&self) -> bool {
        self.ours
    }

    pub(super) fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    fn unread(response: &VendorResponse) -> Self {
        Self { code: None, message: excerpt(response), retry_after: None, ours: false }
    }
}

/// The format `{"faultcode": "Client", "faultstring": "...", "debuginfo": null}`.
#[derive(Deserialize)]
struct Octavia {
    faultcode: String,
    faultstring: String,
}

impl From<Octavia> for Refusal {
    fn from(Octavia { faultcode, faultstring }: Octavia) -> Self {
        Self { code: Some(faultcode), message: faultstring, retry_after: None, ours: true }
    }
}

/// The other formats, in which the key of the object varies. In Nova's `{"itemNotFound": {"code": 404, "message": "..."}}`, the key is the
/// error code. Keystone uses the key `error` and adds a title. Neutron uses the key `NeutronError` and adds a type.
type Named = BTreeMap<String, Words>;

#[derive(Deserialize)]
struct Words {
    message: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    title: Option<String>,
    #[serde(rename = "retryAfter", default)]
    retry_after: Option<serde_json::Value>,
}

impl From<Named> for Refusal {
    fn from(named: Named) -> Self {
        let Some((name, Words { message, kind, title, retry_after })) = named.into_iter().next() else {
            return Self {
                code: None,
                message: "the answer gives no reason".to_owned(),
                retry_after: None,
                ours: false,
            };
        };
        let retry_after = retry_after.and_then(|after| after.to_string().trim_matches('"').parse().ok());
        Self {
            code: Some(kind.or(title).unwrap_or(name)),
            message,
            retry_after: retry_after.map(Duration::from_secs),
            ours: true,
        }
    }
}
