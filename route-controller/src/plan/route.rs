//! A route as the cloud reports it. Knows nothing of the contract's types: the mirror trims them to this.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A route as the cloud reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Names the route in the mirror.
    pub(crate) vendor_id: String,
    /// Host bits zero.
    pub(crate) destination: IpNet,
    /// The UID of the Node that it was laid for, where the cloud can remember that.
    pub(crate) node_uid: Option<String>,
    pub(crate) next_hop: NextHop,
    pub(crate) state: State,
    pub(crate) owner: Owner,
}

/// Where packets go.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NextHop {
    /// The machine.
    pub(crate) provider_id: Option<String>,
    /// One of its addresses.
    pub(crate) address: Option<IpAddr>,
}

/// Whether packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    /// They will, or the adapter uses a word that we do not know: no success yet.
    Pending,
    /// The next hop is gone.
    Blackhole,
}

/// Whose a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Ours,
    OtherCluster,
    /// Nobody's that the adapter knows, or it uses a word that we do not know.
    Unmanaged,
}

impl NextHop {
    /// Whether both name the same place, as far as both say. Some clouds know the machine only, some the address only; two
    /// that have nothing in common to compare are different.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (agree(&self.provider_id, &other.provider_id), agree(&self.address, &other.address)) {
            (None, None) => false,
            (machine, address) => machine.unwrap_or(true) && address.unwrap_or(true),
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.provider_id, self.address) {
            (Some(machine), Some(address)) => write!(f, "{machine} at {address}"),
            (Some(machine), None) => f.write_str(machine),
            (None, Some(address)) => write!(f, "{address}"),
            (None, None) => f.write_str("nowhere"),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "of this cluster",
            Self::OtherCluster => "of another cluster",
            Self::Unmanaged => "of unknown origin",
        })
    }
}

/// `None`: one of both does not say.
fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<bool> {
    Some(one.as_ref()? == other.as_ref()?)
}
