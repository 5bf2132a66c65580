//! An adapter that runs in the test process, its clients, and the requests that controllers send.

use std::{io::Write as _, net::SocketAddr, time::Duration};

use adapter_sim::{ClientTokens, Settings, SimDriver};
use cloud_adapter::kit::testing::is_ready;
use cloud_adapter::{Adapter, LogFormat, Options, ReplicaOptions, SecurityOptions, driver::Driver};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Backend, BackendList, BatchGetInstancesRequest, BatchGetInstancesResponse,
        DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, InstanceRef,
        LoadBalancerSpec, LoadBalancerState, PutBackendSetRequest, RequestContext,
        adapter_service_client::AdapterServiceClient, instance_ref::Ref,
        instance_service_client::InstanceServiceClient,
        load_balancer_service_client::LoadBalancerServiceClient, put_backend_set_request::Content,
        route_service_client::RouteServiceClient,
    },
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{
    service::Routes,
    transport::{Channel, Endpoint},
};

use crate::{
    support::cloud::TestCloud,
    support::wanted::{CLUSTER, deletion, key, owner},
    support::{TIMEOUT, context, fence, until},
};

const TICK: Duration = Duration::from_millis(5);

/// The consistency horizon in the adapter's flags.
pub(crate) const HORIZON: Duration = Duration::from_secs(2);

pub(crate) fn options(config: &str) -> (NamedTempFile, Options) {
    let mut file = NamedTempFile::new().expect("a file");
    writeln!(file, "{config}").expect("a written file");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options {
        grpc_address: any.into(),
        max_connection_age: Duration::from_mins(30),
        grant: Vec::new(),
        http_address: any,
        config: Some(file.path().to_owned()),
        security: SecurityOptions::default(),
        replicas: ReplicaOptions::default(),
        log_format: LogFormat::Text,
        log_level: "info".into(),
    };
    (file, options)
}

/// A running adapter. Dropping this value ends it.
pub(crate) struct TestAdapter {
    pub(crate) channel: Channel,
    pub(crate) http: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinSet<anyhow::Result<()>>,
    _config: NamedTempFile,
}

pub(crate) struct Bench {
    pub(crate) cloud: TestCloud,
    pub(crate) adapter: TestAdapter,
}

/// Starts a fast cloud, and an adapter. Returns when the adapter has passed its self-check.
pub(crate) async fn bench() -> Bench {
    bench_with(json!({})).await
}

pub(crate) async fn bench_with(settings: Value) -> Bench {
    let cloud = TestCloud::fast(settings).await;
    let adapter = TestAdapter::start(&cloud.url).await;
    adapter.ready().await;
    cloud.count_from_here();
    Bench { cloud, adapter }
}

impl Bench {
    /// Replaces the adapter process by a new process, which knows only the state of the cloud.
    pub(crate) async fn restarted(self) -> Self {
        let Self { cloud, adapter } = self;
        adapter.kill().await;
        let adapter = TestAdapter::start(&cloud.url).await;
        adapter.ready().await;
        cloud.count_from_here();
        Self { cloud, adapter }
    }
}

impl TestAdapter {
    pub(crate) async fn start(url: &str) -> Self {
        Self::start_with(url, "").await
    }

    /// Starts an adapter with an additional line of configuration, without waiting for the self-check.
    pub(crate) async fn start_with(url: &str, config: &str) -> Self {
        let bucket = "{rate: 100000, burst: 10000}";
        let families = ["compute", "network", "loadbalancer", "identity"];
        let buckets: Vec<String> = families.iter().map(|family| format!("{family}: {bucket}")).collect();
        let (config, options) =
            options(&format!("limits: {{buckets: {{{}}}}}\n{config}", buckets.join(", ")));
        let settings = Settings {
            endpoint: url.parse().expect("a URL"),
            token: None,
            region: "sim-1".into(),
            consistency_horizon: HORIZON,
            create_horizon: HORIZON,
            client_tokens: ClientTokens::Sent,
        };
        let driver = SimDriver::new(settings).expect("no token");
        Self::serve(config, options, driver, std::convert::identity).await
    }

