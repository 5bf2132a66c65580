//! The test bench. Its port admits or refuses callers, and its service returns the caller's role and name.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use cloud_adapter::{
    auth::{
        Address, Authentication, Caller, Gate, Guard, Identities, Identity, Metrics, Port, Refusals,
        ServerIdentity, Terms, Times, Tls, TlsFiles,
    },
    testing::{Ca, Pair},
};
use cloud_api_proto::AdapterError;
use http::{Request, uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Response, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// The name in the server's certificates.
pub(crate) const NAME: &str = "cloud-adapter";
/// Timeout that is longer than any step of these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Setting {
    pub(crate) authentication: Authentication,
    pub(crate) identities: &'static [&'static str],
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) trust_domain: Option<&'static str>,
    pub(crate) times: Times,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            authentication: Authentication::None,
            identities: &[],
            tls: None,
            trust_domain: None,
            times: Times::default(),
        }
    }
}

pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    registry: Registry,
    /// Stops the port when this value is dropped.
    pub(crate) serving: JoinSet<()>,
}

#[expect(clippy::disallowed_methods, reason = "the clients use the real clock, so this test must, too")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

impl Bench {
    pub(crate) async fn start(setting: Setting) -> Self {
        let Setting { authentication, identities, tls, trust_domain, times } = setting;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let identities: Vec<Identity> =
            identities.iter().map(|one| one.parse().expect("an identity")).collect();
        let identities = Identities::new(&identities).expect("each identity has one role");
        let gate = Gate::new(authentication, identities, Refusals::new(metrics.clone()));
        let tls = tls.map(|files| Tls::start(files, wall).expect("valid files"));
        let terms = Terms {
            tls: tls.as_ref().map(Tls::current),
            trust_domain: trust_domain.map(Arc::from),
            times,
            metrics,
        };
        let port = Port::bind(&Address::Tcp(([127, 0, 0, 1], 0).into())).await.expect("a free port");
        let Address::Tcp(address) = port.address().expect("bound") else { panic!("TCP") };
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(port.serve(terms, Guard::new(WhoCalls, gate), stop.clone()));
        if let Some(tls) = tls {
            // This task is aborted when the set is dropped.
            serving.spawn(tls.run(Duration::from_millis(20), |_occasion, _result| ()));
        }
        Self { address, stop, registry, serving }
    }

    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).expect("text");
        page
    }

    pub(crate) fn plain(&self) -> Client {
        let endpoint = Endpoint::try_from(format!("http://{}", self.address)).expect("a URL");
        Client { channel: endpoint.connect_lazy(), token: None }
    }

    pub(crate) fn secure(&self, ca: &Ca, own: Option<&Pair>) -> Client {
        let (connector, address) = (TlsConnector::from(Arc::new(client_config(ca, own))), self.address);
        let connect = service_fn(move |_uri| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(connector.connect(name, stream).await?))
            }
        });
        let channel = Endpoint::from_static("http://adapter").connect_with_connector_lazy(connect);
        Client { channel, token: None }
    }
}

fn client_config(ca: &Ca, own: Option<&Pair>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let pem = ca.pair().certificate;
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("both")
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![certificate], key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    token: Option<String>,
}

impl Client {
    pub(crate) fn with(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Calls a method. Returns the role of the caller, or the refusal.
    pub(crate) async fn call(&self, path: &str) -> Result<String, AdapterError> {
        self.ask(path).await.map_err(AdapterError::from)
    }

    /// Like [`Self::call`], but repeats the call if the connection was closed before the call was sent, as gRPC clients do. Source: gRPC,
    /// "Transparent Retries".
    pub(crate) async fn call_until_sent(&self, path: &str) -> Result<String, AdapterError> {
        let mut tries = 3;
        loop {
            tries -= 1;
            let answer = self.call(path).await;
            let unsent = |error: &AdapterError| {
                error.code == Code::Cancelled && error.message == "operation was canceled"
            };
            if tries == 0 || !answer.as_ref().is_err_and(unsent) {
                return answer;
            }
        }
    }

    pub(crate) async fn ask(&self, path: &str) -> Result<String, Status> {
        let mut request = tonic::Request::new(());
        if let Some(token) = &self.token {
            let value = MetadataValue::try_from(format!("Bearer {token}")).expect("ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(format!("{error:?}")))?;
        let path = PathAndQuery::try_from(path).expect("a path");
        let answer = grpc.unary(request, path, ProstCodec::<(), ()>::default()).await?;
        Ok(answer.metadata().get("x-who").expect("a caller").to_str().expect("ASCII").to_owned())
    }
}

/// A service that answers all methods with the role and the name of the caller.
#[derive(Clone, Debug)]
struct WhoCalls;

impl<B> Service<Request<B>> for WhoCalls
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let caller =
            request.extensions().get::<Caller>().cloned().expect("the gate added the caller to the request");
        let path = request.uri().path().to_owned();
        let answer = service_fn(move |_: tonic::Request<()>| {
            let (caller, path) = (caller.clone(), path.clone());
            async move {
                if path.ends_with("/Hang") {
                    std::future::pending::<()>().await;
                }
                let mut response = Response::new(());
                let who = format!("{} {}", caller.role.word(), caller.subject);
                response.metadata_mut().insert("x-who", who.parse().expect("ASCII"));
                Ok::<_, Status>(response)
            }
        });
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<(), ()>::default());
            Ok(grpc.unary(answer, request).await)
        })
    }
}

/// The files of a certificate and its key, in a directory that the test may change.
pub(crate) fn mounted(dir: &TempDir, pair: &Pair) -> ServerIdentity {
    mount(dir.path(), pair);
    ServerIdentity::Pair { certificate: dir.path().join("tls.crt"), key: dir.path().join("tls.key") }
}

/// Replaces both files, one after the other and not atomically.
pub(crate) fn mount(dir: &Path, pair: &Pair) {
    for (name, text) in [("tls.crt", &pair.certificate), ("tls.key", &pair.key)] {
        std::fs::write(dir.join(name), text).expect("a written file");
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timed out waiting until {what}"));
}
