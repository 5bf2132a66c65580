//! Lays a route to the pods of each node.
mod config;
mod plan;
mod requeue;