    /// Starts an adapter with these flags and this driver, and a layer in front of its services.
    pub(crate) async fn serve<D: Driver>(
        config: NamedTempFile,
        options: Options,
        driver: D,
        front: impl FnOnce(Routes) -> Routes + Send + 'static,
    ) -> Self {
        let adapter = Adapter::bind(driver, &options).await.expect("free ports");
        let grpc = adapter.grpc_address().expect("bound");
        let http = adapter.http_address().expect("bound");
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(adapter.serve_through(stop.clone(), front));
        let channel = Endpoint::try_from(format!("http://{grpc}")).expect("an address").connect_lazy();
        Self { channel, http, stop, serving, _config: config }
    }

    pub(crate) async fn ready(&self) {
        until("the self-check", async || is_ready(&self.channel, CLUSTER).await).await;
    }

    pub(crate) fn info(&self) -> AdapterServiceClient<Channel> {
        AdapterServiceClient::new(self.channel.clone())
    }

    pub(crate) fn instances(&self) -> InstanceServiceClient<Channel> {
        InstanceServiceClient::new(self.channel.clone())
    }

    pub(crate) fn balancers(&self) -> LoadBalancerServiceClient<Channel> {
        LoadBalancerServiceClient::new(self.channel.clone())
    }

    pub(crate) fn routes(&self) -> RouteServiceClient<Channel> {
        RouteServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn batch_get(
        &self,
        context: RequestContext,
        refs: impl IntoIterator<Item = Ref>,
    ) -> Result<BatchGetInstancesResponse, AdapterError> {
        let refs = refs.into_iter().map(|one| InstanceRef { r#ref: Some(one), ..InstanceRef::default() });
        let request = BatchGetInstancesRequest { context: Some(context), refs: refs.collect() };
        Ok(self.instances().batch_get_instances(request).await?.into_inner())
    }

    /// Puts a backend set whose ID is derived from its content.
    pub(crate) async fn put(&self, backends: &[Backend]) -> String {
        let id = format!("{backends:?}");
        let id =
            id.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())).to_string();
        let full = Content::Full(BackendList { backends: backends.to_vec() });
        let request = PutBackendSetRequest { context: Some(context()), id: id.clone(), content: Some(full) };
        self.balancers().put_backend_set(request).await.expect("put");
        id
    }

    /// Returns a request for the Service `shop/<uid>`.
    pub(crate) async fn request(
        &self,
        uid: &str,
        mut spec: LoadBalancerSpec,
        backends: &[Backend],
    ) -> EnsureLoadBalancerRequest {
        spec.backend_set_id = self.put(backends).await;
        EnsureLoadBalancerRequest {
            context: Some(context()),
            key: Some(key(uid)),
            owner: Some(owner(uid)),
            fence: Some(fence(1, 1)),
            spec: Some(spec),
            ..EnsureLoadBalancerRequest::default()
        }
    }

    pub(crate) async fn ensure(
        &self,
        request: &EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, AdapterError> {
        Ok(self.balancers().ensure_load_balancer(request.clone()).await?.into_inner())
    }

    /// Repeats the request until the answer is not PENDING.
    pub(crate) async fn ensured(&self, request: &EnsureLoadBalancerRequest) -> EnsureLoadBalancerResponse {
        let patient = async {
            loop {
                let answer = self.ensure(request).await.expect("possible");
                if answer.state() != LoadBalancerState::Pending {
                    return answer;
                }
                assert!(answer.retry_after.is_some(), "PENDING has a retry delay");
                tokio::time::sleep(TICK).await;
            }
        };
        tokio::time::timeout(TIMEOUT, patient).await.expect("settles")
    }

    pub(crate) async fn delete(&self, uid: &str) -> Result<DeleteLoadBalancerResponse, AdapterError> {
        Ok(self.balancers().delete_load_balancer(deletion(uid)).await?.into_inner())
    }

    pub(crate) async fn deleted(&self, uid: &str) -> DeleteLoadBalancerResponse {
        let patient = async {
            loop {
                let answer = self.delete(uid).await.expect("possible");
                if answer.state() == LoadBalancerState::Absent {
                    return answer;
                }
                assert!(answer.retry_after.is_some(), "DELETING has a retry delay");
                tokio::time::sleep(TICK).await;
            }
        };
        tokio::time::timeout(TIMEOUT, patient).await.expect("ends")
    }

    /// Ends the adapter at once, as if it were killed.
    pub(crate) async fn kill(mut self) {
        self.serving.shutdown().await;
    }
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, AdapterError>) -> (Reason, AdapterError) {
    let error = result.expect_err("the call must be refused");
    (error.reason, error)
}
