//! Spans, and how they find their parents: in the same task, in another task, or in another process.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Creates a span that belongs to a trace: `span!("name", field = value, …)`. The span has no parent until [`child`] or [`take_over`] sets
/// one. The fields are those of `tracing`; `otel.name`, `otel.kind` and `otel.status_code` have the same meaning as in
/// `tracing-opentelemetry`.
#[macro_export]
macro_rules! span {
    ($($fields:tt)+) => {
        $crate::traces::tracing_span!(target: $crate::traces::TARGET, parent: None, $($fields)+)
    };
}

/// Makes the span a child of the current span of this task. If this task has no current span, the span begins a trace.
#[must_use]
pub fn child(span: Span) -> Span {
    adopt(&span, Context::current);
    span
}

/// Makes the span a child of the caller's span, which the request headers name. If the headers name no span, the new span begins a trace.
#[must_use]
pub fn take_over(span: Span, headers: &HeaderMap) -> Span {
    adopt(&span, || TraceContextPropagator::new().extract(&Read(headers)));
    span
}

fn adopt(span: &Span, parent: impl FnOnce() -> Context) {
    // Traces are disabled, which is the usual case.
    if span.is_disabled() {
        return;
    }
    // Setting the parent fails only if this crate's layer is not installed. In that case there are no traces.
    span.set_parent(parent()).ok();
}

/// Creates a span that is only useful as a part of another span. If there is no current span, the new span is disabled.
#[must_use]
pub fn part(make: impl FnOnce() -> Span) -> Span {
    if has_parent() { child(make()) } else { Span::none() }
}

fn has_parent() -> bool {
    Context::map_current(TraceContextExt::has_active_span)
}

/// Adds the current span to the headers of a request, as `traceparent` and `tracestate`. Source: W3C Trace Context.
pub fn hand_over(headers: &mut HeaderMap) {
    if has_parent() {
        TraceContextPropagator::new().inject(&mut Written(headers));
    }
}

/// Refers to the span in which a longer operation began. A reference is cheap to clone, and does not keep the span open.
#[derive(Clone, Debug)]
pub struct Origin(SpanContext);

impl Origin {
    /// Refers to this span.
    #[must_use]
    pub fn of(span: &Span) -> Self {
        let context = if span.is_disabled() { Context::new() } else { span.context() };
        Self(context.span().span_context().clone())
    }

    /// Refers to the current span of this task.
    #[must_use]
    pub fn here() -> Self {
        Self(Context::map_current(|current| current.span().span_context().clone()))
    }

    /// Links the current span of this task to the operation that the task waits for. Adds no link if both are in the same trace, because
    /// the tree of spans already shows the relation.
    pub fn link(&self) {
        Context::map_current(|current| {
            let span = current.span();
            if self.0.is_valid() && span.span_context().trace_id() != self.0.trace_id() {
                span.add_link(self.0.clone(), Vec::new());
            }
        });
    }
}

struct Read<'a>(&'a HeaderMap);

impl Extractor for Read<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Written<'a>(&'a mut HeaderMap);

impl Injector for Written<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceId};

    use super::*;
    use crate::traces::testing::Recorder;

    const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_caller_hands_its_trace_over() {
        let recorder = Recorder::start();
        let mut headers = HeaderMap::new();
        hand_over(&mut headers);
        assert!(headers.is_empty(), "no current span");
        child(crate::span!("turn")).in_scope(|| {
            child(crate::span!("call")).in_scope(|| hand_over(&mut headers));
        });
        take_over(crate::span!("serve"), &headers).in_scope(|| ());
        let [call, turn, serve] = recorder.ended().try_into().expect("three spans");
        assert_eq!(turn.parent_span_id, SpanId::INVALID);
        assert_eq!(call.parent_span_id, turn.span_context.span_id());
        assert_eq!(serve.parent_span_id, call.span_context.span_id());
        assert_eq!(serve.span_context.trace_id(), turn.span_context.trace_id());
    }

    #[test]
    fn a_remote_caller_is_the_parent_and_bad_headers_are_ignored() {
        let recorder = Recorder::start();
        for text in [TRACEPARENT, "nonsense"] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_static(text));
            take_over(crate::span!("serve"), &headers).in_scope(|| ());
        }
        let [theirs, ours] = recorder.ended().try_into().expect("two spans");
        let trace = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").expect("good");
        assert_eq!(theirs.span_context.trace_id(), trace);
        assert_ne!(ours.span_context.trace_id(), trace);
        assert_eq!(ours.parent_span_id, SpanId::INVALID);
    }

    #[test]
    fn a_part_needs_a_current_span() {
        let recorder = Recorder::start();
        part(|| crate::span!("write")).in_scope(|| ());
        child(crate::span!("turn")).in_scope(|| part(|| crate::span!("write")).in_scope(|| ()));
        let names: Vec<_> = recorder.ended().iter().map(|span| span.name.to_string()).collect();
        assert_eq!(names, ["write", "turn"]);
    }

    #[test]
    fn work_outlives_its_call_and_waiting_spans_are_linked() {
        let recorder = Recorder::start();
        let mut work = Span::none();
        child(crate::span!("first")).in_scope(|| work = child(crate::span!("work")));
        let origin = Origin::of(&work);
        assert_eq!(recorder.ended().len(), 1, "the work outlives the call");
        child(crate::span!("second")).in_scope(|| origin.link());
        drop(work);
        let [first, second, work] = recorder.ended().try_into().expect("three spans");
        assert_eq!(work.parent_span_id, first.span_context.span_id());
        let links: Vec<_> = second.links.iter().map(|link| link.span_context.span_id()).collect();
        assert_eq!(links, [work.span_context.span_id()]);
    }

    #[test]
    fn spans_of_others_and_without_a_recorder_cost_nothing() {
        let recorder = Recorder::start();
        tracing::info_span!("a library's").in_scope(|| ());
        assert!(recorder.ended().is_empty());
        drop(recorder);
        let span = child(crate::span!("turn"));
        assert!(span.is_disabled());
        assert!(!Origin::of(&span).0.is_valid());
    }
}
