//! All tests of the simulated cloud that need a port. They test the cloud itself, the driver, and the adapter, both in this process and as
//! a program. They are in one test program, because linking kube and tonic takes long.

mod adapter;
mod conditions;
mod crash;
mod driver;
mod failover;
mod security;
mod simcloud_http;
mod support;
