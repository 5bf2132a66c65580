//! For tests: finished spans in memory, and a collector that processes send to.

mod collector;

use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{layer::SubscriberExt as _, registry, util::SubscriberInitExt as _};

pub use self::collector::{Collector, Received};

/// Traces what this thread does, until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Recorder {
    /// Begins. A test with one thread is traced as a whole.
    #[must_use]
    pub fn start() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let guard = registry().with(super::layer(&provider)).set_default();
        Self { exporter, _provider: provider, _guard: guard }
    }

    /// The spans that have ended, in this order.
    ///
    /// # Panics
    /// If the exporter is broken.
    #[must_use]
    #[expect(clippy::expect_used, reason = "only tests come here")]
    pub fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().expect("nobody panicked with the lock")
    }
}

/// An attribute as text; empty if there is none.
#[must_use]
pub fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == name);
    found.map(|pair| pair.value.to_string()).unwrap_or_default()
}
