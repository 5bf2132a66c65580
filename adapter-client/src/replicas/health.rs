//! Follows discovery and watches the health of each replica.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep},
};
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tracing::{debug, warn};

use super::{Found, Health, Table};
use crate::{
    channel_security::Secured,
    connector::{Address, Line},
    failure::unanswered,
};

/// The service whose health shows which replica leads. Any client may read this health.
const SERVICE: &str = "cloudadapter.v1alpha1.AdapterService";
/// First pause before the health of a replica is requested again. The pause doubles after each failure, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause. A replica that is back is used within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Updates `table` from `found`. Never returns; the caller drops it to stop.
pub(crate) async fn supervise(mut found: watch::Receiver<Found>, secured: Secured, table: Table) {
    let mut watchers = JoinSet::new();
    let mut known: BTreeMap<Address, AbortHandle> = BTreeMap::new();
    loop {
        let Found { addresses, trouble } = found.borrow_and_update().clone();
        table.trouble(trouble);
        known.retain(|address, watcher| {
            let stays = addresses.contains(address);
            if !stays {
                debug!(replica = %address, "Replica of the cloud adapter removed");
                watcher.abort();
                table.remove(address);
            }
            stays
        });
        for address in addresses {
            if known.contains_key(&address) {
                continue;
            }
            debug!(replica = %address, "Replica of the cloud adapter added");
            match Line::new(address.clone(), &secured) {
                Ok(line) => {
                    table.insert(address.clone(), line.clone());
                    let watcher = watchers.spawn(follow(address.clone(), line, table.clone()));
                    known.insert(address, watcher);
                }
                Err(error) => {
                    warn!(replica = %address, %error, "Cannot connect to this replica of the cloud adapter");
                }
            }
        }
        if found.changed().await.is_err() {
            // Discovery has ended, so the set of replicas no longer changes.
            std::future::pending::<()>().await;
        }
        // Removes the results of tasks that were aborted.
        while watchers.try_join_next().is_some() {}
    }
}

/// Reports the health of one replica as long as the replica is known.
async fn follow(address: Address, line: Line, table: Table) {
    let mut pause = FIRST_PAUSE;
    loop {
        let ended = listen(&address, &line, &table).await;
        if ended.lasted > FIRST_PAUSE {
            // Servers close connections after some time, and thereby end the watches. The next watch shows whether the replica is
            // reachable.
            pause = FIRST_PAUSE;
            continue;
        }
        debug!(replica = %address, health = %ended.health, "The health watch on this replica ended; opening a new watch");
        table.report(&address, ended.health);
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

struct Ended {
    /// The health to report, unless the next watch reports a different one.
    health: Health,
    /// Time since the first report. Zero if there was no report.
    lasted: Duration,
}

async fn listen(address: &Address, line: &Line, table: &Table) -> Ended {
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut stream = match HealthClient::new(line.clone()).watch(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return Ended { health: health_of_error(&status), lasted: Duration::ZERO },
    };
    let mut begun = None;
    let health = loop {
        match stream.message().await {
            Ok(Some(answer)) => {
                begun.get_or_insert_with(Instant::now);
                table.report(address, reported_health(answer.status()));
            }
            Ok(None) => break Health::Down("ended the health watch".to_owned()),
            Err(status) => break health_of_error(&status),
        }
    };
    Ended { health, lasted: begun.map_or(Duration::ZERO, |begun| begun.elapsed()) }
}

fn reported_health(status: ServingStatus) -> Health {
    match status {
        // The table replaces 0 with the number of this state.
        ServingStatus::Serving => Health::Serving(0),
        ServingStatus::NotServing | ServingStatus::Unknown => Health::Standby,
        ServingStatus::ServiceUnknown => Health::Silent,
    }
}

/// Returns the health of a replica whose watch failed. An adapter without the health service is still called, because its answer shows
/// whether it serves and admits this client.
fn health_of_error(status: &Status) -> Health {
    match unanswered(status) {
        Some(why) => Health::Down(why),
        None if status.code() == Code::Unavailable => Health::Down(status.message().to_owned()),
        None => Health::Silent,
    }
}

#[cfg(test)]
mod tests;
