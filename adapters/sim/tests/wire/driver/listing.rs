//! Tests of listings, look-ups, routes and credentials.

use adapter_sim::{SimOptions, simcloud::Operation};
use cloud_adapter::driver::{Collection, Driver as _, Fault, InstanceLookup as _, Lookup};
use cloud_api_proto::v1alpha1::Instance;
use serde_json::json;

use crate::driver::bench::{bench, bench_with, driver, route, session};

#[tokio::test]
async fn listing_continues_at_its_cursor() {
    let bench = bench_with(json!({ "page_size_max": 2 })).await;
    bench.cloud.machines(5).await;
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page =
            Collection::<Instance>::list_page(&bench.driver, &bench.session, cursor.as_ref(), None).await;
        let page = page.expect("a page");
        seen.extend(page.items.into_iter().map(|instance| instance.provider_id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let wanted: Vec<_> = (1..=5).map(|n| format!("sim://sim-1/i-000{n}")).collect();
    assert_eq!(seen, wanted);
    assert_eq!(bench.cloud.count(Operation::ListInstances), 3);
}

#[tokio::test]
async fn five_hundred_instances_are_read_in_one_ordered_call() {
    let bench = bench().await;
    bench.cloud.machines(499).await;
    let mut ids: Vec<String> = (1..=499).rev().map(|n| format!("i-{n:04}")).collect();
    ids.insert(7, "i-9999".into());
    let found = bench.driver.get_batch(&bench.session, &ids).await;
    let found = found.expect("answered").expect("the cloud supports it");
    assert_eq!(found.len(), ids.len());
    for (id, answer) in ids.iter().zip(&found) {
        match answer {
            Lookup::Found(instance) => assert_eq!(instance.provider_id, format!("sim://sim-1/{id}")),
            Lookup::Gone => assert_eq!(id, "i-9999"),
            Lookup::Unknown => panic!("{id}"),
        }
    }
    assert_eq!(bench.cloud.counts().total, 1);
}

#[tokio::test]
async fn batch_applies_removals_before_additions() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    assert_eq!(bench.change_routes(&[], [route(1, "i-0001"), route(2, "i-0002")]).await, [Ok(()), Ok(())]);
    let moved = [
        route(1, "i-0003"),
        route(2, "i-0003"),
        route(3, "i-0099"),
        route(4, "nowhere!"),
        route(5, "i-0001"),
    ];
    let faults: Vec<_> = bench
        .change_routes(&["rt-0001", "rt-0042"], moved)
        .await
        .into_iter()
        .map(|result| result.map_err(|error| error.fault))
        .collect();
    assert_eq!(
        faults,
        [
            Ok(()),              // removed
            Ok(()),              // removes a route that does not exist: success
            Ok(()),              // replaces the removed route
            Err(Fault::Busy),    // another route exists
            Err(Fault::Invalid), // the cloud refuses the instance
            Err(Fault::Invalid), // is never requested
            Ok(()),
        ]
    );
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 2);
}

#[tokio::test]
async fn self_check_reads_the_scope_in_one_call() {
    let bench = bench().await;
    let scope = bench.driver.self_check(&bench.session).await.expect("valid credentials");
    assert_eq!(
        (scope.account.as_str(), scope.project.as_str(), scope.region.as_str()),
        ("sim", "demo", "sim-1")
    );
    assert_eq!(scope.endpoint, bench.cloud.url);
    assert_eq!(bench.cloud.counts().total, 1);

    let other = crate::support::cloud::TestCloud::start(json!({})).await;
    let there = driver(&other.url, None, "sim-1");
    let elsewhere = there.self_check(&session(&there)).await.expect("valid credentials");
    assert_ne!(elsewhere.fingerprint, scope.fingerprint, "the scope depends on the endpoint");
}

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    cloud: SimOptions,
}

/// Otherwise the controllers would take a restart of the adapter for a move to another cloud.
#[tokio::test]
async fn scope_of_the_built_in_cloud_survives_a_restart() {
    let mut scopes = Vec::new();
    for _start in 0..2 {
        let Flags { cloud } = clap::Parser::parse_from(["adapter-sim"]);
        let driver = cloud.driver().await.expect("valid flags");
        scopes.push(driver.self_check(&session(&driver)).await.expect("the cloud runs"));
    }
    let [first, second] = scopes.as_slice() else { panic!("two starts: {scopes:?}") };
    assert_eq!(first, second);
    assert!(first.endpoint.contains("starts empty"), "{first:?}");
}

#[tokio::test]
async fn another_region_is_refused_with_the_flag_that_helps() {
    let bench = bench().await;
    let lost = driver(&bench.cloud.url, None, "sim-2");
    let error = lost.self_check(&session(&lost)).await.expect_err("another region");
    assert!(error.message.contains("--region sim-1"), "{error}");
}
