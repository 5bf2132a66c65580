//! These tests check listings and look-ups against a fake OpenStack, which splits listings into pages as the services do.

use std::collections::BTreeSet;

use super::*;
use crate::testing::{FakeCloud, session};

fn worker(n: usize) -> Value {
    let mut server = with(json!({ "id": format!("s-{n}"), "name": format!("worker-{n}"), "metadata": {} }));
    server["addresses"] = json!({ "nodes": [{ "addr": format!("10.0.0.{n}"), "OS-EXT-IPS:type": "fixed" }] });
    server
}

async fn list(
    driver: &OpenStackDriver,
    session: &Session,
    cursor: Option<&Cursor>,
    size: Option<u32>,
) -> Result<Page<Instance>, VendorError> {
    Collection::<Instance>::list_page(driver, session, cursor, size).await
}

async fn swept(driver: &OpenStackDriver, session: &Session, size: Option<u32>) -> (Vec<Instance>, usize) {
    let (mut items, mut cursor, mut pages, mut places) = (Vec::new(), None, 0, BTreeSet::new());
    loop {
        let page = list(driver, session, cursor.as_ref(), size).await.expect("a page");
        items.extend(page.items);
        pages += 1;
        let Some(next) = page.next else { return (items, pages) };
        assert!(places.insert(next.at().to_owned()), "the same cursor twice: {next:?}");
        cursor = Some(next);
    }
}

#[tokio::test]
async fn servers_and_ports_are_joined_across_pages() {
    let cloud = FakeCloud::start().await;
    cloud.store().servers = (1..=4).map(worker).collect();
    cloud.store().ports =
        (1..=4).rev().map(|n| port(&format!("s-{n}"), "ACTIVE", &[&format!("10.1.0.{n}")])).collect();
    cloud.store().ports.push(port("a router", "ACTIVE", &["10.0.0.1"]));
    let mut others = port("s-1", "ACTIVE", &["10.66.0.1"]);
    others["project_id"] = json!("another");
    cloud.store().ports.push(others);
    let driver = cloud.driver();
    let (machines, pages) = swept(&driver, &session(&driver), Some(2)).await;

    let reported: Vec<_> = machines.iter().map(|machine| (machine.name.clone(), shown(machine))).collect();
    let wanted = |n: usize| {
        (format!("worker-{n}"), vec![format!("INTERNAL_IP 10.1.0.{n}"), format!("INTERNAL_IP 10.0.0.{n}")])
    };
    assert_eq!(reported, (1..=4).map(wanted).collect::<Vec<_>>());
    // The pages contain 2 + 2 + 0 servers, and 2 + 2 + 1 ports.
    assert_eq!((pages, cloud.asked("GET /").len()), (6, 6));
    let ports = cloud.asked("GET /network/v2.0/ports?project_id=");
    assert_eq!(ports.len(), 3, "also on later pages: {ports:?}");
}

#[tokio::test]
async fn project_without_servers_is_an_empty_listing() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let (machines, pages) = swept(&driver, &session(&driver), None).await;
    assert_eq!((machines, pages), (vec![], 2));
}

#[tokio::test]
async fn failed_page_fails_the_listing() {
    let cloud = FakeCloud::start().await;
    cloud.store().servers = vec![worker(1)];
    let driver = cloud.driver();
    let session = session(&driver);
    let first = list(&driver, &session, None, None).await.expect("a page");
    assert_eq!(first.items, [], "no instance is returned before the ports are known");
    cloud.store().faults.push_back((200, json!({ "message": "maintenance" })));
    let read = list(&driver, &session, first.next.as_ref(), None).await;
    assert_eq!(read.expect_err("no ports").fault, Fault::Nonsense);
}

#[tokio::test]
async fn look_up_and_listing_return_the_same_instance() {
    let cloud = FakeCloud::start().await;
    cloud.store().servers = (1..=2).map(worker).collect();
    cloud.store().ports = vec![port("s-1", "ACTIVE", &["10.1.0.1"]), port("s-2", "ACTIVE", &["10.1.0.2"])];
    let driver = cloud.driver();
    let session = session(&driver);
    let (machines, _) = swept(&driver, &session, None).await;
    let before = cloud.store().requests.len();
    let found = driver.get_batch(&session, &["s-2".to_owned()]).await.expect("answered").expect("Nova can");
    assert_eq!(found, [Lookup::Found(machines[1].clone())]);
    assert_eq!(cloud.store().requests.len() - before, 2);
    let gone = driver.get_batch(&session, &["s-9".to_owned()]).await.expect("answered").expect("Nova can");
    assert_eq!(gone, [Lookup::Gone]);
    assert_eq!(cloud.store().requests.len() - before, 3);
}

#[tokio::test]
async fn only_the_error_of_nova_proves_absence() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let session = session(&driver);
    for (status, body, wanted) in [
        (404, json!({ "message": "no route" }), Fault::Nonsense),
        (
            404,
            json!({ "itemNotFound": { "code": 404, "message": "The resource could not be found." } }),
            Fault::Nonsense,
        ),
        (
            403,
            json!({ "forbidden": { "code": 403, "message": "Policy doesn't allow it" } }),
            Fault::Forbidden,
        ),
        (
            500,
            json!({ "computeFault": { "code": 500, "message": "Unexpected API Error." } }),
            Fault::Unavailable,
        ),
    ] {
        cloud.store().faults.push_back((status, body));
        let error = driver.get_batch(&session, &["s-1".to_owned()]).await.expect_err("the call fails");
        assert_eq!(error.fault, wanted, "{error}");
    }
    cloud.store().faults.push_back((200, json!({ "server": worker(2) })));
    let other = driver.get_batch(&session, &["s-1".to_owned()]).await.expect("answered").expect("Nova can");
    assert_eq!(other, [Lookup::Unknown], "the answer is about another server");
}

#[tokio::test]
async fn deleted_credentials_prove_no_absence() {
    let cloud = FakeCloud::start().await;
    cloud.store().servers = vec![worker(1)];
    let driver = cloud.driver();
    let session = session(&driver);
    swept(&driver, &session, None).await;
    cloud.store().tokens.clear();
    cloud.store().deleted = true;
    let error = driver.get_batch(&session, &["s-1".to_owned()]).await.expect_err("the call fails");
    assert_eq!(error.fault, Fault::Auth, "{error}");
}
