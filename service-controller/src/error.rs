//! Errors of a reconcile: whether and when the reconcile is retried, how each error is identified, and the text of its Event.

mod fields;
pub(crate) mod origins;
pub(crate) mod places;

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{Again, Link, adapter::concerns_all, events::gist, kube_api};
use jiff::{SignedDuration, Timestamp};
use tonic::Code;

use self::origins::Origins;
use crate::{
    events::{cause, notice},
    plan::{
        Fact, Operation, Refusal,
        as_it_is::port,
        conditions::Readiness,
        memory::Topic,
        readiness::camel,
        refused::Refused,
        report::{Failure, Reporting},
        service::ServiceId,
        waiting::Blocked,
    },
};

/// Delay before the next try for a Service if the adapter was never reached. Usually the adapter's capabilities arrive earlier, which
/// requeues all Services.
const ADAPTER_AWAY: Duration = Duration::from_secs(10);

/// Grace period before an adapter outage is reported. A short outage is usually a restart.
const OUTAGE_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// HTTP statuses of the API server that may disappear on a retry: not found, timeout, conflict, gone, too many requests. Such an error is
/// reported only if it lasts.
const PASSES: [u16; 5] = [404, 408, 409, 410, 429];

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The Service requests something that is not possible. No call was made.
    #[error("{}", list(.0))]
    Refused(Vec<Refusal>),
    /// The adapter was never reached.
    #[error("the cloud adapter is {0}")]
    AdapterAway(Link),
    /// A load balancer of this controller must be deleted, but the current adapter does not support load balancers.
    #[error(
        "the cloud adapter does not support load balancers (capability loadbalancers), but \
         an earlier one created one for this Service"
    )]
    WithoutLoadBalancers,
    #[error("adapter rejected {call}")]
    Adapter {
        /// The name of the RPC.
        call: &'static str,
        step: Operation,
        source: AdapterError,
        /// Where the refused settings are set.
        origins: Box<Origins>,
    },
    #[error("cannot {call}")]
    ApiServer {
        /// The failed operation, as a verb phrase.
        call: &'static str,
        source: kube_api::Error,
    },
}

impl Error {
    /// Converts the cause that blocks a plan to an error. `link`: the connection to the adapter.
    pub(crate) fn blocked(blocked: Blocked, link: Link) -> Self {
        match blocked {
            Blocked::AdapterAway => Self::AdapterAway(link),
            Blocked::WithoutLoadBalancers => Self::WithoutLoadBalancers,
        }
    }

    pub(crate) fn failure(&self, id: &ServiceId) -> Failure {
        let (fact, again) = (self.fact(), self.again());
        let text = notice(&fact, Some(id)).note;
        let readiness = self.condition().map(|reason| Readiness::failing(reason, cause(&text)));
        Failure { topic: self.topic(), name: self.name(), fact, readiness, again }
    }

    /// When to retry a failed write of the conditions. `None`: a retry cannot help.
    pub(crate) fn again_for_conditions(&self) -> Option<Again> {
        (self.again() != Again::OnChange).then_some(Again::Backoff)
    }

    pub(crate) fn again(&self) -> Again {
        match self {
            // The retry needs no timer, because a change of the adapter's capabilities requeues all Services.
            Self::Refused(_) | Self::WithoutLoadBalancers => Again::OnChange,
            Self::AdapterAway(_) => Again::After(ADAPTER_AWAY),
            Self::Adapter { source, .. } => Again::after_error(source),
            // The Service is gone. Its deletion requeues the key, so that any remaining work is still done.
            Self::ApiServer { source, .. } if source.is_not_found() => Again::OnChange,
            Self::ApiServer { .. } => Again::Backoff,
        }
    }

    /// Returns how long calls to the adapter for this Service must wait, even if the Service changes. Only rate-limited calls have such a
    /// binding delay.
    ///
    /// For all other errors, the adapter's delay is only a hint. A change of the Service may fix the cause and is therefore tried at once.
    pub(crate) fn hold(&self) -> Option<Duration> {
        match self {
            Self::Adapter { source, .. } if source.code == Code::ResourceExhausted => source.retry_after,
            Self::Refused(_)
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::Adapter { .. }
            | Self::ApiServer { .. } => None,
        }
    }

    fn topic(&self) -> Topic {
        match self {
            Self::Refused(_) => Topic::Wish,
            Self::Adapter { .. } if self.refuses_settings() => Topic::Refused,
            Self::Adapter { .. }
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::ApiServer { .. } => Topic::of(self.step()),
        }
    }

