//! Injects faults in instances, such as wrong existence and incomplete listings.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        BatchGetInstancesRequest, BatchGetInstancesResponse, Evidence, Existence, InstanceItems, InstanceRef,
        InstanceResult, Scope, WatchInstancesRequest, WatchInstancesResponse, evidence::Method,
        instance_ref::Ref, instance_service_server::InstanceService, watch_instances_response::Event,
    },
};
use futures::StreamExt as _;
use tonic::{Request, Response, Status};

use super::{Front, Stream, errors::is_refusal};
use crate::broken::Fault;

/// Returns a result that reports an instance as gone without evidence.
fn gone(scope: Option<Scope>) -> InstanceResult {
    let method = Method::DirectGetNotFound.into();
    let evidence = Evidence { method, scope, witnesses: 1, ..Evidence::default() };
    InstanceResult {
        existence: Existence::Gone.into(),
        evidence: Some(evidence),
        ..InstanceResult::default()
    }
}

impl Front {
    /// Returns whether the faulty adapter takes this result as proof that the instance does not exist.
    fn takes_for_gone(&self, asked: &InstanceRef, result: &InstanceResult) -> bool {
        let named = matches!(asked.r#ref, Some(Ref::NodeName(_)));
        match (self.fault, result.existence()) {
            (Fault::AuthAsGone, Existence::Unknown) => {
                result.error.as_ref().is_some_and(|error| is_refusal(error.reason()))
            }
            (Fault::ForeignAsGone, Existence::Foreign) => true,
            (Fault::NameMissAsGone, Existence::NotVisible) => named,
            (Fault::NotListedAsGone, Existence::NotVisible) => !named,
            (Fault::EmptyListAsGone, _) => self.has_vanished(asked, result),
            _ => false,
        }
    }

    /// Returns whether the instance existed before an empty listing.
    fn has_vanished(&self, asked: &InstanceRef, result: &InstanceResult) -> bool {
        let Some(Ref::ProviderId(id)) = &asked.r#ref else { return false };
        let mut notes = self.memory.notes();
        if result.existence() == Existence::Exists {
            notes.instances.insert(id.clone());
        }
        notes.vanished.contains(id)
    }

    /// Returns whether the faulty adapter takes an error of the whole batch as proof that none of its instances exists.
    fn takes_failure_for_gone(&self, status: &Status) -> bool {
        match self.fault {
            Fault::AuthAsGone => is_refusal(AdapterError::from(status).reason),
            Fault::FailedLookUpAsGone => true,
            _ => false,
        }
    }

    fn judged(
        &self,
        asked: &InstanceRef,
        mut result: InstanceResult,
        scope: Option<&Scope>,
    ) -> InstanceResult {
        if self.takes_for_gone(asked, &result) {
            return gone(scope.cloned());
        }
        if result.existence() == Existence::Gone {
            if self.is(Fault::GoneWithoutEvidence) {
                result.evidence = None;
            }
            if self.is(Fault::NeverGone) {
                let existence = Existence::NotVisible.into();
                return InstanceResult { existence, ..InstanceResult::default() };
            }
        }
        result
    }

    fn looked_up(&self, asked: &[InstanceRef], answer: &mut BatchGetInstancesResponse) -> Result<(), Status> {
        let bad = answer.results.iter().filter_map(|one| one.error.as_ref());
        if self.is(Fault::BadRefFailsTheBatch)
            && let Some(bad) = bad.into_iter().find(|error| error.reason() == Reason::FieldInvalid)
        {
            return Err(AdapterError::field("refs", bad.message.clone()).into());
        }
        let results = std::mem::take(&mut answer.results);
        let scope = answer.scope.as_ref();
        answer.results =
            asked.iter().zip(results).map(|(asked, result)| self.judged(asked, result, scope)).collect();
        if self.is(Fault::BatchOrder) {
            answer.results.reverse();
        }
        self.price(&mut answer.cost);
        Ok(())
    }

    fn mirrored(
        &self,
    ) -> impl FnMut(WatchInstancesResponse) -> Option<WatchInstancesResponse> + Send + use<> {
        let front = self.clone();
        move |mut message| {
            match &mut message.event {
                Some(Event::Reset(_)) if front.is(Fault::NoReset) => return None,
                Some(Event::Synced(_)) if front.is(Fault::NeverSynced) => return None,
                Some(Event::Synced(synced)) if front.is(Fault::WrongChecksum) => synced.checksum ^= 1,
                _ => (),
            }
            Some(message)
        }
    }
}

#[tonic::async_trait]
impl InstanceService for Front {
    type WatchInstancesStream = Stream<WatchInstancesResponse>;

    async fn watch_instances(
        &self,
        mut request: Request<WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        let resumes = !request.get_ref().resume_token.is_empty();
        if self.is(Fault::ResumesFromNow) {
            request.get_mut().resume_token.clear();
        }
        let answer = self.stream(self.instances().watch_instances(request).await, self.mirrored())?;
        if self.is(Fault::ResumesFromNow) && resumes {
            return Ok(answer.map(from_now));
        }
        if self.is(Fault::NeverSynced) {
            return Ok(answer.map(|stream| Box::pin(stream.chain(futures::stream::pending())) as Stream<_>));
        }
        if self.is(Fault::OneGiantChunk) {
            return Ok(answer.map(one_chunk));
        }
        Ok(answer)
    }

    async fn batch_get_instances(
        &self,
        mut request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<BatchGetInstancesResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        if let (Fault::StaleLiveReads, Some(context)) = (self.fault, &mut request.get_mut().context) {
            context.max_staleness = None;
        }
        let asked = request.get_ref().refs.clone();
        let mut answer = match self.instances().batch_get_instances(request).await {
            Ok(answer) => answer,
            Err(status) if self.takes_failure_for_gone(&status) => {
                let results = asked.iter().map(|_| gone(None)).collect();
                Response::new(BatchGetInstancesResponse { results, ..BatchGetInstancesResponse::default() })
            }
            Err(status) => return Err(self.reported(status)),
        };
        self.looked_up(&asked, answer.get_mut())?;
        Ok(answer)
    }
}

/// Skips the listing, so the watch sends only later events.
fn from_now(stream: Stream<WatchInstancesResponse>) -> Stream<WatchInstancesResponse> {
    let listing = |message: &Result<WatchInstancesResponse, Status>| {
        let event = message.as_ref().ok().and_then(|message| message.event.as_ref());
        std::future::ready(matches!(event, Some(Event::Reset(_) | Event::Items(_))))
    };
    // The message with `Synced` ends the listing.
    Box::pin(stream.skip_while(listing).skip(1))
}

fn one_chunk(stream: Stream<WatchInstancesResponse>) -> Stream<WatchInstancesResponse> {
    let mut held = Vec::new();
    Box::pin(stream.flat_map(move |message| {
        let passed = match message {
            Ok(WatchInstancesResponse { event: Some(Event::Items(mut items)) }) => {
                held.append(&mut items.items);
                Vec::new()
            }
            Ok(message @ WatchInstancesResponse { event: Some(Event::Synced(_)) }) => {
                let items = InstanceItems { items: std::mem::take(&mut held) };
                vec![Ok(WatchInstancesResponse { event: Some(Event::Items(items)) }), Ok(message)]
            }
            other => vec![other],
        };
        futures::stream::iter(passed)
    }))
}
