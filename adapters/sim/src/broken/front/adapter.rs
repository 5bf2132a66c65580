//! Faults in `AdapterService`.

use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, GetInfoRequest, GetInfoResponse, InstanceRef, RequestContext,
    WatchStatusRequest, WatchStatusResponse, adapter_service_server::AdapterService, instance_ref::Ref,
};
use tonic::{Request, Response, Status};

use super::{Front, Stream, beside};
use crate::broken::Fault;

impl Front {
    async fn ask_the_vendor<T>(&self, request: &Request<T>, context: Option<RequestContext>) {
        if !self.is(Fault::StatusAsksTheVendor) {
            return;
        }
        let unknown =
            InstanceRef { r#ref: Some(Ref::NodeName("status".to_owned())), ..InstanceRef::default() };
        let context = context.map(|context| RequestContext {
            max_staleness: Some(prost_types::Duration::default()),
            ..context
        });
        let question = BatchGetInstancesRequest { context, refs: vec![unknown] };
        // Only the call matters, not its result.
        drop(self.instances().batch_get_instances(beside(request, question)).await);
    }
}

#[tonic::async_trait]
impl AdapterService for Front {
    type WatchStatusStream = Stream<WatchStatusResponse>;

    async fn get_info(
        &self,
        mut request: Request<GetInfoRequest>,
    ) -> Result<Response<GetInfoResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.ask_the_vendor(&request, request.get_ref().context.clone()).await;
        let mut answer = self.info().get_info(request).await.map_err(|status| self.reported(status))?;
        let info = answer.get_mut();
        if self.is(Fault::UnstableInfo) {
            info.instance_id = format!("{}-{}", info.instance_id, self.memory.count());
        }
        if self.is(Fault::EternalInstanceId) {
            "adapter-sim".clone_into(&mut info.instance_id);
        }
        if self.is(Fault::HiddenCapability) {
            info.capabilities.retain(|one| one.name != "lb.session-affinity");
        }
        self.price(&mut info.cost);
        Ok(answer)
    }

    async fn watch_status(
        &self,
        mut request: Request<WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.ask_the_vendor(&request, request.get_ref().context.clone()).await;
        self.stream(self.info().watch_status(request).await, Some)
    }
}
