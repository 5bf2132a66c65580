//! Tests of the answers of a standby replica, and of the data in its cache.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        WatchInstancesRequest, instance_service_client::InstanceServiceClient,
        watch_instances_response::Event,
    },
};
use tonic_health::pb::health_check_response::ServingStatus;

use crate::{
    failover::replica::{Replica, leading},
    failover::{api_server, load::request},
    support::{context, until, wanted::CLUSTER},
};

#[tokio::test]
async fn standby_is_ready_and_refuses_requests() {
    let (cloud, api, first) = leading(1).await;
    let second = Replica::standby(&cloud.url, &api).await;
    until("data from the leader", async || {
        let refused = InstanceServiceClient::new(second.channel.clone()).batch_get_instances(request()).await;
        let error = AdapterError::from(refused.expect_err("a standby refuses"));
        assert_eq!(error.reason, Reason::NotLeader, "{error}");
        error.message.contains(&first.address)
    })
    .await;
    assert!(api_server::holder(&api).expect("held").ends_with(&format!("@{}", first.address)));
    assert_eq!(second.health("").await, Some(ServingStatus::Serving));
    let services = second.health("cloudadapter.v1alpha1.LoadBalancerService").await;
    assert_eq!(services, Some(ServingStatus::NotServing));
    let ready = reqwest::get(format!("http://{}/readyz", second.process.http)).await.expect("an answer");
    assert!(ready.status().is_success());
    second.process.info(CLUSTER).await;
    assert!(!second.status().await.leader);
    assert!(first.status().await.leader);
    for (replica, leads) in [(&first, 1), (&second, 0)] {
        let page = replica.process.page("/metrics").await;
        assert!(page.contains(&format!("cloud_adapter_leader {leads}\n")), "{page}");
    }
}

#[tokio::test]
async fn standby_follows_the_leader_without_vendor_calls() {
    let (cloud, api, mut first) = leading(5).await;
    let second = Replica::standby(&cloud.url, &api).await;
    until("the leader's instances", async || second.instances().await.items == 5).await;
    assert_eq!(cloud.count(Operation::ListInstances), 1, "the standby has the same instances as the leader");
    let theirs = first.instances().await.observed_at.expect("listed");
    let ours = second.instances().await.observed_at.expect("followed");
    assert!((theirs.seconds - ours.seconds).abs() <= 1, "{theirs:?} {ours:?}");

    first.process.stop().await;
    second.serves().await;
    assert_eq!(first.process.exited().await, Some(0));
    let watch =
        WatchInstancesRequest { context: Some(context()), stop_when_synced: true, ..Default::default() };
    let stream = InstanceServiceClient::new(second.channel.clone()).watch_instances(watch).await;
    let mut stream = stream.expect("leads").into_inner();
    let mut synced = None;
    while let Some(event) = stream.message().await.expect("no error") {
        if let Some(Event::Synced(end)) = event.event {
            synced = Some(end);
        }
    }
    let synced = synced.expect("complete");
    assert_eq!(synced.count, 5);
    let observed = synced.observed_at.expect("a time");
    assert!(
        (theirs.seconds - observed.seconds).abs() <= 1,
        "with the original time of the read: \
         {theirs:?} {observed:?}"
    );
    assert_eq!(cloud.count(Operation::ListInstances), 1, "warm");
}
