mod tls;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::{
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use super::*;

/// Time limit of each wait, longer than any wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The default probe timeout of the kubelet.
const PROBE: Duration = Duration::from_secs(1);

fn status() -> Router {
    Router::new().route("/", get(async || "page\n")).route("/status", get(async || "{}\n"))
}

struct Port {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<io::Result<()>>,
}

impl Port {
    async fn open() -> Self {
        Self::open_at(([127, 0, 0, 1], 0).into()).await
    }

    async fn open_at(address: SocketAddr) -> Self {
        let listener = Listener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let open = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/large", get(async || "x".repeat(64 << 20)));
        let endpoints = Endpoints::new(open, status(), Readers::Local);
        let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
        serving.spawn(serve(listener, endpoints, stop.clone()));
        Self { address, stop, serving }
    }

    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("taken");
        stream.write_all(text.as_bytes()).await.expect("sent");
        stream
    }

    async fn healthz(&self) -> String {
        said(&mut self.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await).await
    }
}

/// Reads until the server closes the connection. Returns the text that was read.
async fn said(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A connection that was cut may end with a reset.
    let _whole = timeout(TIMEOUT, stream.read_to_end(&mut said)).await.expect("closes").is_ok();
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns the number of connections that the server has not closed.
fn still_open(streams: &[TcpStream]) -> usize {
    let open = |stream: &&TcpStream| {
        let read = stream.try_read(&mut [0; 16]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    streams.iter().filter(open).count()
}

#[tokio::test]
async fn a_connection_has_one_request() {
    let port = Port::open().await;
    let answer = port.healthz().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn half_sent_requests_delay_no_probe() {
    let port = Port::open().await;
    let mut halves = Vec::new();
    for number in 0..5 * CONNECTIONS {
        halves.push(port.send("GET /healthz HTTP/1.1\r\nx-never: ").await);
        if number % 50 == 0 {
            let answer = timeout(PROBE, port.healthz()).await.expect("soon");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
    }
    assert!(timeout(PROBE, port.healthz()).await.expect("soon").contains("200 OK"));
    // The server may not have closed the oldest connections yet.
    timeout(TIMEOUT, async {
        while still_open(&halves) >= CONNECTIONS {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the older ones are closed");
    assert!(still_open(&halves) > 0, "the newer ones are still open");
}

#[tokio::test]
async fn stalled_clients_are_cut() {
    let port = Port::open().await;
    let mut half = port.send("GET /healthz HTTP/1.1\r\nx-never: ").await;
    let mut deaf = port.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    deaf.readable().await.expect("begins");
    let began = Instant::now();
    assert_eq!(said(&mut half).await, "");
    assert!(began.elapsed() > TIME / 2, "the connection timed out: {:?}", began.elapsed());
    let read = said(&mut deaf).await;
    assert!(read.len() < 64 << 20, "{} bytes were sent to a client that did not read them", read.len());
}

#[tokio::test]
async fn stop_waits_only_briefly_for_open_connections() {
    let mut port = Port::open().await;
    let _half = port.send("GET /healthz HTTP/1.1\r\nx-never: ").await;
    assert!(port.healthz().await.contains("200 OK"));
    port.stop.cancel();
    let ended = timeout(GRACE * 5, port.serving.join_next()).await.expect("soon");
    ended.expect("the server ran").expect("no panic").expect("the port was taken");
    assert!(TcpStream::connect(port.address).await.is_err(), "closed");
}

async fn answered(endpoints: &Endpoints, caller: &str, path: &str) -> StatusCode {
    let caller: IpAddr = caller.parse().expect("an address");
    let asked = Request::get(path).body(Body::empty()).expect("a request");
    tower::ServiceExt::oneshot(endpoints.of(caller), asked).await.expect("infallible").status()
}

#[tokio::test]
async fn status_pages_are_read_on_this_host_alone() {
    let open = || Router::new().route("/healthz", get(async || "ok\n"));
    let local = Endpoints::new(open(), status(), Readers::Local);
    let all = Endpoints::new(open(), status(), Readers::All);
    for (caller, is_near) in [
        ("127.0.0.1", true),
        ("127.8.0.1", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.0.2.1", false),
        ("10.244.1.7", false),
        ("::ffff:192.0.2.1", false),
        ("fd00::1", false),
    ] {
        assert_eq!(answered(&local, caller, "/healthz").await, StatusCode::OK, "{caller}");
        assert_eq!(answered(&local, caller, "/none").await, StatusCode::NOT_FOUND, "{caller}");
        for path in ["/", "/status"] {
            let wanted = if is_near { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!(answered(&local, caller, path).await, wanted, "{path} for {caller}");
            assert_eq!(answered(&all, caller, path).await, StatusCode::OK, "{path} for {caller}");
        }
    }
}

/// A client on this host that connects to a network address looks like a remote client, so it must use the loopback address.
#[tokio::test]
async fn the_loopback_address_is_served_beside_another_one() {
    let port = Port::open().await;
    let answer = said(&mut port.send("GET /status HTTP/1.1\r\nhost: a\r\n\r\n").await).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// An IPv6-only cluster needs this: the kubelet probes the address of the pod, and `kubectl port-forward` uses the loopback address.
#[tokio::test]
async fn pages_are_served_over_ipv6() {
    for address in ["[::]:0", "[::1]:0"] {
        let mut port = Port::open_at(address.parse().expect("an address")).await;
        port.address.set_ip(Ipv6Addr::LOCALHOST.into());
        let answer = port.healthz().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{address}: {answer}");
        let answer = said(&mut port.send("GET /status HTTP/1.1\r\nhost: a\r\n\r\n").await).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{address}: {answer}");
    }
}
