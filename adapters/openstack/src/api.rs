//! The messages of the services' APIs: bodies of requests and answers, and the versions of Octavia.

pub(crate) mod requests;
pub(crate) mod responses;
pub(crate) mod router;
pub(crate) mod server;
pub(crate) mod version;
