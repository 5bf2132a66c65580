//! How a replica that stands by follows the one that leads: by its watches. Makes no vendor call.
//!
//! Load balancers are not followed: see `snapshot::feed`.

mod protocol;

use std::time::Duration;

use adapter_client::{Connection, Security, Target};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Instance, Priority, RequestContext, Route, WatchInstancesRequest, WatchRoutesRequest,
        instance_service_client::InstanceServiceClient, route_service_client::RouteServiceClient,
    },
};
use tonic::Streaming;

use self::protocol::{Event, Follower, Message, Violation};
use super::Work;
use crate::{
    driver::{Driver, Item},
    process::WrongUsage,
    rpc::Rpc,
    snapshot::Snapshot,
};

/// The request ID of what those ask who stand by.
pub(crate) const STANDBY: &str = "standby";
/// A watch that broke is opened again after this time. The one who leads may be gone, and nothing here is urgent.
const AGAIN: Duration = Duration::from_secs(1);
/// Tries that end in the same way until that is told: a change of leaders takes fewer.
const LASTING: u32 = 30;
/// Signs of life come at least every 30 s. Source: contract, section 3.
const SILENCE: Duration = Duration::from_secs(90);
/// Every route overlaps these, so that the watch tells all of them and not only one cluster's.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// How to reach other replicas.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    security: Security,
}

/// Why a watch of the leader ended.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("its address {address:?} is none")]
    Address { address: String, source: adapter_client::TargetError },
    #[error("it cannot be reached: {0}")]
    Unsafe(String),
    #[error("it cannot be reached")]
    Open(#[from] adapter_client::OpenError),
    #[error(transparent)]
    Refused(#[from] AdapterError),
    #[error("it broke the protocol: {0}")]
    Violation(#[from] Violation),
    #[error("the watch ended")]
    Ended,
    #[error("it gave no sign of life for {} s", SILENCE.as_secs())]
    Silent,
}

/// Why the watch ended last, and how often in a row.
#[derive(Debug, Default)]
struct Trouble {
    last: String,
    times: u32,
}

impl Trouble {
    /// Whether somebody must look at it: once for each refusal of this replica, and for what lasts, such as a certificate that is
    /// not trusted.
    fn is_news(&mut self, error: &Error) -> bool {
        let text = error.to_string();
        self.times = if text == self.last { self.times.saturating_add(1) } else { 1 };
        self.last = text;
        let refused = matches!(error, Error::Unsafe(_))
            || matches!(error, Error::Refused(why) if matches!(why.reason, Reason::CallerUnauthenticated | Reason::CallerForbidden));
        self.times == if refused { 1 } else { LASTING }
    }
}

impl Peer {
    /// Judges how connections to other replicas are made safe: as one to our own address `identity`.
    ///
    /// # Errors
    /// Everything that is wrong, as [`WrongUsage`].
    pub(crate) fn new(security: Security, identity: &str) -> anyhow::Result<Self> {
        let this = Self { security };
        this.connection(identity).map_err(|error| WrongUsage(error.to_string()))?;
        Ok(this)
    }

    /// Keeps the snapshots as the leader's watches tell. Never ends: whoever calls it knows when somebody else leads.
    pub(super) async fn follow<D: Driver>(&self, leader: &str, work: &Work<D>) {
        let about = work.driver.describe();
        let instances = async {
            let mut trouble = Trouble::default();
            while about.can("instances") {
                let ended = self.instances(leader, work).await;
                rest((leader, Instance::COLLECTION), ended, &mut trouble).await;
            }
        };
        let routes = async {
            let mut trouble = Trouble::default();
            while about.can("routes") {
                let ended = self.routes(leader, work).await;
                rest((leader, Route::COLLECTION), ended, &mut trouble).await;
            }
        };
        tokio::join!(instances, routes);
    }

    async fn instances<D: Driver>(&self, leader: &str, work: &Work<D>) -> Result<(), Error> {
        let mut client = InstanceServiceClient::new(self.connection(leader)?.open()?);
        let request = WatchInstancesRequest { context: Some(context(&work.rpc)), ..Default::default() };
        let stream = client.watch_instances(request).await.map_err(AdapterError::from)?;
        pump(stream.into_inner(), &work.snapshots.instances, work).await
    }

    async fn routes<D: Driver>(&self, leader: &str, work: &Work<D>) -> Result<(), Error> {
        let mut client = RouteServiceClient::new(self.connection(leader)?.open()?);
        let cluster_cidrs = EVERYWHERE.map(str::to_owned).to_vec();
        let request =
            WatchRoutesRequest { context: Some(context(&work.rpc)), cluster_cidrs, ..Default::default() };
        let stream = client.watch_routes(request).await.map_err(AdapterError::from)?;
        pump(stream.into_inner(), &work.snapshots.routes, work).await
    }

    /// The way to the replica that holds the Lease by this identity: `<instance id>@<advertised address>`.
    fn connection(&self, holder: &str) -> Result<Connection, Error> {
        let address = holder.rsplit_once('@').map_or("", |(_id, address)| address);
        let scheme = if self.security.ca.is_some() { "https" } else { "http" };
        let target: Target = format!("{scheme}://{address}")
            .parse()
            .map_err(|source| Error::Address { address: address.to_owned(), source })?;
        Connection::new(target, &self.security).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Error::Unsafe(faults.join("; "))
        })
    }
}

/// Follows one watch until it ends. Never with success.
async fn pump<T: Item, M: Message<T>, D: Driver>(
    mut stream: Streaming<M>,
    snapshot: &Snapshot<T>,
    work: &Work<D>,
) -> Result<(), Error> {
    let mut follower = Follower::default();
    loop {
        let message = tokio::time::timeout(SILENCE, stream.message()).await;
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

/// Until the next try. A leader that leads no more, or not yet, is no news.
async fn rest((leader, collection): (&str, &'static str), ended: Result<(), Error>, trouble: &mut Trouble) {
    if let Err(error) = ended {
        if trouble.is_news(&error) {
            tracing::warn!(leader, collection, %error, "The leader cannot be followed: a take-over would begin with nothing known");
        } else {
            tracing::debug!(leader, collection, %error, "The leader's watch ended");
        }
    }
    tokio::time::sleep(AGAIN).await;
}

fn context(rpc: &Rpc) -> RequestContext {
    RequestContext {
        // The one that is served. Where any is, any name does: what is followed is the same for all.
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
    fn a_refusal_is_told_once_and_other_trouble_when_it_lasts() {
        let refused = |why: &str| Error::Refused(AdapterError::new(Reason::CallerUnauthenticated, why));
        let mut trouble = Trouble::default();
        assert!(trouble.is_news(&refused("the token has expired")));
        assert!(!trouble.is_news(&refused("the token has expired")));
        assert!(trouble.is_news(&refused("the call carries no token")), "a change is news");
        let away = || Error::Refused(AdapterError::new(Reason::VendorUnavailable, "unknown issuer"));
        let told: Vec<u32> = (1..=2 * LASTING).filter(|_| trouble.is_news(&away())).collect();
        assert_eq!(told, [LASTING]);
    }
}
