//! The way to a cloud adapter: from what flags say to a channel that tonic's generated clients take.
//!
//! In reading order:
//!
//! - [`Target`]: where the adapter is, one endpoint or several replicas.
//! - [`Security`]: TLS, the server's name, the caller's token or certificate, from files that are read again when they change.
//! - [`Connection`] and [`AdapterChannel`]: the way there, once opened.
//! - `discovery`: which replicas there are. `replicas`: which of them serves, as `grpc.health.v1` tells. `call`: one call, repeated
//!   on another replica when the first did not, or may not have, carried it out.
//!
//! # What is repeated
//! All calls of the contract may be repeated: reads change nothing, Ensure, Delete, ApplyRoutes and PutBackendSet say what shall be
//! and not what to do, and a fence admits the same number again. So within its deadline a call goes to another replica
//!
//! - when it was certainly not carried out: nobody took the connection, the stream was refused, or the answer is `NOT_LEADER`,
//!   `STARTING` or `DRAINING`;
//! - when it may have been carried out, and there will be no answer: the connection broke under it, or another replica serves by now
//!   and the one that was asked has not said a word, as when its machine is gone.
//!
//! A call waits up to [`PATIENCE`] for a replica that serves, longer than a fail-over takes. A single endpoint is not waited for:
//! whoever asks hears at once that it is away, and only a connection that broke is replaced by a new one, once. A stream is
//! repeated until it has begun; its reader opens it again afterwards. Other services than the contract's are asked once.

mod call;
mod channel;
mod connector;
mod discovery;
mod failure;
mod replicas;
mod security;
mod target;

pub use self::{
    call::PATIENCE,
    channel::{AdapterChannel, Connection, OpenError},
    connector::settings,
    discovery::{Resolve, SystemResolver},
    failure::unanswered,
    security::{Fault, Flags, SERVER_NAME, Security},
    target::{HostPort, Target, TargetError},
};
#[cfg(feature = "kubernetes")]
pub use target::ServicePort;
