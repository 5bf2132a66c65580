//! Follows the leader's watches as a standby. Makes no vendor calls.
//!
//! Load balancers are not followed. The reason is in `snapshot::feed`.

mod protocol;

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Instance, Priority, RequestContext, Route, WatchInstancesRequest, WatchRoutesRequest,
        instance_service_client::InstanceServiceClient, route_service_client::RouteServiceClient,
    },
};
use tonic::Streaming;

use self::protocol::{Event, Follower, Message, Violation};
use super::{
    Work,
    peer::{self, Peer},
};
use crate::{
    driver::{Driver, Item},
    leadership::STANDBY,
    rpc::Rpc,
    snapshot::Snapshot,
};

/// The delay before a broken watch is opened again. The delay may be long, because standbys do not need the data urgently.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of consecutive identical errors after which a warning is logged. A change of leaders causes fewer errors.
const LASTING: u32 = 30;
/// Time without a message after which a watch counts as broken. The leader sends a message at least every 30 s.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(90);
/// The CIDRs that overlap all routes, so that the watch includes the routes of all clusters.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Peer(#[from] peer::Error),
    #[error("cannot connect to the leader")]
    Open(#[from] adapter_client::OpenError),
    #[error(transparent)]
    Refused(#[from] AdapterError),
    #[error("the leader violated the watch protocol: {0}")]
    Violation(#[from] Violation),
    #[error("the watch ended")]
    Ended,
    #[error("the leader sent no message for {} s", MESSAGE_TIMEOUT.as_secs())]
    Silent,
}

/// The last error, and the number of its consecutive occurrences.
#[derive(Debug, Default)]
struct Trouble {
    last: String,
    times: u32,
}

impl Trouble {
    /// Returns whether to log a warning. A refusal of this replica is logged once. Persistent errors, such as an untrusted certificate, are
    /// also logged.
    fn should_warn(&mut self, error: &Error) -> bool {
        let text = error.to_string();
        self.times = if text == self.last { self.times.saturating_add(1) } else { 1 };
        self.last = text;
        let refused = matches!(error, Error::Peer(peer::Error::Unsafe(_)))
            || matches!(error, Error::Refused(why) if matches!(why.reason, Reason::CallerUnauthenticated | Reason::CallerForbidden));
        self.times == if refused { 1 } else { LASTING }
    }
}

/// Never ends; the caller drops the future when the leader changes.
pub(super) async fn follow<D: Driver>(peer: &Peer, leader: &str, work: &Work<D>) {
    let about = work.driver.describe();
    let instances = async {
        let mut trouble = Trouble::default();
        while about.can("instances") {
            let ended = instances(peer, leader, work).await;
            rest(leader, Instance::COLLECTION, ended, &mut trouble).await;
        }
    };
    let routes = async {
        let mut trouble = Trouble::default();
        while about.can("routes") {
            let ended = routes(peer, leader, work).await;
            rest(leader, Route::COLLECTION, ended, &mut trouble).await;
        }
    };
    tokio::join!(instances, routes);
}

async fn instances<D: Driver>(peer: &Peer, leader: &str, work: &Work<D>) -> Result<(), Error> {
    let mut client = InstanceServiceClient::new(peer.connection(leader)?.open()?);
    let request = WatchInstancesRequest { context: Some(context(&work.rpc)), ..Default::default() };
    let stream = client.watch_instances(request).await.map_err(AdapterError::from)?;
    pump(stream.into_inner(), &work.snapshots.instances, work).await
}

async fn routes<D: Driver>(peer: &Peer, leader: &str, work: &Work<D>) -> Result<(), Error> {
    let mut client = RouteServiceClient::new(peer.connection(leader)?.open()?);
    let cluster_cidrs = EVERYWHERE.map(str::to_owned).to_vec();
    let request =
        WatchRoutesRequest { context: Some(context(&work.rpc)), cluster_cidrs, ..Default::default() };
    let stream = client.watch_routes(request).await.map_err(AdapterError::from)?;
    pump(stream.into_inner(), &work.snapshots.routes, work).await
}

/// Follows a watch until it ends. The end is always an error.
async fn pump<T: Item, M: Message<T>, D: Driver>(
    mut stream: Streaming<M>,
    snapshot: &Snapshot<T>,
    work: &Work<D>,
) -> Result<(), Error> {
    let mut follower = Follower::default();
    loop {
        let message = tokio::time::timeout(MESSAGE_TIMEOUT, stream.message()).await;
        let message = message.map_err(|_elapsed| Error::Silent)?.map_err(AdapterError::from)?;
        let Some(event) = message.ok_or(Error::Ended)?.event() else { continue };
        match event {
            Event::Reset(scope) => {
                work.belong_to(scope);
                follower.reset();
            }
            Event::Items(items) => follower.items(items)?,
            Event::Synced { count, checksum, observed } => {
                snapshot.replace_from(follower.synced(count, checksum)?, work.rpc.clock.instant(observed));
            }
            Event::Upsert(item) => snapshot.upsert_from(follower.change(item)?),
            Event::Gone(key) => snapshot.remove_from(&follower.change(key)?),
            Event::Bookmark { observed } => {
                snapshot.observed_from(work.rpc.clock.instant(follower.change(observed)?));
            }
        }
    }
}

/// Logs why a watch ended, then waits before the next try. Refusals by a former or future leader are normal.
async fn rest(leader: &str, collection: &'static str, ended: Result<(), Error>, trouble: &mut Trouble) {
    if let Err(error) = ended {
        if trouble.should_warn(&error) {
            tracing::warn!(leader, collection, %error, "Cannot follow the leader: a failover would \
                                                        begin without cached listings");
        } else {
            tracing::debug!(leader, collection, %error, "The watch on the leader ended");
        }
    }
    tokio::time::sleep(RETRY_DELAY).await;
}

fn context(rpc: &Rpc) -> RequestContext {
    RequestContext {
        // The ID of the served cluster. Without one, any ID works, because the followed content is the same for all clusters.
        cluster_id: rpc.access.cluster_id.as_ref().unwrap_or(&rpc.instance_id).to_string(),
        priority: Priority::Background.into(),
        request_id: STANDBY.to_owned(),
        ..RequestContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_logged_once_and_other_errors_when_lasting() {
        let refused = |why: &str| Error::Refused(AdapterError::new(Reason::CallerUnauthenticated, why));
        let mut trouble = Trouble::default();
        assert!(trouble.should_warn(&refused("the token has expired")));
        assert!(!trouble.should_warn(&refused("the token has expired")));
        assert!(trouble.should_warn(&refused("the call has no token")), "a different error is logged");
        let away = || Error::Refused(AdapterError::new(Reason::VendorUnavailable, "unknown issuer"));
        let warned: Vec<u32> = (1..=2 * LASTING).filter(|_| trouble.should_warn(&away())).collect();
        assert_eq!(warned, [LASTING]);
    }
}
