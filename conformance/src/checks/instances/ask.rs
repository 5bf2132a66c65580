//! Calls `BatchGetInstances`, and asserts the invariants of each answer.

use std::time::{Duration, SystemTime};

use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, BatchGetInstancesResponse, Existence, Instance, InstanceRef, InstanceResult,
    RequestContext, instance_ref::Ref,
};
use prost_types::Timestamp;

use crate::checks::prelude::*;

/// Maximum difference between the wall clocks of adapter and suite.
const CLOCKS: Duration = Duration::from_secs(2);

pub(super) fn by_id(id: &str) -> InstanceRef {
    InstanceRef { r#ref: Some(Ref::ProviderId(id.to_owned())), ..InstanceRef::default() }
}

pub(super) fn by_name(name: &str) -> InstanceRef {
    InstanceRef { r#ref: Some(Ref::NodeName(name.to_owned())), ..InstanceRef::default() }
}

/// Sends the references, and asserts the invariants of every answer.
pub(super) async fn ask(
    cx: &Context,
    context: RequestContext,
    refs: Vec<InstanceRef>,
) -> Result<BatchGetInstancesResponse, Stop> {
    let count = refs.len();
    let request = BatchGetInstancesRequest { context: Some(context), refs };
    let answer = cx.node()?.batch_get_instances(request).await?;
    well_formed(&answer, count)?;
    Ok(answer)
}

/// Asserts that there is one result per reference, and that each result has exactly the fields that belong to its existence.
pub(super) fn well_formed(answer: &BatchGetInstancesResponse, refs: usize) -> Verdict {
    let wants = "the answer has as many results as the request has references";
    expect::equal(wants, &answer.results.len(), &refs)?;
    for result in &answer.results {
        let existence = result.existence();
        let claim = |holds, wants: &str| expect::shown(holds, wants, &result);
        claim(existence != Existence::Unspecified, "a result has an existence")?;
        let exists = existence == Existence::Exists;
        claim(result.instance.is_some() == exists, "`instance` is set if and only if the instance EXISTS")?;
        let gone = existence == Existence::Gone;
        claim(result.evidence.is_some() == gone, "`evidence` is set if and only if the instance is GONE")?;
        let unknown = existence == Existence::Unknown;
        claim(!unknown || result.error.is_some(), "UNKNOWN is explained in `error`")?;
    }
    Ok(())
}

/// Requests a single instance, and returns its result.
pub(super) async fn one(
    cx: &Context,
    context: RequestContext,
    what: InstanceRef,
) -> Result<InstanceResult, Stop> {
    let answer = ask(cx, context, vec![what]).await?;
    expect::some(answer.results.into_iter().next(), "the answer has a result")
}

pub(super) fn existing(result: InstanceResult) -> Result<Instance, Stop> {
    expect::equal("a running instance EXISTS", &result.existence(), &Existence::Exists)?;
    expect::some(result.instance, "an instance that EXISTS is in the result")
}

/// Asserts that a time of the adapter's wall clock is not before a time of the suite's wall clock.
pub(super) fn not_before(wants: &str, reported: Option<Timestamp>, asked: SystemTime) -> Verdict {
    let reported = expect::some(reported, wants)?;
    let reported = SystemTime::try_from(reported).map_err(|error| Stop::failed(wants, error.to_string()))?;
    let fresh = reported.checked_add(CLOCKS).is_some_and(|reported| reported >= asked);
    expect::that(fresh, wants, || format!("the time is {reported:?}, and the request was sent at {asked:?}"))
}

#[expect(clippy::disallowed_methods, reason = "the adapter reports times of the wall clock")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}