    /// Whether the adapter refuses the requested settings. A retry of the same settings would be refused, too.
    fn refuses_settings(&self) -> bool {
        match self {
            Self::Adapter { source, .. } => matches!(
                source.reason,
                Reason::FieldInvalid
                    | Reason::UnsupportedFeature
                    | Reason::UnknownParameter
                    | Reason::ImmutableField
                    | Reason::ResourceGone
                    | Reason::OwnedByOther
            ),
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                false
            }
        }
    }

    /// Returns what the adapter refused. `None`: the error is not a refusal of settings. [`Refused::fixed`] also contains the port fields
    /// if all refused fields are ports that another user of the load balancer occupies.
    pub(crate) fn refused(&self) -> Option<Refused> {
        let Self::Adapter { source, .. } = self else { return None };
        if !self.refuses_settings() {
            return None;
        }
        let named = fields::named(source);
        let is_immutable = source.reason == Reason::ImmutableField;
        let are_ports = || named.iter().all(|field| port(field).is_some());
        let id = source.reason == Reason::ResourceGone
            || (is_immutable && named.contains("spec.load_balancer_id"));
        let fixed = if is_immutable || (source.reason == Reason::FieldInvalid && are_ports()) {
            named.into_iter().map(str::to_owned).collect()
        } else {
            BTreeSet::new()
        };
        Some(Refused { fixed, id })
    }

    pub(crate) fn step(&self) -> &Operation {
        match self {
            Self::Adapter { step, .. } => step,
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                &Operation::Sync
            }
        }
    }

    /// Returns how to report this error. `lasts`: the same call to the API server failed in several consecutive reconciles. `is_refused`:
    /// whether the adapter's refusal of a call is to be reported to users; see `CallHealth::is_refused`.
    pub(crate) fn reporting(
        &self,
        lasts: bool,
        now: Timestamp,
        is_refused: impl FnOnce(&str) -> bool,
    ) -> Reporting {
        match self {
            Self::AdapterAway(link) if !is_long_away(link, now) => Reporting::Quiet,
            Self::Adapter { source, .. } if source.reason == Reason::StaleFence => Reporting::Stop,
            Self::Adapter { call, source, .. } if concerns_all(source.reason) && !is_refused(call) => {
                Reporting::Elsewhere
            }
            Self::Refused(_)
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::Adapter { .. }
            | Self::ApiServer { .. } => {
                if lasts || self.is_reported() {
                    Reporting::Event
                } else {
                    Reporting::Log
                }
            }
        }
    }

    /// Whether to emit an Event. An error of the API server is reported only if a retry will fail in the same way, as with a missing
    /// permission.
    fn is_reported(&self) -> bool {
        match self {
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::Adapter { .. } => {
                true
            }
            Self::ApiServer { source, .. } => {
                let lasts = |status| matches!(status, 400..=499) && !PASSES.contains(&status);
                source.status().is_some_and(lasts) && !source.is_stale()
            }
        }
    }

    /// Returns the failed call to the API server, if a retry may succeed. `None`: the error has another source, or is ignored.
    pub(crate) fn failed_call(&self) -> Option<&'static str> {
        match self {
            Self::ApiServer { call, source } if !source.is_not_found() && !source.is_about_another() => {
                Some(call)
            }
            Self::Refused(_)
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::Adapter { .. }
            | Self::ApiServer { .. } => None,
        }
    }

    /// Identifies an error, so that a repeated error is recognised in the next reconcile. Texts of retried errors vary (delays, request
    /// IDs), so only the reason and the gist count. For errors that only a user can fix, the whole text counts.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::AdapterAway(_) => "adapter away".to_owned(),
            Self::Adapter { source, .. } if self.again() != Again::OnChange => {
                let (reason, gist) = (source.reason.word(), gist(&source.message));
                // Two texts already contain the reason: the message of a failed write, and the condition while that write is tried again.
                if gist.contains(reason) { gist } else { format!("{reason} {gist}") }
            }
            Self::ApiServer { source, .. } if self.is_reported() => format!("{self}: {:?}", source.status()),
            // The cause is left out, because it varies from call to call while the API server fails.
            Self::ApiServer { .. } => self.to_string(),
            Self::Refused(_) | Self::WithoutLoadBalancers | Self::Adapter { .. } => self.text(),
        }
    }

    pub(crate) fn fact(&self) -> Fact {
        match self {
            Self::Refused(refusals) if refusals.len() > 1 => {
                Fact::Refused(refusals.iter().map(ToString::to_string).collect())
            }
            Self::Refused(_)
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::Adapter { .. }
            | Self::ApiServer { .. } => Fact::Failed(self.step().clone(), self.text()),
        }
    }

    /// Returns the reason for the condition. `None`: the error comes from the API server, which would refuse the condition, too.
    fn condition(&self) -> Option<String> {
        match self {
            Self::Refused(_) => Some("InvalidService".to_owned()),
            Self::AdapterAway(_) => Some("AdapterUnreachable".to_owned()),
            Self::WithoutLoadBalancers => Some("LoadBalancersUnsupported".to_owned()),
            Self::Adapter { .. } => {
                Some(self.reason().map_or("AdapterError".to_owned(), |it| camel(it.word())))
            }
            Self::ApiServer { .. } => None,
        }
    }

    /// Returns the typed reason, if the error comes from the adapter.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Adapter { source, .. } => Some(source.reason).filter(|it| *it != Reason::Unspecified),
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                None
            }
        }
    }

    /// The cause, and what the controller waits for or the user can do.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused(_) => self.to_string(),
            Self::AdapterAway(_) => format!("{self}; waiting until the adapter is reachable"),
            Self::Adapter { source, origins, .. } => {
                format!("{}; {}", said(source, origins), remedy(source.reason))
            }
            Self::WithoutLoadBalancers => format!("{self}; waiting for an adapter with this capability"),
            Self::ApiServer { source, .. } => format!("{self}: {source}; retried automatically"),
        }
    }
}

