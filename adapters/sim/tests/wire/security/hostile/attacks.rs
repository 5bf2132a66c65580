//! The attacks, each with the error in which it must end.

use std::time::Duration;

use bytes::Bytes;
use cloud_api_proto::v1alpha1::WatchInstancesRequest;
use h2::{Reason, client::Builder};
use http::Request;
use prost_types::Duration as ProtoDuration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use super::{
    Target,
    raw::{Connection, End, end, message, post},
};
use crate::{security::program::context, support::TIMEOUT};

const GET_INFO: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";
const WATCH_STATUS: &str = "/cloudadapter.v1alpha1.AdapterService/WatchStatus";
const WATCH_INSTANCES: &str = "/cloudadapter.v1alpha1.InstanceService/WatchInstances";
const PUT: &str = "/cloudadapter.v1alpha1.LoadBalancerService/PutBackendSet";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A random generator with the same numbers in each run. Source: Marsaglia, "Xorshift RNGs".
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// Sends random bytes, with and without the HTTP/2 preface before them.
pub(super) async fn random_bytes(target: Target) {
    let mut chance = Chance(0x5eed);
    for round in 0..200 {
        let mut stream = TcpStream::connect(target.address).await.expect("taken");
        let greeting = if round % 2 == 0 { PREFACE } else { &[] };
        let length = usize::try_from(chance.next() % 4096).expect("small") + 32;
        let noise = [greeting, &chance.bytes(length)].concat();
        // The server may already have closed the connection.
        let _sent = stream.write_all(&noise).await.is_ok();
        let _closed = stream.shutdown().await.is_ok();
        let mut said = Vec::new();
        let read = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut said)).await.expect(
            "the \
        server ends the connection",
        );
        assert!(read.is_err() || !said.starts_with(b"HTTP/1.1 2"), "round {round}: {said:?}");
    }
}

pub(super) async fn huge_headers(target: Target) {
    for round in 0..20 {
        let mut connection = Connection::open(&target, &Builder::new()).await;
        let mut request = post(GET_INFO);
        for header in 0..100 {
            let name = http::HeaderName::try_from(format!("x-{header}")).expect("a name");
            request.headers_mut().insert(name, "v".repeat(8 * 1024).parse().expect("a value"));
        }
        let ended = connection.call(request, message(0, &[])).await;
        assert!(matches!(ended, End::Broken | End::Http(431)), "round {round}: {ended:?}");
    }
}

/// Makes calls and resets them immediately.
pub(super) async fn reset_flood(target: Target) {
    let mut peers = JoinSet::new();
    for _ in 0..4 {
        let mut connection = Connection::open(&target, &Builder::new()).await;
        peers.spawn(async move {
            for _ in 0..5_000 {
                let Some((_answer, mut stream)) = connection.begin(post(GET_INFO)).await else { return };
                stream.send_reset(Reason::CANCEL);
            }
        });
    }
    while let Some(ended) = peers.join_next().await {
        ended.expect("no panic");
    }
}

