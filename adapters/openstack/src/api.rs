//! Defines the messages of the services' APIs, which are the bodies of requests and answers, and the versions of Octavia's API.

pub(crate) mod requests;
pub(crate) mod responses;
pub(crate) mod router;
pub(crate) mod server;
pub(crate) mod version;
