//! Reads the context of each request, and creates the session to which its vendor calls are charged.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Priority, RequestContext},
};
use cloud_budget::Deadlines;
use http::Uri;
use tokio::time::Instant;
use tonic::{Extensions, metadata::MetadataMap};

use crate::{
    auth::Caller,
    strings,
    vendor::{Purpose, Session, Vendor},
};

#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) cluster_id: String,
    pub(crate) cluster_name: String,
    pub(crate) caller: Caller,
    /// The path of the method, for the log of refusals.
    pub(crate) path: String,
    pub(crate) session: Session,
    pub(crate) deadline: Instant,
    /// The oldest observation time that the caller accepts.
    pub(crate) bound: Option<Instant>,
}

/// Validates the context of a request.
///
/// Returns `FIELD_INVALID` if the cluster ID is missing, a string is too long or the staleness is invalid; `CALLER_UNAUTHENTICATED` if
/// there is no caller.
pub(crate) fn read(
    context: Option<RequestContext>,
    metadata: &MetadataMap,
    extensions: &Extensions,
    vendor: &Arc<Vendor>,
    default: Priority,
) -> Result<Context, AdapterError> {
    let context = context.ok_or_else(|| AdapterError::field("context", "is missing"))?;
    if context.cluster_id.is_empty() {
        return Err(AdapterError::field(
            "context.cluster_id",
            "is empty: set the UID of the namespace kube-system",
        ));
    }
    let RequestContext { cluster_id, cluster_name, request_id, .. } = &context;
    let names =
        [("cluster_id", cluster_id.as_str()), ("cluster_name", cluster_name), ("request_id", request_id)];
    strings::refuse(strings::too_long("context", names))?;
    let now = Instant::now();
    let bound = match context.max_staleness {
        None => None,
        Some(staleness) => {
            let staleness = Duration::try_from(staleness)
                .map_err(|error| AdapterError::field("context.max_staleness", error.to_string()))?;
            Some(now.checked_sub(staleness).unwrap_or(now))
        }
    };
    let Deadlines { default: usual, max } = vendor.deadlines();
    let deadline = now + timeout(metadata).unwrap_or(usual).min(max);
    let priority = match context.priority() {
        Priority::Unspecified => default,
        asked @ (Priority::Background | Priority::Lifecycle | Priority::Interactive | Priority::Traffic) => {
            asked
        }
    };
    // The gate in front of all services has identified the caller.
    let caller = extensions
        .get::<Caller>()
        .cloned()
        .ok_or_else(|| AdapterError::new(Reason::CallerUnauthenticated, "the call is not authenticated"))?;
    let purpose = Purpose {
        priority: priority.min(caller.role.cap()),
        deadline: Some(deadline),
        request_id: context.request_id,
        caller: caller.clone(),
        namespace: Arc::from(""),
        object: Arc::from(""),
    };
    Ok(Context {
        cluster_id: context.cluster_id,
        cluster_name: context.cluster_name,
        caller,
        path: extensions.get::<Uri>().map_or_else(String::new, |uri| uri.path().to_owned()),
        session: vendor.session(purpose),
        deadline,
        bound,
    })
}

/// Parses the header `grpc-timeout`: at most eight digits and a unit. Source: gRPC over HTTP/2, "Requests".
fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value.checked_mul(3600)?)),
        "M" => Some(Duration::from_secs(value.checked_mul(60)?)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_header_is_read_in_all_units() {
        for (text, wanted) in [
            ("2S", Some(Duration::from_secs(2))),
            ("1500m", Some(Duration::from_millis(1500))),
            ("1M", Some(Duration::from_mins(1))),
            ("1H", Some(Duration::from_hours(1))),
            ("7u", Some(Duration::from_micros(7))),
            ("9n", Some(Duration::from_nanos(9))),
            ("9", None),
            ("", None),
            ("xS", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("ASCII"));
            assert_eq!(timeout(&metadata), wanted, "{text:?}");
        }
    }
}
