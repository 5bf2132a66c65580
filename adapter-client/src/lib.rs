//! Client of a cloud adapter. Builds a channel for tonic's generated clients from the values of flags.
//!
//! The modules in reading order:
//!
//! - [`Target`]: the address of the adapter, one endpoint or several replicas.
//! - [`ChannelSecurity`]: TLS, the server's name, the caller's token or certificate. Files are reloaded when they change.
//! - [`Connection`] and [`AdapterChannel`]: the connection, before and after it is opened.
//! - `discovery`: finds the replicas. `replicas`: finds the replica that serves, with `grpc.health.v1`. `call`: makes one call, and repeats
//!   the call on another replica if the first replica did not carry the call out, or if this is unknown.
//!
//! # Repeated calls
//! All calls of the contract may be repeated. Reads change nothing. Ensure, Delete, ApplyRoutes and PutBackendSet state the desired result,
//! not an action. The adapter admits a fence that it has already seen. So within its deadline, a call is repeated on another replica
//!
//! - if the call was certainly not carried out: the connection failed, the stream was refused, or the answer is `NOT_LEADER`, `STARTING` or
//!   `DRAINING`;
//! - if the call may have been carried out and no answer will arrive: the connection broke during the call, or another replica serves by
//!   now and the called replica has not responded, for example because its host is gone.
//!
//! A call waits up to [`REPLICA_TIMEOUT`] for a replica that serves, which is longer than a failover takes. After 5 s, the call is sent once
//! to each replica that reports that it does not serve. If such a replica answers `STARTING`, it is the leader and has not reached its cloud,
//! and the caller gets this answer, which names the cause. With a single endpoint, the
//! caller gets an error at once if the endpoint is not reachable, and a broken connection is replaced only once. A stream is repeated until
//! it has started. If it breaks later, its reader must open a new stream. Calls of services outside the contract are never repeated.

mod call;
mod channel;
mod channel_security;
mod connector;
mod discovery;
mod failure;
mod replicas;
mod target;

pub use self::{
    call::REPLICA_TIMEOUT,
    channel::{AdapterChannel, Connection, OpenError},
    channel_security::{ChannelSecurity, Fault, Flags, SERVER_NAME},
    connector::settings,
    discovery::{Resolve, SystemResolver},
    failure::unanswered,
    target::{HostPort, Target, TargetError},
};
#[cfg(feature = "kubernetes")]
pub use target::ServicePort;
