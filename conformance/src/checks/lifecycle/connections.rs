//! Verifies connections that the adapter closes because of their age.

use std::{error::Error, iter, time::Duration};

use adapter_client::Target;
use cloud_api_proto::v1alpha1::{RequestContext, WatchStatusResponse};
use tonic::{Code, Status};

use crate::{checks::prelude::*, lane, relay::Relay};

/// Time tolerance for a busy adapter.
const TOLERANCE: Duration = Duration::from_secs(30);
const CALLERS: usize = 4;
/// The number of calls that each caller makes, both before and after the connection is replaced.
const CALLS: u64 = 10;
/// The time within which the check would notice the end of a stream.
const IDLE_PROBE: Duration = Duration::from_millis(200);

/// reference/driver.md, "Server settings": the adapter asks an old connection to end. The client then opens a new connection. Calls in
/// flight complete, and a watch continues for at least half a minute.
///
/// The check connects through a relay that counts connections. The client repeats a call only if the call was certainly not executed.
pub(super) async fn age(cx: &Context) -> Verdict {
    let Some(age) = cx.params().timings.connection_age else {
        return Err(Stop::skipped("timings.connectionAge is not set"));
    };
    let relay = relay(cx).await?;
    let channel = lane::visit_through(&cx.lane().params, relay.address(), Role::ServiceController);
    let channel = channel
        .map_err(|error| Stop::failed("the adapter can be reached through a relay", error.to_string()))?;
    let api = cx.over(Role::ServiceController, channel).without_repetition();
    let context = cx.cluster().context();
    let mut watch = api.watch_status(&context).await?;
    expect::some(watch.next(TOLERANCE).await?, "WatchStatus answers at once")?;
    let mut load = Load::default();
    for _ in 0..CALLERS {
        let (api, context) = (api.off_record(), context.clone());
        load.add(move |_| {
            let (api, context) = (api.clone(), context.clone());
            async move { carried_out(&api, &context).await }
        });
    }
    load.more(cx, CALLS).await?;
    let wants =
        format!("the adapter asks a connection to end within timings.connectionAge, {} s", age.as_secs_f64());
    cx.until(age + TOLERANCE, &wants, || async { Ok((relay.opened() > 1).then_some(())) }).await?;
    goes_on(&mut watch).await?;
    load.more(cx, CALLS).await?;
    load.whole("no call is lost when a connection ends because of its age")
}

async fn relay(cx: &Context) -> Result<Relay, Stop> {
    let wants = "the adapter can be reached through a relay";
    let endpoint = &cx.lane().params.endpoint;
    let target: Target =
        endpoint.parse().map_err(|error| Stop::failed(wants, format!("{endpoint}: {error}")))?;
    Relay::start(target).await.map_err(|error| Stop::failed(wants, error.to_string()))
}

/// Makes a call. Repeats the call once if the connection ended before the call was sent.
async fn carried_out(api: &Api, context: &RequestContext) -> Verdict {
    match api.info(context).await {
        Err(error) if unsent(&error.status) => api.info(context).await?,
        answer => answer?,
    };
    Ok(())
}

/// Returns whether the call was certainly not executed, according to the server or the client. Source: gRPC, "Transparent Retries".
fn unsent(status: &Status) -> bool {
    let first: Option<&(dyn Error + 'static)> = status.source();
    iter::successors(first, |&cause| cause.source()).any(|cause| {
        let refused = cause.downcast_ref::<h2::Error>().is_some_and(|error| {
            error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
        });
        refused || cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    })
}

/// Asserts that the watch on the old connection continues like a call in flight.
async fn goes_on(watch: &mut Watch<WatchStatusResponse>) -> Verdict {
    let wants = "a watch continues after its connection was asked to end";
    match watch.next(IDLE_PROBE).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Stop::failed(wants, "the stream ended")),
        // No event arrived, and the stream is still open.
        Err(CallError { status, .. }) if status.code() == Code::DeadlineExceeded => Ok(()),
        Err(error) => Err(Stop::failed(wants, error.to_string())),
    }
}
