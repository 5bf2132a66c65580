//! Tests of the client with real gRPC servers on loopback.

#![expect(clippy::unwrap_used, reason = "clippy recognises tests, but not their helpers")]

mod certificates;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod picking;
mod relay;
mod replica;
mod rotation;
mod single;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use adapter_client::{AdapterChannel, ChannelSecurity, Connection};
use cloud_api_proto::v1alpha1::{GetInfoRequest, adapter_service_client::AdapterServiceClient};
use tokio::{task::JoinSet, time::Instant};
use tonic::{Request, Status};

fn open(target: &str, security: &ChannelSecurity) -> AdapterChannel {
    Connection::new(target.parse().unwrap(), security).unwrap().open().unwrap()
}

/// Returns the name of the replica that answers, waiting up to five seconds.
async fn ask(channel: &AdapterChannel) -> Result<String, Status> {
    ask_within(channel, Duration::from_secs(5)).await
}

async fn ask_within(channel: &AdapterChannel, limit: Duration) -> Result<String, Status> {
    let mut request = Request::new(GetInfoRequest::default());
    request.set_timeout(limit);
    let answer = AdapterServiceClient::new(channel.clone()).get_info(request).await?;
    Ok(answer.into_inner().adapter_name)
}

/// Four tasks that make calls without a pause.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU32>,
    callers: JoinSet<Result<(), Status>>,
}

impl Load {
    fn start(channel: &AdapterChannel) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (channel, stop, answered) = (channel.clone(), Arc::clone(&stop), Arc::clone(&answered));
            callers.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    ask(&channel).await?;
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
        }
        Self { stop, answered, callers }
    }

    /// Waits until this number of further calls was answered.
    async fn answers(&self, more: u32) {
        let enough = self.answered.load(Ordering::SeqCst) + more;
        until("calls are answered", || self.answered.load(Ordering::SeqCst) >= enough).await;
    }

    /// Asserts that no call failed.
    async fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}

/// Waits until `condition` holds, up to ten seconds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
