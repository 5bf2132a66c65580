//! Tests which callers the adapter accepts, with tokens that a real API server issues.

use std::path::PathBuf;

use cloud_api_proto::v1alpha1::adapter_service_client::AdapterServiceClient;
use cloud_api_proto::v1alpha1::instance_service_client::InstanceServiceClient;
use cloud_api_proto::v1alpha1::load_balancer_service_client::LoadBalancerServiceClient;
use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, DeleteLoadBalancerRequest, GetInfoRequest, RequestContext,
};
use cloud_api_proto::{AdapterError, Reason};
use e2e::{ADAPTER, Bed, CONTROLLERS, GrpcPort};
use http::Method;
use tonic::Code;

/// The audience of the API server itself.
const API_SERVER: &str = "https://kubernetes.default.svc";

#[tokio::test]
async fn the_adapter_accepts_only_authenticated_controllers() {
    let mut bed = Bed::start().await.unwrap();
    let door = Door::of(&bed).await;
    let ours = door.audience.as_str();

    // The caller has no token, or a token that this adapter must not accept.
    let strangers: [(&str, Option<&[&str]>); 5] = [
        ("without a token", None),
        ("a token for the API server", Some(&[])),
        ("a token for something else", Some(&["vault"])),
        ("a token for another cluster", Some(&["cloudadapter.0"])),
        ("a token that is also valid at the API server", Some(&[ours, API_SERVER])),
    ];
    for (name, audiences) in strangers {
        let token = match audiences {
            Some(audiences) => Some(bed.token("cloud-node-controller", audiences).await.unwrap()),
            None => None,
        };
        let refused = get_info(&door.port(&mut bed, token), &door.cluster).await.expect_err(name);
        assert_eq!(
            judged(&refused),
            (Code::Unauthenticated, Reason::CallerUnauthenticated),
            "{name}: {refused}"
        );
    }

    // A known caller without permission.
    let create = ["create", "serviceaccount", "unprivileged", "--namespace", "kube-system"];
    bed.cluster.control_plane.kubectl(&create).await.unwrap();
    let unprivileged = bed.token("unprivileged", &[ours]).await.unwrap();
    let refused = get_info(&door.port(&mut bed, Some(unprivileged)), &door.cluster).await.unwrap_err();
    assert_eq!(judged(&refused), FORBIDDEN, "{refused}");
    assert!(refused.message.contains("kube-system:unprivileged"), "{refused}");
    let token = bed.token("cloud-node-controller", &[ours]).await.unwrap();
    let node = door.port(&mut bed, Some(token));
    for refused in [
        delete_load_balancer(&node, &door.cluster).await,
        get_info(&node, "another cluster").await,
        find_instances(&node, "another cluster").await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(judged(&refused), FORBIDDEN, "{refused}");
    }
    get_info(&node, &door.cluster).await.unwrap();
    find_instances(&node, &door.cluster).await.unwrap();

    // A caller that does not speak TLS, or expects another certificate, gets no answer.
    let plaintext = GrpcPort::open(bed.cluster.pods.get(ADAPTER).unwrap(), None, None).unwrap();
    let other_ca = bed.cluster.control_plane.ca().to_path_buf();
    let distrustful = GrpcPort::open(bed.cluster.pods.get(ADAPTER).unwrap(), Some(other_ca), None).unwrap();
    for port in [plaintext, distrustful] {
        let refused = get_info(&port, &door.cluster).await.unwrap_err();
        assert!(BROKEN.contains(&refused.code), "{refused:?}");
    }

    // All refusals are counted, and the controllers were not affected.
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
    let refused = adapter.counted("cloud_adapter_calls_refused_total", "reason").await.unwrap();
    let wanted = [("CALLER_FORBIDDEN", 4.0), ("CALLER_UNAUTHENTICATED", 5.0)];
    assert_eq!(refused, wanted.map(|(reason, calls)| (reason.to_owned(), calls)).into());
    let ended = adapter.counted("cloud_adapter_connections_ended_total", "why").await.unwrap();
    assert!(ended.get("handshake").is_some_and(|ended| *ended >= 2.0), "{ended:?}");
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    let calls = bed.adapter_calls().await.unwrap();
    assert_eq!(calls.keys().collect::<Vec<_>>(), ["OK"], "{calls:?}");
}

