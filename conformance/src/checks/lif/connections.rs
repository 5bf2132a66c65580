//! Connections that end of old age.

use std::{error::Error, iter, time::Duration};

use adapter_client::Target;
use cloud_api_proto::v1alpha1::{RequestContext, WatchStatusResponse};
use tonic::{Code, Status};

use crate::{
    api::{Api, CallError, Role, Watch},
    check::{Stop, Verdict},
    context::Context,
    expect, lane,
    load::Load,
    relay::Relay,
};

/// More than an adapter is busy.
const SLACK: Duration = Duration::from_secs(30);
/// Callers that share the connection.
const CALLERS: usize = 4;
/// Calls of each, before and after.
const CALLS: u64 = 10;
/// An end of the stream would have shown by now.
const GLANCE: Duration = Duration::from_millis(200);

/// write-an-adapter.md, "Settings of the server": a connection is asked to end when it is old. Its client connects anew, calls under way
/// end normally, and a watch goes on for at least half a minute.
///
/// Looks from behind a relay that counts connections, with a client that repeats only what was certainly never carried out.
pub(super) async fn age(cx: &Context) -> Verdict {
    let Some(age) = cx.params().timings.connection_age else {
        return Err(Stop::skipped("timings.connectionAge is not set"));
    };
    let relay = relay(cx).await?;
    let channel = lane::visit_through(&cx.lane().params, relay.address(), Role::ServiceController);
    let channel =
        channel.map_err(|error| Stop::failed("the adapter is reached by a relay", error.to_string()))?;
    let api = cx.over(Role::ServiceController, channel).without_repetition();
    let context = cx.cluster().context();
    let mut watch = api.watch_status(&context).await?;
    expect::some(watch.next(SLACK).await?, "WatchStatus answers at once")?;
    let mut load = Load::default();
    for _ in 0..CALLERS {
        let (api, context) = (api.off_record(), context.clone());
        load.add(move |_| {
            let (api, context) = (api.clone(), context.clone());
            async move { carried_out(&api, &context).await }
        });
    }
    load.more(cx, CALLS).await?;
    let wants = format!("a connection is asked to end within timings.connectionAge, {} s", age.as_secs_f64());
    cx.until(age + SLACK, &wants, || async { Ok((relay.opened() > 1).then_some(())) }).await?;
    goes_on(&mut watch).await?;
    load.more(cx, CALLS).await?;
    load.whole("no call is lost when a connection ends of old age")
}

async fn relay(cx: &Context) -> Result<Relay, Stop> {
    let wants = "the adapter is reached by a relay";
    let endpoint = &cx.lane().params.endpoint;
    let target: Target =
        endpoint.parse().map_err(|error| Stop::failed(wants, format!("{endpoint}: {error}")))?;
    Relay::start(target).await.map_err(|error| Stop::failed(wants, error.to_string()))
}

/// A call, repeated once if it met the end of the connection before it was sent.
async fn carried_out(api: &Api, context: &RequestContext) -> Verdict {
    match api.info(context).await {
        Err(error) if unsent(&error.status) => api.info(context).await?,
        answer => answer?,
    };
    Ok(())
}

/// Whether the server says that it never looked at it, or the client that it never sent it. Source: gRPC, "Transparent Retries".
fn unsent(status: &Status) -> bool {
    let first: Option<&(dyn Error + 'static)> = status.source();
    iter::successors(first, |&cause| cause.source()).any(|cause| {
        let refused = cause.downcast_ref::<h2::Error>().is_some_and(|error| {
            error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
        });
        refused || cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    })
}

/// The watch of the old connection is a call under way.
async fn goes_on(watch: &mut Watch<WatchStatusResponse>) -> Verdict {
    let wants = "a watch goes on when its connection is asked to end";
    match watch.next(GLANCE).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Stop::failed(wants, "the stream ended")),
        // Nothing came, and nothing broke.
        Err(CallError { status, .. }) if status.code() == Code::DeadlineExceeded => Ok(()),
        Err(error) => Err(Stop::failed(wants, error.to_string())),
    }
}
