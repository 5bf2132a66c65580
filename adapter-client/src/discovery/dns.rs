//! Discovery by DNS.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    connector::Address,
    replicas::{Found, Table},
    target::HostPort,
};

const PERIOD: Duration = Duration::from_secs(30);
/// Minimum interval between lookups, because each broken connection may trigger a lookup.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// Timeout of a lookup.
const LIMIT: Duration = Duration::from_secs(10);

/// Resolves host names.
pub trait Resolve: std::fmt::Debug + Send + Sync {
    /// Returns all IPv4 and IPv6 addresses of `host`, in any order.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system resolver, which honours a pod's DNS configuration.
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

/// Updates `found` from DNS. Never returns; the caller drops it to stop.
pub(crate) async fn follow(
    name: HostPort,
    resolver: Arc<dyn Resolve>,
    found: watch::Sender<Found>,
    table: Table,
) {
    loop {
        let result = timeout(LIMIT, resolver.resolve(&name.host)).await;
        let result = result.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        found.send_if_modified(|found| update(found, &name, result));
        sleep(SHORTEST_PERIOD).await;
        // The next lookup begins after a broken connection or at the end of the interval.
        let _broken = timeout(PERIOD.saturating_sub(SHORTEST_PERIOD), table.lost()).await.is_ok();
    }
}

/// Applies the result of a lookup and returns whether anything changed. A failed lookup removes no address.
fn update(found: &mut Found, name: &HostPort, result: io::Result<Vec<IpAddr>>) -> bool {
    let addresses = result.and_then(|addresses| {
        if addresses.is_empty() { Err(io::Error::other("the name has no addresses")) } else { Ok(addresses) }
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