/// Returns the adapter's message, translated to the names of Service fields and annotations. If the message mentions none of the invalid
/// fields, these fields are put in front.
fn said(error: &AdapterError, origins: &Origins) -> String {
    let named = fields::named(error);
    let message = fields::in_users_words(&error.message, origins);
    if named.is_empty() || named.iter().any(|field| error.message.contains(field)) {
        return message;
    }
    let named: BTreeSet<String> =
        named.into_iter().map(|field| fields::in_users_words(field, origins)).collect();
    format!("{}: {message}", named.into_iter().collect::<Vec<_>>().join(", "))
}

/// What the controller waits for or the user can do.
fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::FieldInvalid
        | Reason::UnsupportedFeature
        | Reason::UnknownParameter
        | Reason::ImmutableField => "retried every 5 minutes, and as soon as the Service changes",
        Reason::ResourceGone => {
            "retried every 5 minutes, and as soon as the Service or the load balancer changes"
        }
        Reason::OwnedByOther => "waiting until the other load balancer is deleted",
        Reason::StaleFence => "another service-controller is active: run only one",
        Reason::VendorQuota => "increase the quota in the cloud; retried every 5 minutes",
        Reason::VendorAuth | Reason::VendorForbidden => {
            "check the adapter's cloud credentials; retried automatically"
        }
        Reason::BudgetExhausted | Reason::QueueFull => {
            "waiting for the adapter's call budget; retried automatically"
        }
        Reason::VendorThrottled => "the cloud throttles the adapter; retried automatically",
        Reason::VendorUnavailable | Reason::NotLeader | Reason::Starting | Reason::Draining => {
            "waiting for the cloud adapter and the cloud; retried automatically"
        }
        Reason::CallerForbidden | Reason::CallerUnauthenticated => {
            "the adapter denies this controller access: check the adapter's configuration"
        }
        Reason::Unspecified | Reason::OperationConflict | Reason::BackendSetUnknown | Reason::Internal => {
            "retried automatically"
        }
        // The adapter's progress reports contain the same text.
        Reason::OutcomeUnknown => "the adapter first checks whether the write was made",
    }
}

