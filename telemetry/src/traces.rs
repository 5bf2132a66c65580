//! OpenTelemetry traces of controllers and adapters, from a changed object to the call to the cloud that results from the change.
//!
//! Traces are enabled by the `OTEL_*` variables that every OpenTelemetry SDK reads. Without an endpoint, there is no exporter, no thread
//! and no span. Traces are independent of the log. Spans have a separate target, and the filters of logs and traces do not affect each
//! other.
//!
//! The modules in reading order:
//!
//! - [`Traces`]: the traces of a process, from its start to its end.
//! - `settings`: parses and validates the variables.
//! - `exporter`: sends spans, and logs failures once.
//! - [`child`], [`part`], [`hand_over`], [`take_over`], [`Origin`]: create spans, and find their parents across tasks and processes.
//!
//! Unlike in `tracing`, a span does not keep its parent open, because work may continue after the call that began it.

mod exporter;
mod settings;
mod span;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::time::Duration;

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{
    Resource,
    trace::{SdkTracer, SdkTracerProvider},
};
use tracing::{Metadata, info, warn};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

#[doc(hidden)]
pub use tracing::trace_span as tracing_span;

pub use self::span::{Origin, child, hand_over, part, take_over};
use self::{exporter::LoggingExporter, settings::Setting};
pub use crate::span;

/// The target of the spans of traces. Only these spans use it; log lines of this crate have another target.
pub const TARGET: &str = "trace_span";
/// Directive for log filters that hides the spans of traces from the context of log lines.
pub(crate) const NOT_IN_THE_LOG: &str = "trace_span=off";

/// Time limit for sending the remaining spans at the end of the process.
const LAST: Duration = Duration::from_secs(1);

/// The traces of a process.
#[derive(Debug)]
pub struct Traces(State);

#[derive(Debug)]
enum State {
    Off,
    /// Traces are requested but cannot be sent. The text gives the reason.
    Wrong(String),
    On {
        provider: SdkTracerProvider,
        endpoint: String,
    },
}

impl Traces {
    /// Configures traces from the environment. `service`: the service name, unless a variable sets one.
    ///
    /// Starts the thread that sends spans, which connects only when there is a span. Does not fail. If a variable is invalid, traces are
    /// disabled and [`Self::log_setting`] logs the errors.
    pub(crate) fn from_environment(service: &str) -> Self {
        Self(match settings::read(&settings::environment) {
            Ok(Setting::Off) => State::Off,
            Ok(Setting::On { endpoint, names_service }) => {
                let resource = Resource::builder()
                    .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
                let named =
                    if names_service { resource } else { resource.with_service_name(service.to_owned()) };
                match SpanExporter::builder().with_http().build() {
                    Ok(exporter) => State::On { provider: provider(exporter, named.build()), endpoint },
                    Err(error) => State::Wrong(error.to_string()),
                }
            }
            Err(faults) => State::Wrong(faults.join("; ")),
        })
    }

    /// Returns the layer to add to the subscriber, or `None` if traces are disabled.
    pub(crate) fn layer<S>(&self) -> Option<TraceLayer<S>>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync + 'static,
    {
        match &self.0 {
            State::On { provider, .. } => Some(layer(provider)),
            State::Off | State::Wrong(_) => None,
        }
    }

    /// Logs the result of the configuration. The subscriber must be installed.
    pub(crate) fn log_setting(&self) {
        match &self.0 {
            State::Off => (),
            State::Wrong(faults) => warn!(error = faults, "Traces are disabled: invalid OTEL_* variables"),
            State::On { endpoint, .. } => {
                info!(endpoint = shown(endpoint), "Traces are sent to this OTLP endpoint");
            }
        }
    }

    /// Sends the remaining spans within a second. This must be the last call in a process, and must be made outside the runtime.
    pub fn end(self) {
        if let State::On { provider, .. } = self.0
            && let Err(error) = provider.shutdown_with_timeout(LAST)
        {
            tracing::debug!(%error, "Cannot send the last spans of this process");
        }
    }
}

/// The layer that turns spans into traces.
pub(crate) type TraceLayer<S> = Box<dyn Layer<S> + Send + Sync>;

fn provider(exporter: SpanExporter, resource: Resource) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_resource(resource)
        .with_batch_exporter(LoggingExporter::new(exporter))
        .build()
}

fn layer<S>(provider: &SdkTracerProvider) -> TraceLayer<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync + 'static,
{
    let tracer: SdkTracer = provider.tracer(TARGET);
    OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(FilterFn::new(is_ours as fn(&Metadata<'_>) -> bool))
        .boxed()
}

/// Excludes the spans of libraries, such as those of the exporter's own requests.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

/// Removes the user name and password from a URL, for logs.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest.get(..authority).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://{}", rest.get(at + 1..).unwrap_or_default()),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn no_password_stands_in_the_log() {
        for (url, want) in [
            ("http://a:4318", "http://a:4318"),
            ("https://u:p@a.example/v1/traces", "https://a.example/v1/traces"),
            ("https://u:p@ss@a", "https://a"),
            ("http://a/x@y", "http://a/x@y"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(shown(url), want, "{url}");
        }
    }
}
