//! Tests of the cost of a Service, as counted by the cloud.

use adapter_sim::simcloud::Operation;
use cloud_adapter::driver::Driver as _;
use cloud_api_proto::v1alpha1::{Fence, LoadBalancerState};
use serde_json::json;

use crate::{
    driver::bench::{bench, bench_with, desired},
    support::wanted::{backend, spec, tcp, udp},
};

#[tokio::test]
async fn service_costs_ports_plus_two_writes_then_none() {
    for listeners in [vec![tcp(80)], vec![tcp(80), tcp(443), tcp(8080)], vec![tcp(53), udp(53)]] {
        let bench = bench().await;
        let n_ports = listeners.len();
        let wanted = desired(spec(listeners), [backend(1), backend(2)]);
        let (record, _) = bench.ensure(&wanted).await;
        assert_eq!(bench.cloud.counts().writes, n_ports as u64 + 2);
        assert_eq!(record.summary.state(), LoadBalancerState::Active);
        assert_eq!(record.summary.addresses.len(), 1);
        assert_eq!(record.summary.applied_hash, wanted.hash);

        bench.cloud.count_from_here();
        assert_eq!(bench.ensure(&wanted).await.1, Vec::<String>::new());
        assert_eq!(bench.cloud.counts().writes, 0);
    }
}

#[tokio::test]
async fn slow_cloud_causes_no_additional_writes() {
    let bench =
        bench_with(json!({ "provisioning": { "create_ms": 40, "update_ms": 15, "delete_ms": 25 } })).await;
    let wanted = desired(spec([tcp(80), udp(53)]), [backend(1)]);
    bench.ensure(&wanted).await;
    assert_eq!(bench.cloud.counts().writes, 4);
    assert_eq!(bench.remove().await, 1);
}

#[tokio::test]
async fn added_node_costs_one_write_per_port() {
    let bench = bench().await;
    let mut wanted = desired(spec([tcp(80), tcp(443)]), [backend(1), backend(2)]);
    bench.ensure(&wanted).await;
    bench.cloud.count_from_here();
    wanted.backends = [1, 2, 3].map(backend).into();
    bench.ensure(&wanted).await;
    wanted.backends = [2, 3].map(backend).into();
    bench.ensure(&wanted).await;
    assert_eq!(bench.cloud.counts().writes, 4);
    assert_eq!(bench.cloud.balancer().await["pools"][1]["members"][1]["instance_id"], json!("i-0003"));
}

#[tokio::test]
async fn changed_ports_keep_the_address() {
    let bench = bench().await;
    let (before, _) = bench.ensure(&desired(spec([tcp(80), tcp(443)]), [backend(1)])).await;
    let (after, writes) = bench.ensure(&desired(spec([tcp(443), udp(443), tcp(8443)]), [backend(1)])).await;
    assert_eq!(writes.len(), 5, "{writes:#?}");
    assert_eq!(after.summary.addresses, before.summary.addresses);
    assert_eq!(after.summary.listeners, ["tcp/443", "tcp/8443", "udp/443"]);
}

#[tokio::test]
async fn a_deletion_costs_one_write_and_leaves_nothing() {
    let bench = bench().await;
    bench.ensure(&desired(spec([tcp(80), tcp(443), udp(53)]), [backend(1)])).await;
    assert_eq!(bench.remove().await, 1);
    assert_eq!(bench.cloud.count(Operation::DeleteLoadBalancer), 1);
    assert_eq!(bench.cloud.state().await["load_balancers"], json!([]));
}

#[tokio::test]
async fn step_with_missing_dependency_makes_no_call() {
    let bench = bench().await;
    let steps = bench.driver.plan(&desired(spec([tcp(80)]), []), &Fence::default(), None).expect("possible");
    bench.driver.execute(&bench.session, &steps[1]).await.expect_err("not the first");
    assert_eq!(bench.cloud.counts().total, 0);
}
