//! One of several replicas: one leads and talks to the vendor, the others stand by.

mod duty;

pub(crate) use self::duty::{Duty, Replica, Term};
