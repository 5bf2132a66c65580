//! A collector on a loopback port that stores the spans it receives.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post, serve::ListenerExt as _};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{ResourceSpans, Span},
};
use prost::Message as _;
use tokio::{net::TcpListener, task::JoinSet};

/// A collector for OTLP over HTTP, as protobuf.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    received: Kept,
    connections: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

type Kept = Arc<Mutex<Vec<Received>>>;

/// A received span.
#[derive(Clone, Debug)]
pub struct Received {
    /// The service name of the process.
    pub service: String,
    /// The name of the span.
    pub name: String,
    /// The trace ID, in hexadecimal.
    pub trace: String,
    /// The span ID, in hexadecimal.
    pub id: String,
    /// The ID of the parent span. Empty for a root span.
    pub parent: String,
    /// The attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// The IDs of the linked traces.
    pub links: Vec<String>,
}

impl Collector {
    /// Opens the port and starts the collector.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let received = Kept::default();
        let pages = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
        let (mut serving, connections) = (JoinSet::new(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&connections);
        let listener = listener.tap_io(move |_stream| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        serving.spawn(async move {
            // The task ends with the test, so the result is not needed.
            axum::serve(listener, pages).await.ok();
        });
        Ok(Self { endpoint, received, connections, _serving: serving })
    }

    /// The value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The spans received so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    let spans = request.resource_spans.into_iter().flat_map(received);
    kept.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    StatusCode::OK
}

fn received(sent: ResourceSpans) -> Vec<Received> {
    let of_process = attributes(sent.resource.unwrap_or_default().attributes);
    let service = of_process.get("service.name").cloned().unwrap_or_default();
    let spans = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans.map(|span| one(service.clone(), span)).collect()
}

fn one(service: String, span: Span) -> Received {
    Received {
        service,
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        attributes: attributes(span.attributes),
        links: span.links.iter().map(|link| hex(&link.trace_id)).collect(),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        // This project does not use other kinds of values.
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