/// Probes and metrics are open to all callers, status pages only to callers on the same host, where a port-forward ends. The port serves
/// nothing else.
#[tokio::test]
async fn the_plain_port_serves_no_contract() {
    let mut bed = Bed::start().await.unwrap();
    let door = Door::of(&bed).await;
    let address = bed.cluster.pods.get(ADAPTER).unwrap().flag("--http-address").unwrap().to_owned();

    let info = get_info(&GrpcPort::at(&address, None, None).unwrap(), &door.cluster).await;
    // The port speaks HTTP/1 only, which ends the connection of a gRPC client.
    let refused = info.expect_err("the port serves the contract");
    assert!(BROKEN.contains(&refused.code), "{refused:?}");
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
    for path in
        ["/cloudadapter.v1alpha1.AdapterService/GetInfo", "/grpc.health.v1.Health/Check", "/debug/pprof"]
    {
        assert_eq!(adapter.http_status(Method::POST, path).await.unwrap(), 404, "{path}");
    }
    for path in ["/metrics", "/healthz", "/readyz", "/", "/status.json"] {
        assert_eq!(adapter.http_status(Method::GET, path).await.unwrap(), 200, "{path}");
        assert_eq!(adapter.http_status(Method::POST, path).await.unwrap(), 405, "{path}");
    }
    for (path, wanted) in
        [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/", 403), ("/status.json", 403)]
    {
        assert_eq!(adapter.status_at_its_address(path).await.unwrap(), wanted, "{path}");
    }
    let controller = bed.cluster.pods.get("service-controller").unwrap();
    for (path, wanted) in [
        ("/metrics", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/status", 403),
        ("/explain", 403),
        ("/explain?key=default/web", 403),
        ("/plan", 403),
    ] {
        assert_eq!(controller.status_at_its_address(path).await.unwrap(), wanted, "{path}");
    }
}

/// Which code reports the end of a connection depends on the call in progress.
const BROKEN: [Code; 3] = [Code::Internal, Code::Unavailable, Code::Unknown];
const FORBIDDEN: (Code, Reason) = (Code::PermissionDenied, Reason::CallerForbidden);

fn judged(error: &AdapterError) -> (Code, Reason) {
    (error.code, error.reason)
}

/// The values that a client needs to call the adapter as a controller does.
struct Door {
    ca: PathBuf,
    cluster: String,
    audience: String,
}

impl Door {
    async fn of(bed: &Bed) -> Self {
        let flag =
            |pod: &str, name: &str| bed.cluster.pods.look_at(pod).unwrap().flag(name).unwrap().to_owned();
        let cluster = bed.cluster_id().await.unwrap();
        let audience = flag(ADAPTER, "--token-audience");
        Self { ca: flag(CONTROLLERS[0], "--adapter-ca-file").into(), cluster, audience }
    }

    fn port(&self, bed: &mut Bed, token: Option<PathBuf>) -> GrpcPort {
        let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
        GrpcPort::open(adapter, Some(self.ca.clone()), token).unwrap()
    }
}

fn context(cluster: &str) -> Option<RequestContext> {
    Some(RequestContext {
        cluster_id: cluster.to_owned(),
        request_id: "e2e".to_owned(),
        ..RequestContext::default()
    })
}

async fn get_info(port: &GrpcPort, cluster: &str) -> Result<(), AdapterError> {
    let mut client = AdapterServiceClient::new(port.channel());
    let answer = client.get_info(GetInfoRequest { context: context(cluster) }).await;
    answer.map(drop).map_err(AdapterError::from)
}

async fn find_instances(port: &GrpcPort, cluster: &str) -> Result<(), AdapterError> {
    let mut client = InstanceServiceClient::new(port.channel());
    let request =
        BatchGetInstancesRequest { context: context(cluster), ..BatchGetInstancesRequest::default() };
    client.batch_get_instances(request).await.map(drop).map_err(AdapterError::from)
}

async fn delete_load_balancer(port: &GrpcPort, cluster: &str) -> Result<(), AdapterError> {
    let mut client = LoadBalancerServiceClient::new(port.channel());
    let request =
        DeleteLoadBalancerRequest { context: context(cluster), ..DeleteLoadBalancerRequest::default() };
    client.delete_load_balancer(request).await.map(drop).map_err(AdapterError::from)
}
