//! Bounds the retry delays that the adapter asks for. A delay of zero would cause a hot loop, and the largest possible delay would overflow
//! the clock. So all delays in answers and errors are clamped when they are read.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    ApplyRoutesResponse, BatchGetInstancesResponse, DeleteLoadBalancerResponse, EnsureLoadBalancerResponse,
    GetInfoResponse, PutBackendSetResponse,
};
use tonic::Streaming;

const SHORTEST: Duration = Duration::from_secs(1);
/// Maximum delay: longer than any delay in the contract, and short enough that a changed state is noticed within hours.
const LONGEST: Duration = Duration::from_hours(1);

pub(super) trait Delays {
    /// Returns each delay of the answer, including those of its items.
    fn delays(&mut self) -> impl Iterator<Item = &mut Option<prost_types::Duration>> {
        std::iter::empty()
    }
}

impl Delays for GetInfoResponse {}

impl Delays for PutBackendSetResponse {}

impl<T> Delays for Streaming<T> {}

impl Delays for BatchGetInstancesResponse {
    fn delays(&mut self) -> impl Iterator<Item = &mut Option<prost_types::Duration>> {
        self.results.iter_mut().filter_map(|it| it.error.as_mut()).map(|error| &mut error.retry_after)
    }
}

impl Delays for EnsureLoadBalancerResponse {
    fn delays(&mut self) -> impl Iterator<Item = &mut Option<prost_types::Duration>> {
        std::iter::once(&mut self.retry_after)
    }
}

impl Delays for DeleteLoadBalancerResponse {
    fn delays(&mut self) -> impl Iterator<Item = &mut Option<prost_types::Duration>> {
        std::iter::once(&mut self.retry_after)
    }
}

impl Delays for ApplyRoutesResponse {
    fn delays(&mut self) -> impl Iterator<Item = &mut Option<prost_types::Duration>> {
        self.results.iter_mut().flat_map(|it| {
            [Some(&mut it.retry_after), it.error.as_mut().map(|error| &mut error.retry_after)]
                .into_iter()
                .flatten()
        })
    }
}

pub(super) fn bounded<T: Delays>(mut answer: T) -> T {
    for delay in answer.delays() {
        *delay = delay.and_then(within);
    }
    answer
}

pub(super) fn clamped(delay: Duration) -> Duration {
    delay.clamp(SHORTEST, LONGEST)
}

/// `None`: the delay is negative.
fn within(delay: prost_types::Duration) -> Option<prost_types::Duration> {
    clamped(Duration::try_from(delay).ok()?).try_into().ok()
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{InstanceResult, ItemError, RouteResult};

    use super::*;

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn delays_of_items_and_of_their_errors_are_bounded() {
        for (name, asked, kept) in [
            ("zero", seconds(0), seconds(1)),
            ("a usual delay", seconds(7), seconds(7)),
            ("the largest delay", seconds(i64::MAX), seconds(60 * 60)),
            ("negative", seconds(-1), None),
            ("none", None, None),
        ] {
            let error = |retry_after| Some(ItemError { retry_after, ..ItemError::default() });
            let route = |retry_after| ApplyRoutesResponse {
                results: vec![RouteResult {
                    retry_after,
                    error: error(retry_after),
                    ..RouteResult::default()
                }],
                ..ApplyRoutesResponse::default()
            };
            assert_eq!(bounded(route(asked)), route(kept), "{name}");
            let instance = |retry_after| BatchGetInstancesResponse {
                results: vec![InstanceResult { error: error(retry_after), ..InstanceResult::default() }],
                ..BatchGetInstancesResponse::default()
            };
            assert_eq!(bounded(instance(asked)), instance(kept), "{name}");
        }
    }
}
