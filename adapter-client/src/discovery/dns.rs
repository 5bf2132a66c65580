//! All addresses of a name.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::Found;
use crate::{connector::Address, replicas::Table, target::HostPort};

/// A name is looked up this often.
const PERIOD: Duration = Duration::from_secs(30);
/// A broken connection asks for a look at once, but never more often than this.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// A resolver that hangs has failed.
const LIMIT: Duration = Duration::from_secs(10);

/// Finds the addresses of a name.
pub trait Resolve: std::fmt::Debug + Send + Sync {
    /// All IPv4 and IPv6 addresses of `host`, in any order.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// This machine's own resolver, which honours a pod's DNS configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// Keeps `found` in step with the name. Never ends; drop it to stop.
pub(crate) async fn follow(
    name: HostPort,
    resolver: Arc<dyn Resolve>,
    found: watch::Sender<Found>,
    table: Table,
) {
    loop {
        let looked = timeout(LIMIT, resolver.resolve(&name.host)).await;
        let looked = looked.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        found.send_if_modified(|found| update(found, &name, looked));
        sleep(SHORTEST_PERIOD).await;
        // Whether a connection broke or time is up, the next thing is to look again.
        let _broken = timeout(PERIOD.saturating_sub(SHORTEST_PERIOD), table.lost()).await.is_ok();
    }
}

/// Takes a look's result in; returns whether that changed anything. A look that fails takes no address away.
fn update(found: &mut Found, name: &HostPort, looked: io::Result<Vec<IpAddr>>) -> bool {
    let addresses = looked.and_then(|addresses| {
        if addresses.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(addresses) }
    });
    let new = match addresses {
        Ok(addresses) => {
            let tcp = |ip: IpAddr| Address::Tcp(HostPort { host: ip.to_string(), port: name.port });
            Found { addresses: addresses.into_iter().map(tcp).collect(), trouble: None }
        }
        Err(error) => {
            let trouble = Some(format!("cannot resolve {}: {error}", name.host));
            Found { addresses: found.addresses.clone(), trouble }
        }
    };
    let changed = *found != new;
    *found = new;
    changed
}
