//! The connection of a standby to the leader. The watches over this connection are in `feed`.

use adapter_client::{ChannelSecurity, Connection, Target};

use crate::wrong_usage::WrongUsage;

#[derive(Clone, Debug)]
pub(crate) struct Peer {
    security: ChannelSecurity,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("invalid leader address {address:?}")]
    Address { address: String, source: adapter_client::TargetError },
    #[error("cannot connect to the leader: {0}")]
    Unsafe(String),
}

impl Peer {
    /// Checks the security settings for connections to other replicas. For this check, it creates a client that would connect to this
    /// replica itself. `identity` contains the replica's address.
    ///
    /// Returns all invalid settings as [`WrongUsage`].
    pub(crate) fn new(security: ChannelSecurity, identity: &str) -> anyhow::Result<Self> {
        let this = Self { security };
        this.connection(identity).map_err(|error| WrongUsage(error.to_string()))?;
        Ok(this)
    }

    /// Creates a client for the replica that holds the Lease with this identity: `<instance id>@<advertised address>`.
    pub(super) fn connection(&self, holder: &str) -> Result<Connection, Error> {
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
