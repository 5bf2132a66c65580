//! Tests of the traces of vendor calls.

use telemetry::traces::testing::{Recorder, attribute};
use tracing::Instrument as _;

use super::*;

#[tokio::test(start_paused = true)]
async fn call_span_has_its_parent_wait_and_resend_count() {
    let recorder = Recorder::start();
    let (fake, vendor) = vendor(&limits(1.0, 1));
    let session = session(&vendor).about("Service shop/web");
    fake.answers([(429, Some(7)), (200, None), (409, None)]);
    let work = async {
        read(&session, "/first").await.expect("the call is sent once more");
        read(&session, "/second").await.expect_err("busy");
    };
    work.instrument(telemetry::traces::child(telemetry::traces::span!("work"))).await;
    let [first, second, work] = recorder.ended().try_into().expect("three spans");
    for (name, call) in [("first", &first), ("second", &second)] {
        assert_eq!(call.name, "ListInstances", "{name}");
        assert_eq!(call.parent_span_id, work.span_context.span_id(), "{name}");
        assert_eq!(attribute(call, "cloud.object"), "Service shop/web", "{name}");
        assert_eq!(attribute(call, "budget.class"), "interactive", "{name}");
    }
    let reported = |span, names: [&str; 3]| names.map(|name| attribute(span, name));
    let names = ["http.response.status_code", "http.request.resend_count", "error.type"];
    assert_eq!(reported(&first, names), ["200", "1", ""]);
    assert_eq!(reported(&second, names), ["409", "", "OPERATION_CONFLICT"]);
    assert_eq!(attribute(&second, "cloud.request_id"), "req-7");
    let waited: f64 = attribute(&second, "budget.waited_seconds").parse().expect("a number");
    assert!(waited > 0.9, "one token per second: {waited}");
    assert_eq!(attribute(&first, "cloud.waits_for"), "", "the call is sent at once");
    let waits = "waits for the call budget of bucket compute: 0 calls ahead at ";
    assert!(attribute(&second, "cloud.waits_for").starts_with(waits), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn unsent_call_is_traced_as_refused() {
    let recorder = Recorder::start();
    let (fake, vendor) = vendor(&limits(1.0, 1));
    fake.answers([(409, None)]);
    let session = session(&vendor);
    read(&session, "/").await.expect_err("busy");
    vendor.halt();
    read(&session, "/").await.expect_err("another replica leads");
    let reported: Vec<_> = recorder.ended().iter().map(|span| attribute(span, "error.type")).collect();
    assert_eq!(reported, ["OPERATION_CONFLICT", "NOT_LEADER"]);
    assert_eq!(attribute(&recorder.ended()[1], "budget.waited_seconds"), "", "the call was not sent");
}
