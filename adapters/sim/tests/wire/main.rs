//! Everything about the simulated cloud that takes a port: the cloud itself, the driver, the adapter in this process and as a program. They
//! are one program, because each program links kube and tonic again.

mod adapter;
mod broken;
mod conditions;
mod crash;
mod driver;
mod failover;
mod security;
mod simcloud_http;
mod support;
