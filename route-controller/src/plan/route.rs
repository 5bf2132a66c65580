//! A route as the cloud reports it, independent of the contract's types.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The vendor's ID, the key in the cache.
    pub(crate) vendor_id: String,
    /// The destination. Host bits are zero.
    pub(crate) destination: IpNet,
    /// The UID of the Node that the route was created for, if the cloud can store the UID.
    pub(crate) node_uid: Option<String>,
    pub(crate) next_hop: NextHop,
    pub(crate) state: State,
    pub(crate) owner: Owner,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NextHop {
    /// The provider ID of the instance.
    pub(crate) provider_id: Option<String>,
    /// One of the instance's addresses.
    pub(crate) address: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    /// The creation of the route is in progress, or this version does not know the state. Such a route does not count as success.
    Pending,
    Blackhole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Ours,
    OtherCluster,
    /// The adapter knows no owner, or reports an owner that this version does not know.
    Unmanaged,
}

impl NextHop {
    /// Whether both are the same next hop, as far as they can be compared. Some clouds know only the instance, others only the address.
    /// Next hops without a common field count as different.
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

/// Whether both values are equal. Returns `None` if either value is not set.
fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<bool> {
    Some(one.as_ref()? == other.as_ref()?)
}
