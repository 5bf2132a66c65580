//! Room 4: the errors; which is tried again, when, and under which name and in which words people hear of it.

mod fields;
pub(crate) mod places;

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{Again, Link, adapter::concerns_all, events::gist, kube_api};
use tonic::Code;

use crate::plan::{
    News, Refusal, Step,
    as_it_is::{FAMILIES, port},
    memory::Topic,
};

/// What is known of the adapter when it comes back wakes all Services; this is only the safety net.
const ADAPTER_AWAY: Duration = Duration::from_secs(10);

/// Answers of the API server that another try may find otherwise: not there, too slow, somebody was faster, too old, too many. Each is
/// told when it [lasts](crate::plan::memory::Memory::lasts).
const PASSES: [u16; 5] = [404, 408, 409, 410, 429];

/// The step that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The Service asks for what cannot be done. Nothing was called.
    #[error("{}", list(.0))]
    Refused(Vec<Refusal>),
    /// The adapter was never reached.
    #[error("the cloud adapter is {0}")]
    AdapterAway(Link),
    /// One of ours is to go, and the adapter that is there has none.
    #[error(
        "the cloud adapter has no load balancers (no capability loadbalancers), and the one of this Service was made by another"
    )]
    WithoutLoadBalancers,
    /// The adapter's own answer, or the connection's.
    #[error("adapter refused {call}")]
    Adapter {
        /// The name of the RPC.
        call: &'static str,
        /// What it was for.
        step: Step,
        /// Why.
        source: AdapterError,
    },
    /// The API server's own answer, or the connection's.
    #[error("API server refused to {call}")]
    ApiServer {
        /// What was to be written.
        call: &'static str,
        /// Why.
        source: kube_api::Error,
    },
}

impl Error {
    /// When the Service is looked at again.
    pub(crate) fn again(&self) -> Again {
        match self {
            // What the adapter can do wakes all Services.
            Self::Refused(_) | Self::WithoutLoadBalancers => Again::OnChange,
            Self::AdapterAway(_) => Again::After(ADAPTER_AWAY),
            Self::Adapter { source, .. } => Again::after_error(source),
            // The Service is gone: its deletion wakes the key if anything is left to do.
            Self::ApiServer { source, .. } if source.is_not_found() => Again::OnChange,
            Self::ApiServer { .. } => Again::Backoff,
        }
    }

    /// For how long the adapter shall not be called for this Service, even if it changes: calls are short.
    ///
    /// Other delays only say when it is worth another try; a change of the Service may be just what helps.
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

