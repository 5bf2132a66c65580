//! The audit log of routes: one line of the target `audit` per route, because one vendor call can write many routes.

use cloud_api_proto::{Reason, v1alpha1::route_result};

use super::plan::{Change, Verdict};
use crate::{vendor::Purpose, vendor::shown};

/// Logs the result of each route of a batch, with the caller. The log line of the vendor call has the same `request_id`.
pub(super) fn tell(batch: &[Verdict], purpose: &Purpose) {
    for (verdict, change) in batch.iter().filter_map(|one| Some((one, word(&one.change)?))) {
        let (destination, node) = (shown(&verdict.key.destination), shown(&verdict.key.node_uid));
        tracing::info!(
            target: "audit",
            who = &*purpose.caller.subject,
            role = purpose.caller.role.word(),
            object = %format_args!("Route {destination} of node {node}"),
            change,
            request_id = shown(&purpose.request_id),
            outcome = outcome(verdict),
            "Route write"
        );
    }
}

fn word(change: &Change) -> Option<&'static str> {
    match (&change.remove, &change.add) {
        (None, None) => None,
        (Some(_), None) => Some("remove"),
        (None, Some(_)) => Some("add"),
        (Some(_), Some(_)) => Some("replace"),
    }
}

fn outcome(verdict: &Verdict) -> &'static str {
    match &verdict.error {
        None if verdict.outcome == route_result::Outcome::Applied => "accepted",
        Some(error) if error.reason == Reason::OutcomeUnknown => "unknown",
        None | Some(_) => "refused",
    }
}