fn is_long_away(link: &Link, now: Timestamp) -> bool {
    match link {
        Link::Starting | Link::Up => false,
        Link::Down { since, .. } => now.duration_since(*since) >= OUTAGE_GRACE_PERIOD,
    }
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::plan::targets::Hosts;

    fn adapter(reason: Reason, message: &str) -> Error {
        Error::Adapter {
            call: "EnsureLoadBalancer",
            step: Operation::Sync,
            source: AdapterError::new(reason, message),
            origins: Box::default(),
        }
    }

    // Behaviour: S10, W17
    #[test]
    fn retry_follows_contract_for_every_reason() {
        let seconds = |n| Again::After(Duration::from_secs(n));
        let rows = [
            (Reason::FieldInvalid, Again::OnChange),
            (Reason::UnsupportedFeature, Again::OnChange),
            (Reason::ImmutableField, Again::OnChange),
            (Reason::OwnedByOther, Again::OnChange),
            (Reason::StaleFence, Again::OnChange),
            (Reason::BackendSetUnknown, Again::Backoff),
            (Reason::VendorQuota, seconds(300)),
            (Reason::VendorAuth, seconds(30)),
            (Reason::VendorThrottled, Again::After(Duration::from_millis(500))),
            (Reason::Internal, Again::Backoff),
        ];
        for (reason, want) in rows {
            assert_eq!(adapter(reason, "").again(), want, "{reason}");
        }
    }

    /// The adapter's delay arrives unchanged through gRPC, whichever step failed: an ensure, an update of nodes, or a deletion.
    // Behaviour: W17
    #[test]
    fn delay_of_adapter_is_respected_for_every_step() {
        let delay = Duration::from_secs(7);
        for (call, step) in [
            ("EnsureLoadBalancer", Operation::Sync),
            ("EnsureLoadBalancer", Operation::Hosts(Hosts::default())),
            ("DeleteLoadBalancer", Operation::Sync),
            ("DeleteLoadBalancer", Operation::LeftOver),
        ] {
            let sent = AdapterError::new(Reason::VendorThrottled, "429").retry_after(delay);
            let error = Error::Adapter {
                call,
                step,
                source: tonic::Status::from(sent).into(),
                origins: Box::default(),
            };
            assert_eq!(
                (error.again(), error.hold()),
                (Again::After(delay), Some(delay)),
                "{call} {:?}",
                error.step()
            );
        }
    }

    #[test]
    fn retried_error_keeps_its_name() {
        let throttled = |text| adapter(Reason::VendorThrottled, text).name();
        assert_eq!(throttled("wait 3 s"), throttled("wait 5 s"));
        assert_ne!(throttled("wait 3 s"), throttled("too many floating IPs, wait 3 s"));
        let invalid = |text| adapter(Reason::FieldInvalid, text).name();
        assert_ne!(invalid("spec.scheme"), invalid("spec.listeners"));
    }

    /// A failed write has the same name in both reports of the adapter. One is a condition while the adapter tries again, and the other is
    /// the error after the adapter gives up.
    // Behaviour: S33
    #[test]
    fn failed_write_has_one_name_in_condition_and_error() {
        let text = "create web failed (503, OUTCOME_UNKNOWN): out of order";
        assert_eq!(adapter(Reason::OutcomeUnknown, text).name(), gist(text));
    }

    fn api_server(status: u16) -> Error {
        let refused = Status { code: status, ..Status::default() };
        let source = kube_api::Error::from(kube::Error::Api(Box::new(refused)));
        Error::ApiServer { call: "write the status", source }
    }

    // Behaviour: S11
    #[test]
    fn lasting_api_server_errors_are_reported() {
        for (status, want) in [
            (400, true),
            (401, true),
            (403, true),
            (404, false),
            (409, false),
            (422, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            assert_eq!(api_server(status).is_reported(), want, "{status}");
        }
        assert!(!Error::ApiServer { call: "", source: kube_api::Error::Timeout }.is_reported());
    }

    #[test]
    fn error_texts_say_what_to_wait_for_or_do() {
        let error = adapter(Reason::VendorQuota, "quota of 10 load balancers is reached");
        insta::assert_snapshot!(error.text(), @"quota of 10 load balancers is reached; increase the quota in the cloud; retried every 5 minutes");
        let error = adapter(Reason::FieldInvalid, "spec.requested_addresses[0]: 192.0.2.7 is taken");
        insta::assert_snapshot!(error.text(), @"spec.loadBalancerIP (annotation lb.cloudadapter.dev/address): 192.0.2.7 is taken; retried every 5 minutes, and as soon as the Service changes");
        let source = AdapterError::new(Reason::ImmutableField, "cannot be changed")
            .with("fields", "spec.ip_families,spec.scheme");
        let error = Error::Adapter {
            call: "EnsureLoadBalancer",
            step: Operation::Sync,
            source,
            origins: Box::default(),
        };
        insta::assert_snapshot!(error.text(), @"annotation lb.cloudadapter.dev/internal, spec.ipFamilies: cannot be changed; retried every 5 minutes, and as soon as the Service changes");
        let error = adapter(Reason::OutcomeUnknown, "create web failed (503, OUTCOME_UNKNOWN): out of order");
        insta::assert_snapshot!(error.text(), @"create web failed (503, OUTCOME_UNKNOWN): out of order; the adapter first checks whether the write was made");
        let refused = Error::Refused(vec![Refusal::new("spec.ports", "none"), Refusal::new("spec.x", "bad")]);
        insta::assert_snapshot!(refused.text(), @"spec.ports: none; spec.x: bad");
    }
}
