//! For tests: stores finished spans in memory, and provides a collector that processes can send to.

mod collector;

use std::sync::OnceLock;

pub use opentelemetry_sdk::trace::SpanData;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::{
    filter::dynamic_filter_fn, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

pub use self::collector::{Collector, Received};

/// Makes tracing ask the subscriber of each thread at every call site, each time.
///
/// Tracing caches for all threads whether any subscriber wants the spans of a call site. The first thread to reach the call site often
/// belongs to another test, which has no subscriber. If only one subscriber is registered, tracing asks no other subscriber, and the call
/// site stays disabled for all threads. Two permanent subscribers whose answer may change prevent that. Source: `tracing_core::callsite`,
/// `Dispatchers::rebuilder`.
pub fn ask_each_thread() {
    static UNDECIDED: OnceLock<[Dispatch; 2]> = OnceLock::new();
    UNDECIDED.get_or_init(|| [(); 2].map(|()| registry().with(dynamic_filter_fn(|_, _| false)).into()));
}

/// Traces the current thread until this value is dropped.
#[derive(Debug)]
pub struct Recorder {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Recorder {
    /// Starts tracing. The recorder sees all spans of a test if the test has a single thread.
    #[must_use]
    pub fn start() -> Self {
        ask_each_thread();
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let guard = registry().with(super::layer(&provider)).set_default();
        Self { exporter, _provider: provider, _guard: guard }
    }

    /// The finished spans, in the order of their end.
    ///
    /// # Panics
    /// Panics if the exporter is broken.
    #[must_use]
    #[expect(clippy::expect_used, reason = "used only in tests")]
    pub fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().expect("no thread panicked with the lock")
    }
}

/// Returns an attribute as text. The text is empty if the attribute is missing.
#[must_use]
pub fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == name);
    found.map(|pair| pair.value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_sites_stay_enabled_after_other_threads() {
        let place = || drop(crate::span!("here"));
        let recorder = Recorder::start();
        std::thread::spawn(place).join().expect("the thread does not panic");
        place();
        let [here] = recorder.ended().try_into().expect("one span");
        assert_eq!(here.name, "here");
    }
}
