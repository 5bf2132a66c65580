//! Symptoms in `AdapterService` and in errors.

use cloud_api_proto::v1alpha1::{GetInfoRequest, GetInfoResponse, RequestContext};
use tonic::Status;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_client::ServerReflectionClient};
use tonic_types::StatusExt as _;

use crate::{adapter::bench::context, broken::world::World};

async fn info(world: &World, context: RequestContext) -> Result<GetInfoResponse, Status> {
    let request = GetInfoRequest { context: Some(context) };
    Ok(world.adapter.info().get_info(request).await?.into_inner())
}

/// A request without a context.
async fn refusal(world: &World) -> Status {
    world.adapter.info().get_info(GetInfoRequest { context: None }).await.expect_err("refused")
}

pub(crate) async fn another_instance(world: World) -> bool {
    let first = info(&world, context()).await.expect("answered").instance_id;
    info(&world, context()).await.expect("answered").instance_id != first
}

pub(crate) async fn one_instance_for_ever(world: World) -> bool {
    let first = info(&world, context()).await.expect("answered").instance_id;
    let world = world.restarted().await;
    info(&world, context()).await.expect("answered").instance_id == first
}

pub(crate) async fn calls_for_info(world: World) -> bool {
    info(&world, context()).await.expect("answered");
    world.cloud.counts().total > 0
}

pub(crate) async fn nonsense_is_serving(world: World) -> bool {
    let request = HealthCheckRequest { service: "nonsense".to_owned() };
    HealthClient::new(world.adapter.channel.clone()).check(request).await.is_ok()
}

pub(crate) async fn no_reflection(world: World) -> bool {
    let questions = tokio_stream::iter([ServerReflectionRequest::default()]);
    let mut client = ServerReflectionClient::new(world.adapter.channel.clone());
    client.server_reflection_info(questions).await.is_err()
}

pub(crate) async fn unknown_enum_refused(world: World) -> bool {
    info(&world, RequestContext { priority: 99, ..context() }).await.is_err()
}

pub(crate) async fn affinity_hidden(world: World) -> bool {
    let info = info(&world, context()).await.expect("answered");
    !info.capabilities.iter().any(|one| one.name == "lb.session-affinity")
}

pub(crate) async fn error_without_info(world: World) -> bool {
    refusal(&world).await.get_error_details().error_info().is_none()
}

pub(crate) async fn error_without_field(world: World) -> bool {
    refusal(&world).await.get_error_details().bad_request().is_none()
}

pub(crate) async fn error_without_delay(world: World) -> bool {
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| "nowhere".clone_into(&mut spec.backend_set_id));
    world.adapter.ensure(&request).await.expect_err("the backend set is unknown").retry_after.is_none()
}
