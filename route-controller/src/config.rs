//! Flags.
mod cluster_cidrs;
pub(crate) use self::cluster_cidrs::ClusterCidrs;
