//! Tests of callers without permission, and of callers without an identity.

use cloud_adapter::testing::{AUDIENCE, ISSUER, TokenKey, claims, jwks};
use cloud_api_proto::v1alpha1::{
    DeleteLoadBalancerRequest, GetInfoRequest, RequestContext, adapter_service_client::AdapterServiceClient,
    load_balancer_service_client::LoadBalancerServiceClient,
};
use tonic::{Request, Status, metadata::MetadataValue};

use crate::{
    conditions::program::Program,
    conditions::world::{UNLIMITED, cloud},
    support::cloud::TestCloud,
    support::context,
    support::until,
    support::wanted::{CLUSTER, deletion},
};

pub(crate) struct Guarded {
    pub(crate) adapter: Program,
    pub(crate) key: TokenKey,
    _cloud: Option<TestCloud>,
    _jwks: tempfile::NamedTempFile,
}

impl Guarded {
    async fn start() -> Self {
        let cloud = cloud().await;
        let guarded = Self::before(&cloud.url, &[]).await;
        guarded.ready().await;
        Self { _cloud: Some(cloud), ..guarded }
    }

    pub(crate) async fn before(cloud: &str, more: &[&str]) -> Self {
        let key = TokenKey::elliptic("a");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), jwks(&[&key])).expect("a written file");
        let path = file.path().to_str().expect("a plain path");
        let flags = [
            "--authentication=service-account",
            "--cluster-id",
            CLUSTER,
            "--token-audience",
            AUDIENCE,
            "--token-issuer",
            ISSUER,
            "--token-jwks",
            path,
            "--identity=node-controller=kube-system/node-controller",
            "--identity=service-controller=kube-system/service-controller",
            "--identity=operator=kube-system/operator",
        ];
        let adapter = Program::start(cloud, UNLIMITED, &[&flags[..], more].concat()).await;
        Self { adapter, key, _cloud: None, _jwks: file }
    }

    pub(crate) async fn ready(&self) {
        until("the self-check", async || {
            let token = self.token("operator");
            let request = bearing(&token, GetInfoRequest { context: Some(context()) });
            let info = self.info().get_info(request).await.expect("admitted");
            info.into_inner().scope.is_some()
        })
        .await;
    }

    pub(crate) fn token(&self, name: &str) -> String {
        self.key.token(&format!("kube-system:{name}"))
    }

    pub(crate) fn info(&self) -> AdapterServiceClient<tonic::transport::Channel> {
        AdapterServiceClient::new(self.adapter.channel.clone())
    }

    /// Deletes a load balancer with this token. Returns the error of the refusal.
    async fn delete(&self, token: &str, change: impl FnOnce(&mut DeleteLoadBalancerRequest)) -> Status {
        let mut request = deletion("web");
        change(&mut request);
        let mut client = LoadBalancerServiceClient::new(self.adapter.channel.clone());
        client.delete_load_balancer(bearing(token, request)).await.expect_err("refused")
    }
}

pub(crate) fn bearing<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = MetadataValue::try_from(format!("Bearer {token}")).expect("ASCII");
    request.metadata_mut().insert("authorization", value);
    request
}

pub(crate) async fn another_role() -> Status {
    let guarded = Guarded::start().await;
    guarded.delete(&guarded.token("node-controller"), |_| ()).await
}

pub(crate) async fn another_cluster() -> Status {
    let guarded = Guarded::start().await;
    let elsewhere = RequestContext { cluster_id: "c-2".into(), ..context() };
    let change = |request: &mut DeleteLoadBalancerRequest| request.context = Some(elsewhere);
    guarded.delete(&guarded.token("service-controller"), change).await
}

pub(crate) async fn foreign_fence() -> Status {
    let guarded = Guarded::start().await;
    let change = |request: &mut DeleteLoadBalancerRequest| {
        request.fence.as_mut().expect("set").scope = "route-controller/0".into();
    };
    guarded.delete(&guarded.token("service-controller"), change).await
}

pub(crate) async fn operator_who_writes() -> Status {
    let guarded = Guarded::start().await;
    guarded.delete(&guarded.token("operator"), |_| ()).await
}

pub(crate) async fn without_a_token() -> Status {
    let guarded = Guarded::start().await;
    guarded
        .info()
        .get_info(GetInfoRequest { context: Some(context()) })
        .await
        .expect_err("the caller is unknown")
}

pub(crate) async fn old_token() -> Status {
    let guarded = Guarded::start().await;
    let mut claims = claims("kube-system:service-controller");
    let now = claims["iat"].as_u64().expect("seconds");
    for (claim, age) in [("iat", 7200), ("nbf", 7200), ("exp", 3600)] {
        claims[claim] = (now - age).into();
    }
    guarded.delete(&guarded.key.sign(&claims), |_| ()).await
}