    /// The call that the adapter refuses for every Service alike.
    pub(crate) fn refused_altogether(&self) -> Option<&'static str> {
        match self {
            Self::Adapter { call, source, .. } => concerns_all(source.reason).then_some(call),
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                None
            }
        }
    }

    /// What people hear is about this.
    pub(crate) fn topic(&self) -> Topic {
        match self {
            Self::Refused(_) => Topic::Wish,
            Self::Adapter { .. } if self.refuses_the_wish() => Topic::Refused,
            Self::Adapter { .. }
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::ApiServer { .. } => Topic::of(self.step()),
        }
    }

    /// Whether the adapter does not take up what the Service asks for, however often it is asked.
    pub(crate) fn refuses_the_wish(&self) -> bool {
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

    /// Whether what is there has other address families, and cannot get those that are asked for.
    pub(crate) fn fixes_the_families(&self) -> bool {
        self.fixed().contains(FAMILIES)
    }

    /// The fields of the contract in which what is there differs from what is asked for and cannot change, or ports that another user of
    /// the load balancer has: all else can be done. Empty: it was not that.
    pub(crate) fn fixed(&self) -> BTreeSet<String> {
        match self {
            Self::Adapter { source, .. } if source.reason == Reason::ImmutableField => {
                fields::named(source).into_iter().map(str::to_owned).collect()
            }
            Self::Adapter { source, .. }
                if source.reason == Reason::FieldInvalid
                    && fields::named(source).iter().all(|field| port(field).is_some()) =>
            {
                fields::named(source).into_iter().map(str::to_owned).collect()
            }
            Self::Refused(_)
            | Self::AdapterAway(_)
            | Self::WithoutLoadBalancers
            | Self::Adapter { .. }
            | Self::ApiServer { .. } => BTreeSet::new(),
        }
    }

    /// Whether the load balancer that the Service names is not there, or cannot be had beside the one that it has.
    pub(crate) fn denies_the_id(&self) -> bool {
        let Self::Adapter { source, .. } = self else { return false };
        source.reason == Reason::ResourceGone
            || (source.reason == Reason::ImmutableField
                && fields::named(source).contains("spec.load_balancer_id"))
    }

    /// What failed.
    pub(crate) fn step(&self) -> &Step {
        match self {
            Self::Adapter { step, .. } => step,
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                &Step::Sync
            }
        }
    }

    /// Whether a newer process is at work: this one must stop, and a person need not hear of it at every Service.
    pub(crate) fn is_superseded(&self) -> bool {
        matches!(self, Self::Adapter { source, .. } if source.reason == Reason::StaleFence)
    }

    /// Whether this is worth an Event: of what the API server says only that which it will say again, such as that a right is missing.
    pub(crate) fn is_news(&self) -> bool {
        match self {
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers => true,
            Self::Adapter { .. } => !self.is_superseded(),
            Self::ApiServer { source, .. } => {
                let lasts = |status| matches!(status, 400..=499) && !PASSES.contains(&status);
                source.status().is_some_and(lasts) && !source.is_stale()
            }
        }
    }

    /// What the API server does not do, and may do at the next try. `None`: it is something else, or of no interest.
    pub(crate) fn not_done(&self) -> Option<&'static str> {
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

    /// Tells whether it is the same trouble as last time. Texts of what is tried again vary (delays, request IDs), and are another trouble
    /// if their gist is; what waits for a person is another trouble if its text is.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::AdapterAway(_) => "adapter away".to_owned(),
            Self::Adapter { source, .. } if self.again() != Again::OnChange => {
                format!("{} {}", source.reason.word(), gist(&source.message))
            }
            Self::ApiServer { source, .. } if self.is_news() => format!("{self}: {:?}", source.status()),
            // An API server in trouble says this and that in turn.
            Self::ApiServer { .. } => self.to_string(),
            Self::Refused(_) | Self::WithoutLoadBalancers | Self::Adapter { .. } => self.text(),
        }
    }

    /// What people hear of it.
    pub(crate) fn news(&self) -> News {
        News::Failed(self.step().clone(), self.text())
    }

    /// The adapter's typed reason, if it was one.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Adapter { source, .. } => Some(source.reason).filter(|it| *it != Reason::Unspecified),
            Self::Refused(_) | Self::AdapterAway(_) | Self::WithoutLoadBalancers | Self::ApiServer { .. } => {
                None
            }
        }
    }

    /// Why, and what is being waited for.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused(_) => self.to_string(),
            Self::AdapterAway(_) => format!("{self}; waits until it is there"),
            Self::Adapter { source, .. } => format!("{}; {}", said(source), remedy(source.reason)),
            Self::WithoutLoadBalancers => format!("{self}; waits for an adapter that has them"),
            Self::ApiServer { source, .. } => format!("{self}: {source}; tried again by itself"),
        }
    }
}

/// The adapter's message in the user's words, with the fields at fault in front if it names none of them.
fn said(error: &AdapterError) -> String {
    let named = fields::named(error);
    let message = fields::in_users_words(&error.message);
    if named.is_empty() || named.iter().any(|field| error.message.contains(field)) {
        return message;
    }
    let named: BTreeSet<String> = named.into_iter().map(fields::in_users_words).collect();
    format!("{}: {message}", named.into_iter().collect::<Vec<_>>().join(", "))
}