pub(super) async fn slow_readers(target: Target) {
    let request = cloud_api_proto::v1alpha1::WatchStatusRequest { context: Some(context()) };
    let content = prost_bytes(&request);
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut builder = Builder::new();
        builder.initial_window_size(1);
        let mut connection = Connection::open(&target, &builder).await;
        for _ in 0..100 {
            let (answer, mut stream) = connection.begin(post(WATCH_STATUS)).await.expect("taken");
            stream.send_data(content.clone(), true).expect("sent");
            kept.push((answer, stream));
        }
        let (answer, _stream) = kept.last_mut().expect("some");
        let answer = tokio::time::timeout(TIMEOUT, answer).await.expect("begins").expect("headers");
        assert_eq!(answer.status(), 200);
        kept.clear();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Opens watches of all instances. The flow-control window of each accepts only one byte. The watches stay open until the returned value is
/// dropped.
pub(super) async fn deaf_watchers(target: &Target, count: usize) -> Vec<(Connection, Vec<h2::RecvStream>)> {
    let (mut kept, mut left) = (Vec::new(), count);
    while left > 0 {
        let mut connection = Connection::open(target, &deaf()).await;
        let mut watches = Vec::new();
        for _ in 0..left.min(100) {
            watches.push(deaf_watcher(&mut connection).await.expect("the watch is accepted"));
        }
        left -= watches.len();
        kept.push((connection, watches));
    }
    kept
}

/// Opens one watch more than allowed, and asserts that this watch is refused with a retry delay.
pub(super) async fn one_watcher_too_many(target: &Target) {
    let mut connection = Connection::open(target, &deaf()).await;
    let refusal = deaf_watcher(&mut connection).await.expect_err("no watch is free");
    // RESOURCE_EXHAUSTED.
    assert_eq!(refusal["grpc-status"], "8", "{refusal:?}");
    assert_eq!(refusal["grpc-retry-pushback-ms"], "500", "{refusal:?}");
}

/// Retries a watch until it is allowed.
pub(super) async fn one_watcher_in_time(target: &Target) {
    let mut connection = Connection::open(target, &deaf()).await;
    let room = async { while deaf_watcher(&mut connection).await.is_err() {} };
    tokio::time::timeout(TIMEOUT, room).await.expect("the closed watches have ended");
}

fn deaf() -> Builder {
    let mut builder = Builder::new();
    builder.initial_window_size(1);
    builder
}

/// Opens a watch whose flow-control window accepts only one byte. Returns the watch, or the headers of its refusal.
async fn deaf_watcher(connection: &mut Connection) -> Result<h2::RecvStream, http::HeaderMap> {
    let request = WatchInstancesRequest { context: Some(context()), ..WatchInstancesRequest::default() };
    let (answer, mut stream) = connection.begin(post(WATCH_INSTANCES)).await.expect("taken");
    stream.send_data(prost_bytes(&request), true).expect("sent");
    let answer = tokio::time::timeout(TIMEOUT, answer).await.expect("begins").expect("headers");
    if answer.headers().contains_key("grpc-status") {
        return Err(answer.headers().clone());
    }
    let mut watch = answer.into_body();
    let first = tokio::time::timeout(TIMEOUT, watch.data()).await.expect("begins");
    assert_eq!(first.expect("the watch continues").expect("unbroken").len(), 1);
    Ok(watch)
}

/// Begins as many calls as a connection allows, and continues none of them.
pub(super) async fn idle_streams(target: Target) {
    let (mut connections, mut answers, mut streams) = (Vec::new(), JoinSet::new(), Vec::new());
    for _ in 0..110 {
        let mut connection = Connection::open(&target, &Builder::new()).await;
        for _ in 0..100 {
            let (answer, stream) = connection.begin(post(GET_INFO)).await.expect("taken");
            streams.push(stream);
            answers.spawn(end(answer));
        }
        connections.push(connection);
    }
    assert!(answers.len() >= 10_000);
    while let Some(ended) = tokio::time::timeout(TIMEOUT, answers.join_next()).await.expect("ends") {
        // DEADLINE_EXCEEDED.
        assert_eq!(ended.expect("no panic"), End::Grpc("4".to_owned()));
    }
}

/// Sends messages above the limit, and many messages below the limit that never end.
pub(super) async fn oversized_messages(target: Target) {
    const LIMIT: u32 = 4 * 1024 * 1024;
    let mut connection = Connection::open(&target, &Builder::new()).await;
    // RESOURCE_EXHAUSTED.
    let refused = End::Grpc("8".to_owned());
    assert_eq!(connection.call(post(PUT), message(LIMIT + 1, &[])).await, refused);
    assert_eq!(connection.call(post(PUT), message(u32::MAX, &[1, 2, 3])).await, refused);
    let most = usize::try_from(LIMIT).expect("fits") - 1;
    let (mut answers, mut streams, mut connections) = (JoinSet::new(), Vec::new(), vec![connection]);
    for _ in 0..30 {
        let mut connection = Connection::open(&target, &Builder::new()).await;
        let (answer, mut stream) = connection.begin(post(PUT)).await.expect("taken");
        stream.send_data(message(LIMIT, &vec![0; most]), false).expect("sent as far as flow control permits");
        answers.spawn(end(answer));
        streams.push(stream);
        connections.push(connection);
    }
    let (mut full, mut late) = (0, 0);
    while let Some(ended) = tokio::time::timeout(TIMEOUT, answers.join_next()).await.expect("ends") {
        match ended.expect("no panic") {
            // RESOURCE_EXHAUSTED means that no memory is left for messages; DEADLINE_EXCEEDED means that the message never ended.
            End::Grpc(code) if code == "8" => full += 1,
            End::Grpc(code) if code == "4" => late += 1,
            other @ (End::Grpc(_) | End::Http(_) | End::Broken) => panic!("{other:?}"),
        }
    }
    assert!(full > 0 && late > 0 && full + late == 30, "{full} {late}");
}

pub(super) async fn malformed_messages(target: Target) {
    let mut chance = Chance(0xbad);
    let good = cloud_api_proto::v1alpha1::GetInfoRequest {
        context: Some(cloud_api_proto::v1alpha1::RequestContext {
            max_staleness: Some(ProtoDuration { seconds: 1, nanos: 0 }),
            ..context()
        }),
    };
    let whole = prost_bytes(&good).slice(5..);
    let mut connection = Connection::open(&target, &Builder::new()).await;
    for cut in 1..whole.len() {
        let part = message(u32::try_from(cut).expect("small"), &whole[..cut]);
        let ended = connection.call(post(GET_INFO), part).await;
        // A cut between two fields leaves a shorter message, which is either valid or refused with INVALID_ARGUMENT.
        let Some(code) = grpc(&ended) else { panic!("cut at {cut}: {ended:?}") };
        assert!(["0", "3", "13"].contains(&code), "cut at {cut}: {ended:?}");
    }
    for round in 0..200 {
        let length = usize::try_from(chance.next() % 512).expect("small") + 1;
        let noise = chance.bytes(length);
        let framed = message(u32::try_from(length).expect("small"), &noise);
        let ended = connection.call(post(GET_INFO), framed).await;
        assert!(grpc(&ended).is_some_and(|code| code != "0"), "round {round}: {ended:?}");
        let ended = connection.call(post(GET_INFO), Bytes::from(noise)).await;
        assert!(grpc(&ended).is_some_and(|code| code != "0"), "round {round}, not framed: {ended:?}");
    }
    let short = connection.call(post(GET_INFO), message(100, &[0; 10])).await;
    assert!(grpc(&short).is_some_and(|code| code != "0"), "{short:?}");
    let json = Request::post(format!("http://adapter{GET_INFO}")).header("content-type", "application/json");
    let ended = connection.call(json.body(()).expect("a request"), Bytes::from_static(b"{}")).await;
    assert_eq!(ended, End::Http(415));
    let get = Request::get(format!("http://adapter{GET_INFO}")).body(()).expect("a request");
    assert_eq!(connection.call(get, Bytes::new()).await, End::Http(405));
    let nowhere = connection.call(post("/made.up.Service/Method"), message(0, &[])).await;
    // UNIMPLEMENTED.
    assert_eq!(nowhere, End::Grpc("12".to_owned()));
}

fn grpc(end: &End) -> Option<&str> {
    if let End::Grpc(code) = end { Some(code) } else { None }
}

fn prost_bytes(content: &impl prost::Message) -> Bytes {
    let content = content.encode_to_vec();
    message(u32::try_from(content.len()).expect("small"), &content)
}
