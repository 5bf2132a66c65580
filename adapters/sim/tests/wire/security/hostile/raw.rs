//! A minimal HTTP/2 client for attacks.

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{Request, Response};
use tokio::{net::TcpStream, task::JoinSet};

use super::Target;

pub(super) struct Connection {
    pub(super) send: SendRequest<Bytes>,
    _driving: JoinSet<()>,
}

impl Connection {
    pub(super) async fn open(target: &Target, builder: &Builder) -> Self {
        let stream = TcpStream::connect(target.address).await.expect("taken");
        let (send, connection) = builder.handshake(stream).await.expect("HTTP/2");
        let mut driving = JoinSet::new();
        // The streams report errors of the connection too.
        driving.spawn(async move {
            let _reported_by_streams = connection.await.is_ok();
        });
        Self { send, _driving: driving }
    }

    /// Begins a call. Returns `None` if the connection is closed.
    pub(super) async fn begin(
        &mut self,
        request: Request<()>,
    ) -> Option<(ResponseFuture, h2::SendStream<Bytes>)> {
        self.send.clone().ready().await.ok()?.send_request(request, false).ok()
    }

    /// Makes a whole call with this body.
    pub(super) async fn call(&mut self, request: Request<()>, body: Bytes) -> End {
        let Some((answer, mut stream)) = self.begin(request).await else { return End::Broken };
        if stream.send_data(body, true).is_err() {
            return End::Broken;
        }
        end(answer).await
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// The gRPC code in the trailers.
    Grpc(String),
    /// An HTTP status other than 200.
    Http(u16),
    /// No response.
    Broken,
}

pub(super) async fn end(answer: ResponseFuture) -> End {
    let Ok(answer) = answer.await else { return End::Broken };
    if answer.status() != 200 {
        return End::Http(answer.status().as_u16());
    }
    let code = |headers: &http::HeaderMap| {
        headers.get("grpc-status").and_then(|code| code.to_str().ok()).map(str::to_owned)
    };
    if let Some(code) = code(answer.headers()) {
        return End::Grpc(code);
    }
    trailers(answer).await.and_then(|trailers| code(&trailers)).map_or(End::Broken, End::Grpc)
}

async fn trailers(answer: Response<h2::RecvStream>) -> Option<http::HeaderMap> {
    let mut body = answer.into_body();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
    }
    body.trailers().await.ok()?
}

pub(super) fn post(path: &str) -> Request<()> {
    Request::post(format!("http://adapter{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

/// Frames one gRPC message. Source: gRPC over HTTP/2, "Length-Prefixed-Message".
pub(super) fn message(declared: u32, content: &[u8]) -> Bytes {
    let mut framed = vec![0];
    framed.extend(declared.to_be_bytes());
    framed.extend(content);
    framed.into()
}