/// What is being waited for.
fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::FieldInvalid
        | Reason::UnsupportedFeature
        | Reason::UnknownParameter
        | Reason::ImmutableField => "retried every 5 minutes, and as soon as the Service changes",
        Reason::ResourceGone => {
            "retried every 5 minutes, and as soon as the Service or the load balancer changes"
        }
        Reason::OwnedByOther => "waits until a person removes the other load balancer",
        Reason::StaleFence => "another service-controller is at work: run one",
        Reason::VendorQuota => "waits for a larger quota at the cloud, tried again every 5 minutes",
        Reason::VendorAuth | Reason::VendorForbidden => {
            "waits for good cloud credentials in the adapter, tried again by itself"
        }
        Reason::BudgetExhausted | Reason::QueueFull => {
            "waits for the adapter's call budget, tried again by itself"
        }
        Reason::VendorThrottled => "the cloud throttles us, tried again by itself",
        Reason::VendorUnavailable | Reason::NotLeader | Reason::Starting | Reason::Draining => {
            "waits for the cloud adapter and the cloud behind it, tried again by itself"
        }
        Reason::CallerForbidden | Reason::CallerUnauthenticated => {
            "the adapter does not let this controller in: see the adapter's configuration"
        }
        Reason::Unspecified | Reason::OperationConflict | Reason::BackendSetUnknown | Reason::Internal => {
            "tried again by itself"
        }
        // As the adapter says it while it does so.
        Reason::OutcomeUnknown => "looks first whether it was done",
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
            step: Step::Sync,
            source: AdapterError::new(reason, message),
        }
    }

    #[test]
    fn every_reason_is_tried_again_as_the_contract_says() {
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

    /// Over the wire, and whatever it was for: a removal with our finalizer, one without it, nodes.
    #[test]
    fn a_delay_that_the_adapter_names_is_kept_on_every_path() {
        let delay = Duration::from_secs(7);
        for (call, step) in [
            ("EnsureLoadBalancer", Step::Sync),
            ("EnsureLoadBalancer", Step::Hosts(Hosts::default())),
            ("DeleteLoadBalancer", Step::Sync),
            ("DeleteLoadBalancer", Step::LeftOver),
        ] {
            let sent = AdapterError::new(Reason::VendorThrottled, "429").retry_after(delay);
            let error = Error::Adapter { call, step, source: tonic::Status::from(sent).into() };
            assert_eq!(
                (error.again(), error.hold()),
                (Again::After(delay), Some(delay)),
                "{call} {:?}",
                error.step()
            );
        }
    }

    #[test]
    fn the_same_trouble_has_the_same_name_while_it_is_tried_again() {
        let throttled = |text| adapter(Reason::VendorThrottled, text).name();
        assert_eq!(throttled("wait 3 s"), throttled("wait 5 s"));
        assert_ne!(throttled("wait 3 s"), throttled("too many floating IPs, wait 3 s"));
        let invalid = |text| adapter(Reason::FieldInvalid, text).name();
        assert_ne!(invalid("spec.scheme"), invalid("spec.listeners"));
    }

    fn api_server(status: u16) -> Error {
        let refused = Status { code: status, ..Status::default() };
        let source = kube_api::Error::from(kube::Error::Api(Box::new(refused)));
        Error::ApiServer { call: "write the status", source }
    }

    #[test]
    fn what_the_api_server_will_say_again_is_news() {
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
            assert_eq!(api_server(status).is_news(), want, "{status}");
        }
        assert!(!Error::ApiServer { call: "", source: kube_api::Error::Timeout }.is_news());
    }

    #[test]
    fn texts_say_what_is_being_waited_for() {
        let error = adapter(Reason::VendorQuota, "quota of 10 load balancers is reached");
        insta::assert_snapshot!(error.text(), @"quota of 10 load balancers is reached; waits for a larger quota at the cloud, tried again every 5 minutes");
        let error = adapter(Reason::FieldInvalid, "spec.requested_addresses[0]: 192.0.2.7 is taken");
        insta::assert_snapshot!(error.text(), @"spec.loadBalancerIP (annotation lb.cloudadapter.dev/address): 192.0.2.7 is taken; retried every 5 minutes, and as soon as the Service changes");
        let source = AdapterError::new(Reason::ImmutableField, "cannot be changed")
            .with("fields", "spec.ip_families,spec.scheme");
        let error = Error::Adapter { call: "EnsureLoadBalancer", step: Step::Sync, source };
        insta::assert_snapshot!(error.text(), @"annotation lb.cloudadapter.dev/internal, spec.ipFamilies: cannot be changed; retried every 5 minutes, and as soon as the Service changes");
        let error = adapter(Reason::OutcomeUnknown, "create web failed (503, OUTCOME_UNKNOWN): out of order");
        insta::assert_snapshot!(error.text(), @"create web failed (503, OUTCOME_UNKNOWN): out of order; looks first whether it was done");
        let refused = Error::Refused(vec![Refusal::new("spec.ports", "none"), Refusal::new("spec.x", "bad")]);
        insta::assert_snapshot!(refused.text(), @"spec.ports: none; spec.x: bad");
    }
}
