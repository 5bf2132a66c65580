//! For tests: finished spans in memory, and a collector that processes send to.

mod collector;

use std::sync::OnceLock;

pub use opentelemetry_sdk::trace::SpanData;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::{
    filter::dynamic_filter_fn, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

pub use self::collector::{Collector, Received};

/// From now on each thread's own subscriber is asked at each place that emits, each time.
///
/// Tracing remembers a place's answer for all threads. The first to come by is often another test's thread, which has no subscriber,
/// and while there is only one subscriber nobody else is asked: the place stays silent for everybody. Two that never make up their
/// mind, and never go, prevent both. Source: `tracing_core::callsite`, `Dispatchers::rebuilder`.
pub fn ask_each_thread() {
    static UNDECIDED: OnceLock<[Dispatch; 2]> = OnceLock::new();
    UNDECIDED.get_or_init(|| [(); 2].map(|()| registry().with(dynamic_filter_fn(|_, _| false)).into()));
}

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
        ask_each_thread();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_a_thread_without_a_subscriber_reaches_first_is_recorded() {
        let place = || drop(crate::span!("here"));
        let recorder = Recorder::start();
        std::thread::spawn(place).join().expect("it does not panic");
        place();
        let [here] = recorder.ended().try_into().expect("one span");
        assert_eq!(here.name, "here");
    }
}
