//! Reads one page over a separate connection: plain HTTP/1.1, with limits on time and size.

use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Time limit for a connection to a URL.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a page, a hundred times the size of a large page.
const PAGE: usize = 32 * 1024 * 1024;

/// An answer with any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// No process listens at the address, or the connection timed out.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, String),
    /// The connection broke, or the peer does not speak HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The request is invalid.
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
}

/// Connects to `HOST:PORT` and gets a page.
pub(crate) async fn get_from(authority: &str, path: &str) -> Result<HttpResponse, HttpError> {
    let failed = |why: String| HttpError::Connect(authority.to_owned(), why);
    let connected = tokio::time::timeout(CONNECTED_WITHIN, TcpStream::connect(authority)).await;
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(failed(plain(&error))),
        Err(_late) => return Err(failed(format!("no answer within {}s", CONNECTED_WITHIN.as_secs()))),
    };
    get(stream, authority, path).await
}

/// Gets a page over a stream that is connected to the process.
pub(crate) async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<HttpResponse, HttpError> {
    let broken = |error: hyper::Error| HttpError::Broken(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut request = Request::get(path).body(Empty::<Bytes>::new())?;
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(host).map_err(http::Error::from)?);
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), PAGE).collect().await;
        let body = body.map_err(|error| HttpError::Broken(error.to_string()))?.to_bytes();
        Ok(HttpResponse { status, body })
    };
    match select(std::pin::pin!(exchange), std::pin::pin!(connection)).await {
        Either::Left((answer, _connection)) => answer,
        // The part that arrived before the end still has to be read.
        Either::Right((_ended, exchange)) => exchange.await,
    }
}

/// Formats the error without the system's error number, which does not help users.
pub(crate) fn plain(error: &std::io::Error) -> String {
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
    async fn of(answer: &str) -> Result<HttpResponse, HttpError> {
        let (ours, mut theirs) = duplex(64 * 1024);
        let server = async move {
            let mut request = [0; 1024];
            let read = theirs.read(&mut request).await.expect("a request");
            theirs.write_all(answer.as_bytes()).await.expect("written");
            theirs.shutdown().await.expect("closed");
            String::from_utf8_lossy(&request[..read]).into_owned()
        };
        let (answer, request) = tokio::join!(get(ours, "pod", "/explain?key=a/b"), server);
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
            let error = of(answer).await.expect_err(answer).to_string();
            assert!(error.starts_with("the connection broke: "), "{error}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_port() {
        let place = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("an address").to_string()
        };
        let error = get_from(&place, "/status").await.expect_err("no process listens there").to_string();
        assert_eq!(error, format!("cannot connect to {place}: connection refused"));
    }
}
