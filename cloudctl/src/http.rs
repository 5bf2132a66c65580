//! Reads one page over a separate connection: plain HTTP/1.1, with limits on time and size.

use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

/// Time limit for a connection to a URL.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a page, a hundred times the size of a large page.
const MAX_PAGE: usize = 32 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

pub(crate) async fn get_from(authority: &str, path: &str) -> Result<HttpResponse, String> {
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(authority)).await;
    let stream = match connected {
        Ok(connected) => connected.map_err(plain),
        Err(_late) => Err(format!("no answer within {}s", CONNECT_TIMEOUT.as_secs())),
    };
    let stream = stream.map_err(|why| format!("cannot connect to {authority}: {why}"))?;
    get(stream, authority, path).await
}

/// Gets a page over a stream that is connected to the process.
pub(crate) async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<HttpResponse, String> {
    let request = Request::get(path).header(header::HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("invalid request: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        let body = Limited::new(body, MAX_PAGE).collect().await.map_err(broken)?;
        Ok(HttpResponse { status: head.status, body: body.to_bytes() })
    };
    match select(std::pin::pin!(exchange), std::pin::pin!(connection)).await {
        Either::Left((answer, _connection)) => answer,
        // The part that arrived before the end still has to be read.
        Either::Right((_ended, exchange)) => exchange.await,
    }
}

/// Formats an error of a connection that broke, or of a peer that does not speak HTTP.
fn broken(error: impl std::fmt::Display) -> String {
    format!("the connection broke: {error}")
}

/// Formats the error without the system's error number, which does not help users.
pub(crate) fn plain(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        net::TcpListener,
    };

    use super::*;

    /// Runs a server that sends only this answer and closes the connection.
    async fn of(answer: &str) -> Result<HttpResponse, String> {
        let (client, mut server) = duplex(64 * 1024);
        let serve = async move {
            let mut request = [0; 1024];
            let read = server.read(&mut request).await.expect("a request");
            server.write_all(answer.as_bytes()).await.expect("written");
            server.shutdown().await.expect("closed");
            String::from_utf8_lossy(&request[..read]).into_owned()
        };
        let (answer, request) = tokio::join!(get(client, "pod", "/explain?key=a/b"), serve);
        assert!(request.starts_with("GET /explain?key=a/b HTTP/1.1\r\nhost: pod\r\n"), "{request}");
        answer
    }

    #[tokio::test]
    async fn a_page_and_its_status_are_read() {
        let read = of("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await.expect("an answer");
        assert_eq!(read, HttpResponse { status: StatusCode::NOT_FOUND, body: Bytes::from_static(b"no") });
        let read =
            of("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil it closes").await.expect("an answer");
        assert_eq!(read.body, "until it closes");
    }

    #[tokio::test]
    async fn a_non_http_answer_is_an_error() {
        for answer in ["", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
            let error = of(answer).await.expect_err(answer);
            assert!(error.starts_with("the connection broke: "), "{error}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_port() {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("an address").to_string()
        };
        let error = get_from(&address, "/status").await.expect_err("no process listens there");
        assert_eq!(error, format!("cannot connect to {address}: connection refused"));
    }
}
