//! Reads Services from the API server before a load balancer without a Service is deleted, because the cache is not sufficient proof.

use controller_core::kube_api::within;
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{Api, api::ListParams};

use super::Executor;
use crate::{
    error::Error,
    mirror::{Reading, kubernetes::service as to_service},
    plan::{
        left_over::Standing,
        service::{Class, Role, ServiceId},
    },
};

const PAGE: u32 = 500;

impl Executor {
    /// Reads the state of a Service from the API server instead of the cache.
    pub(crate) async fn standing(&self, id: &ServiceId, reading: &Reading) -> Result<Standing, Error> {
        let services: Api<KubeService> = Api::namespaced(self.client.clone(), &id.namespace);
        let found = match within(services.get(&id.name)).await {
            Err(error) if error.is_not_found() => None,
            found => Some(found.map_err(|source| Error::ApiServer { call: "get the Service", source })?),
        };
        let service = found.and_then(|it| to_service(&it, reading)).filter(|it| it.id.uid == id.uid);
        Ok(match service {
            None => Standing::Gone,
            Some(service) => match (service.role(), &service.class) {
                (Role::Wanted | Role::Cleanup, _) => Standing::Ours,
                (Role::Ignored, Class::Others) => Standing::Others,
                (Role::Ignored, Class::Ours(_) | Class::Lost) => Standing::WantsNone,
            },
        })
    }

    /// Whether a Service with this UID exists under any name. The name is not compared, because names in tags may be truncated.
    ///
    /// Cost: one call per 500 Services.
    pub(crate) async fn knows(&self, uid: &str) -> Result<bool, Error> {
        let services: Api<KubeService> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = within(services.list_metadata(&params)).await;
            let page = page.map_err(|source| Error::ApiServer { call: "list Services", source })?;
            if page.items.iter().any(|it| it.metadata.uid.as_deref() == Some(uid)) {
                return Ok(true);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(false),
            }
        }
    }
}
