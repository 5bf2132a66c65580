//! A fake adapter that answers `GetInfo` correctly, and fails in all other calls.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use adapter_conformance::cluster::tcp;
use bytes::{BufMut as _, Bytes, BytesMut};
use cloud_api_proto::v1alpha1::{
    Capability, GetInfoResponse, LoadBalancer, LoadBalancerItems, Scope, WatchLoadBalancersResponse,
    WatchStatusResponse, watch_load_balancers_response::Event,
};
use futures::{StreamExt as _, future, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// The fake accepts connections and sends nothing.
    Mute,
    /// The fake sends something other than HTTP/2.
    Prose,
    /// The fake refuses every call as unauthenticated.
    Closed,
    /// The fake answers only `GetInfo`, and hangs in all other calls.
    Hangs,
    /// The fake answers with bytes that are not valid messages.
    Garbage,
    /// The fake answers with an endless stream of messages.
    Endless,
    /// The fake ends after the first call other than `GetInfo`.
    Dies,
    /// The fake answers `GetInfo` and `WatchStatus`, and asks old connections to end, as an adapter should.
    Ages,
    /// Like `Ages`, but the fake cuts old connections.
    Cuts,
}

/// Maximum age of a connection.
const AGE: Duration = Duration::from_secs(1);
/// Duration of `GetInfo` in fakes whose connections age, so that some calls are always in flight.
const PAUSE: Duration = Duration::from_millis(30);

/// A running fake. Dropping this value ends it.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    calls: watch::Receiver<usize>,
    _serving: JoinSet<()>,
}

impl Fake {
    pub(crate) async fn start(mood: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (count, calls) = watch::channel(0);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, mood, Arc::new(count)));
        Self { address, calls, _serving: serving }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns after the first call other than `GetInfo`.
    pub(crate) async fn called(&mut self) {
        let called = self.calls.wait_for(|calls| *calls > 0);
        tokio::time::timeout(Duration::from_secs(30), called).await.expect("in time").expect("it runs");
    }
}

async fn serve(listener: TcpListener, mood: Behaviour, count: Arc<watch::Sender<usize>>) {
    let mut connections = JoinSet::new();
    let mut calls = count.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _from) = accepted.expect("a connection");
                connections.spawn(connection(stream, mood, Arc::clone(&count)));
            }
            _ = calls.wait_for(|calls| mood == Behaviour::Dies && *calls > 0) => return,
        }
    }
}

pub(crate) async fn connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mood: Behaviour,
    count: Arc<watch::Sender<usize>>,
) {
    if mood == Behaviour::Prose {
        // If the client closes the connection early, it has read enough.
        stream.write_all(b"220 mail.example.org ready when you are\r\n").await.unwrap_or_default();
    }
    if [Behaviour::Mute, Behaviour::Prose].contains(&mood) {
        future::pending::<()>().await;
    }
    let service = service_fn(move |request| answer(request, mood, Arc::clone(&count)));
    let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let old = async { if ages(mood) { tokio::time::sleep(AGE).await } else { future::pending().await } };
    tokio::select! {
        // A closed connection is not a failure of the test.
        ended = served.as_mut() => return ended.unwrap_or_default(),
        () = old => (),
    }
    if mood == Behaviour::Ages {
        served.as_mut().graceful_shutdown();
        served.await.unwrap_or_default();
    }
}

async fn answer(
    request: Request<Incoming>,
    mood: Behaviour,
    count: Arc<watch::Sender<usize>>,
) -> Result<Response<Body>, Infallible> {
    if mood == Behaviour::Closed {
        return Ok(status("16"));
    }
    if request.uri().path().ends_with("/GetInfo") {
        if ages(mood) {
            tokio::time::sleep(PAUSE).await;
        }
        return Ok(messages(stream::iter([framed(&info(mood))]).boxed()));
    }
    if ages(mood) {
        let status = WatchStatusResponse { leader: true, ..WatchStatusResponse::default() };
        return Ok(messages(stream::iter([framed(&status)]).chain(stream::pending()).boxed()));
    }
    count.send_modify(|calls| *calls += 1);
    Ok(match mood {
        Behaviour::Garbage => messages(stream::iter([frame(&[0xFF; 9])]).boxed()),
        Behaviour::Endless => messages(stream::repeat(framed(&items())).boxed()),
        Behaviour::Mute
        | Behaviour::Prose
        | Behaviour::Closed
        | Behaviour::Hangs
        | Behaviour::Dies
        | Behaviour::Ages
        | Behaviour::Cuts => future::pending().await,
    })
}

fn ages(mood: Behaviour) -> bool {
    [Behaviour::Ages, Behaviour::Cuts].contains(&mood)
}

/// An answer without capabilities, so that the suite does not look for leftover objects.
fn info(mood: Behaviour) -> GetInfoResponse {
    let capability = |name: &str| Capability { name: name.to_owned(), level: 2, ..Capability::default() };
    GetInfoResponse {
        adapter_name: "fake".to_owned(),
        scope: Some(Scope { fingerprint: "f".to_owned(), ..Scope::default() }),
        capabilities: if ages(mood) { vec![] } else { ["instances", "loadbalancers"].map(capability).into() },
        ..GetInfoResponse::default()
    }
}

/// A message of a listing. It can also be decoded as the answer to any other call.
fn items() -> WatchLoadBalancersResponse {
    let one = LoadBalancer { vendor_id: "lb-1".to_owned(), name: tcp(80).name, ..LoadBalancer::default() };
    WatchLoadBalancersResponse { event: Some(Event::Items(LoadBalancerItems { items: vec![one; 100] })) }
}

fn framed(message: &impl Message) -> Bytes {
    frame(&message.encode_to_vec())
}

/// Frames a message. Source: gRPC over HTTP/2, "Length-Prefixed-Message".
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("is short"));
    frame.put_slice(message);
    frame.freeze()
}

fn messages(messages: stream::BoxStream<'static, Bytes>) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = messages.map(Frame::data).chain(stream::iter([Frame::trailers(trailers)]));
    grpc(BodyExt::boxed_unsync(StreamBody::new(frames.map(Ok))))
}

fn status(code: &'static str) -> Response<Body> {
    let mut response = grpc(BodyExt::boxed_unsync(http_body_util::Empty::new()));
    response.headers_mut().insert("grpc-status", HeaderValue::from_static(code));
    response
}

fn grpc(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
