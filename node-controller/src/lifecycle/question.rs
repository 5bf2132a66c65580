//! Asks the cloud with live requests whether instances are gone, many in one call.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Existence, InstanceRef, InstanceResult, Priority, evidence::Method, instance_ref::Ref},
};
use controller_core::adapter::{Adapter, Call};
use jiff::Timestamp;

use crate::{
    absence::{Subject, Verdict},
    mirror::trim_instance,
};

/// Maximum number of references in one call. Source: contract.
pub(super) const BATCH: usize = 500;

/// Sends a live request to the cloud. Returns one answer per subject, in the same order; subjects and witnesses together are at most
/// [`BATCH`]. Cost: one call. The adapter makes one vendor call if the vendor supports batches, else one per instance.
///
/// Witnesses are provider IDs of known instances. The adapter needs them for its proof. Their results are ignored.
pub(super) async fn ask(adapter: &Adapter, subjects: &[Subject], witnesses: &[String]) -> Vec<Verdict> {
    let ids = subjects.iter().map(|subject| &subject.provider_id).chain(witnesses);
    let reference =
        |id: &String| InstanceRef { r#ref: Some(Ref::ProviderId(id.clone())), ..InstanceRef::default() };
    let refs: Vec<InstanceRef> = ids.map(reference).collect();
    let asked = refs.len();
    let call = Call::with_priority(Priority::Lifecycle).no_older_than(std::time::Duration::ZERO);
    match adapter.batch_get_instances(call, refs).await {
        Ok(response) if response.results.len() == asked => {
            response.results.into_iter().take(subjects.len()).map(answer).collect()
        }
        Ok(_) => vec![failed(&AdapterError::new(Reason::Internal, "too few results")); subjects.len()],
        Err(error) => vec![failed(&error); subjects.len()],
    }
}

fn answer(result: InstanceResult) -> Verdict {
    match result.existence() {
        // An instance in a result may still be in the process of deletion. Only `GONE`, with evidence, means that the instance has ended.
        Existence::Exists => {
            let stopped = result.instance.map(trim_instance).is_some_and(|instance| instance.stopped);
            Verdict::Exists { stopped }
        }
        Existence::Gone => {
            evidence(&result).map_or(Verdict::NotVisible, |observed| Verdict::Gone { observed })
        }
        Existence::NotVisible => Verdict::NotVisible,
        Existence::Foreign => Verdict::Foreign,
        Existence::Unknown | Existence::Unspecified => {
            let error = result.error.unwrap_or_default();
            let retry_after = error.retry_after.and_then(|delay| delay.try_into().ok());
            Verdict::Failed {
                error: format!("{}: {}", error.reason().as_str_name(), error.message),
                retry_after,
            }
        }
    }
}

/// Returns when the absence was observed. A result without a method or a time proves nothing.
fn evidence(result: &InstanceResult) -> Option<Timestamp> {
    let evidence = result.evidence.as_ref().filter(|evidence| evidence.method() != Method::Unspecified)?;
    let observed = evidence.observed_at.as_ref()?;
    Timestamp::new(observed.seconds, observed.nanos).ok()
}

fn failed(error: &AdapterError) -> Verdict {
    Verdict::Failed { error: error.to_string(), retry_after: error.retry_after }
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{Evidence, InstanceState};
    use controller_core::testing::instance;

    use super::*;

    fn gone(method: Method, seconds: Option<i64>) -> InstanceResult {
        let observed_at = seconds.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 });
        let evidence = Evidence { method: method.into(), observed_at, ..Evidence::default() };
        InstanceResult { existence: Existence::Gone.into(), evidence: Some(evidence), ..<_>::default() }
    }

    #[test]
    fn gone_without_evidence_proves_nothing() {
        let bare = InstanceResult { existence: Existence::Gone.into(), ..InstanceResult::default() };
        for result in [bare, gone(Method::Unspecified, Some(7)), gone(Method::DirectGetNotFound, None)] {
            assert_eq!(answer(result.clone()), Verdict::NotVisible, "{result:?}");
        }
        for method in [Method::DirectGetNotFound, Method::TerminalState] {
            let observed = Timestamp::from_second(7).expect("a time");
            assert_eq!(answer(gone(method, Some(7))), Verdict::Gone { observed });
        }
    }

    // Behaviour: NI5, W8
    #[test]
    fn unknown_existence_is_a_failure() {
        let result = InstanceResult { existence: 99, ..InstanceResult::default() };
        assert!(matches!(answer(result), Verdict::Failed { .. }));
    }

    #[test]
    fn ending_instance_exists() {
        use InstanceState::{Error, Running, Stopped, Stopping, Terminated, Terminating};
        let states = [
            (Running, false),
            (Stopping, false),
            (Terminating, false),
            (Error, false),
            (Stopped, true),
            (Terminated, true),
        ];
        for (state, stopped) in states {
            let found = Some(instance("sim://north/i-1").state(state).build());
            let result = InstanceResult {
                existence: Existence::Exists.into(),
                instance: found,
                ..InstanceResult::default()
            };
            assert_eq!(answer(result), Verdict::Exists { stopped }, "{state:?}");
        }
    }
}
