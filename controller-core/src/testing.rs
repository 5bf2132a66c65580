//! Builders and stateful fakes of the API server and the adapter, for tests of the controllers.
//!
//! The fakes store objects, count calls and can return an error for the next call. No test asserts an order of calls. Both fakes use memory
//! instead of sockets, because on paused time a runtime that waits for a socket would jump to the next timer. For tests on real time, the
//! fake API server also has ports.

mod cloud;
mod fake_shards;
mod instance;
mod kube;
mod node;
mod service;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

pub use self::{
    cloud::FakeCloud,
    fake_shards::FakeShards,
    instance::{InstanceBuilder, instance},
    kube::{FakeKube, Fault, KubePort, Verb, Write},
    node::{NodeBuilder, node},
    service::{ServiceBuilder, service},
};
use crate::{
    config::Cluster,
    kube_api::Requests,
    start::{Names, Process},
};

/// The time of the wall clock at the start of a test.
pub const BEGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The cluster that tests use.
#[must_use]
pub fn cluster() -> Cluster {
    Cluster { id: "cluster-uid".to_owned(), name: "test".to_owned() }
}

/// Creates a process that uses both fakes. Must be called inside a tokio runtime.
#[must_use]
pub fn process(names: Names, kube: &FakeKube, cloud: &FakeCloud) -> Process {
    Process::new(names, kube.client(), cloud.adapter(), cloud.clock())
}

/// Creates a process that uses both fakes and holds some of several shards.
#[must_use]
pub fn process_of_shards(
    names: Names,
    kube: &FakeKube,
    cloud: &FakeCloud,
    fake_shards: &FakeShards,
) -> Process {
    let shards = fake_shards.shards();
    kube.put::<Lease>(fake_shards.first_lease());
    let kube = kube.client_through(&Requests::new(shards.clone(), None));
    let adapter = cloud.adapter().writing_in(shards.clone());
    let mut process = Process::new(names, kube, adapter, cloud.clock());
    process.shards = shards;
    process
}

/// Waits until `condition` holds. Panics with `what` if this takes longer than ten minutes of paused time.
///
/// # Panics
/// Panics if the condition does not become true.
#[expect(clippy::panic, reason = "a failed test")]
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}
