//! Follows which replicas there are, and asks each of them how it is.

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

use super::{Health, Table};
use crate::{
    connector::{Address, Line},
    discovery::Found,
    failure::unanswered,
    security::Secured,
};

/// The service whose health tells who leads: all clients may call it. Source: contract, section 1.
const SERVICE: &str = "cloudadapter.v1alpha1.AdapterService";
/// The pause before a replica is asked again, doubled each time it is asked in vain …
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … up to this: a replica that is back takes part again within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Keeps `table` in step with what is `found`. Never ends; drop it to stop.
pub(crate) async fn supervise(mut found: watch::Receiver<Found>, secured: Secured, table: Table) {
    let mut watchers = JoinSet::new();
    let mut known: BTreeMap<Address, AbortHandle> = BTreeMap::new();
    loop {
        let Found { addresses, trouble } = found.borrow_and_update().clone();
        table.trouble(trouble);
        known.retain(|address, watcher| {
            let stays = addresses.contains(address);
            if !stays {
                debug!(replica = %address, "Replica is gone");
                watcher.abort();
                table.remove(address);
            }
            stays
        });
        for address in addresses {
            if known.contains_key(&address) {
                continue;
            }
            debug!(replica = %address, "Replica is there");
            match Line::new(address.clone(), &secured) {
                Ok(line) => {
                    table.insert(address.clone(), line.clone());
                    let watcher = watchers.spawn(follow(address.clone(), line, table.clone()));
                    known.insert(address, watcher);
                }
                Err(error) => warn!(replica = %address, %error, "Nothing can be sent there"),
            }
        }
        if found.changed().await.is_err() {
            // Nobody looks any more: these are all that there will be.
            std::future::pending::<()>().await;
        }
        // Those that were told to end.
        while watchers.try_join_next().is_some() {}
    }
}

/// Reports how one replica is, for as long as it is known.
async fn follow(address: Address, line: Line, table: Table) {
    let mut pause = FIRST_PAUSE;
    loop {
        let ended = listen(&address, &line, &table).await;
        if ended.lasted > FIRST_PAUSE {
            // Servers end each connection in time, and its watches with it. The next watch tells whether the replica is there.
            pause = FIRST_PAUSE;
            continue;
        }
        debug!(replica = %address, health = %ended.health, "Replica is asked for its health again");
        table.report(&address, ended.health);
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// The end of a watch.
struct Ended {
    /// How the replica is then, if another watch does not tell otherwise.
    health: Health,
    /// From the first that was told. Zero: nothing was.
    lasted: Duration,
}

/// Watches the health of a replica and reports what is told.
async fn listen(address: &Address, line: &Line, table: &Table) -> Ended {
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut stream = match HealthClient::new(line.clone()).watch(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return Ended { health: untold_health(&status), lasted: Duration::ZERO },
    };
    let mut begun = None;
    let health = loop {
        match stream.message().await {
            Ok(Some(told)) => {
                begun.get_or_insert_with(Instant::now);
                table.report(address, told_health(told.status()));
            }
            Ok(None) => break Health::Down("ended the watch of its health".to_owned()),
            Err(status) => break untold_health(&status),
        }
    };
    Ended { health, lasted: begun.map_or(Duration::ZERO, |begun| begun.elapsed()) }
}

fn told_health(status: ServingStatus) -> Health {
    match status {
        // The number is given by the table.
        ServingStatus::Serving => Health::Serving(0),
        ServingStatus::NotServing | ServingStatus::Unknown => Health::Standby,
        ServingStatus::ServiceUnknown => Health::Silent,
    }
}

/// An adapter that answers without telling its health is asked: it says itself whether it serves, or that it does not let us in.
fn untold_health(status: &Status) -> Health {
    match unanswered(status) {
        Some(why) => Health::Down(why),
        None if status.code() == Code::Unavailable => Health::Down(status.message().to_owned()),
        None => Health::Silent,
    }
}

#[cfg(test)]
mod tests;
