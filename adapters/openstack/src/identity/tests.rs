//! These tests check, against a fake OpenStack, which callers log in, when and how often.

use std::sync::Arc;

use cloud_adapter::driver::{Driver as _, Fault};
use secrecy::ExposeSecret as _;
use tokio::time::{advance, pause, resume};

use super::*;
use crate::{
    OpenStackDriver,
    testing::{FakeCloud, PROJECT, session},
};

async fn bed() -> (FakeCloud, OpenStackDriver, Session) {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let session = session(&driver);
    (cloud, driver, session)
}

/// Lets this number of minutes of the token's lifetime pass. The lifetime is an hour.
async fn passes(minutes: u64) {
    pause();
    advance(Duration::from_mins(minutes)).await;
    resume();
}

#[tokio::test]
async fn concurrent_callers_log_in_once() {
    let (cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    let (one, two, three) =
        tokio::join!(identity.access(&session), identity.access(&session), identity.access(&session));
    let one = one.expect("the caller has a token");
    assert!(
        Arc::ptr_eq(&one, &two.expect("the same token"))
            && Arc::ptr_eq(&one, &three.expect("the same token"))
    );
    assert_eq!((cloud.log_ins(), one.project.id.as_str()), (1, PROJECT));
    assert!(one.token.is_sensitive());
}

#[tokio::test]
async fn cancelled_log_in_passes_to_the_next_caller() {
    let (cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    cloud.gate.forget_permits(1_000);
    let mut first = Box::pin(identity.access(&session));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the cloud does not answer"),
        () = async { while cloud.log_ins() == 0 { tokio::task::yield_now().await } } => (),
    }
    let second = identity.access(&session);
    drop(first);
    cloud.gate.add_permits(2);
    second.await.expect("the second caller logs in");
    assert_eq!(cloud.log_ins(), 2);
}

#[tokio::test]
async fn token_is_renewed_before_it_expires() {
    let (cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    let first = identity.access(&session).await.expect("the caller has a token");
    passes(47).await;
    assert!(Arc::ptr_eq(&first, &identity.access(&session).await.expect("still valid")));
    passes(2).await;
    let second = identity.access(&session).await.expect("renewed");
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(cloud.log_ins(), 2);
}

#[tokio::test]
async fn failed_renewal_keeps_the_old_token_until_it_expires() {
    let (cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    let first = identity.access(&session).await.expect("the caller has a token");
    cloud.store().locked = true;
    passes(50).await;
    for _ in 0..3 {
        assert!(Arc::ptr_eq(&first, &identity.access(&session).await.expect("still valid")));
    }
    assert_eq!(cloud.log_ins(), 2, "not every call causes an attempt");
    passes(1).await;
    identity.access(&session).await.expect("still valid");
    assert_eq!(cloud.log_ins(), 3, "another attempt");
    passes(10).await;
    let error = identity.access(&session).await.expect_err("expired");
    assert_eq!(error.fault, Fault::Auth, "{error}");
}

#[tokio::test]
async fn rejected_credentials_are_tried_once_for_all_waiters() {
    let (cloud, driver, session) = bed().await;
    cloud.store().locked = true;
    let identity = &driver.client.identity;
    let (one, two, three) =
        tokio::join!(identity.access(&session), identity.access(&session), identity.access(&session));
    for one in [one, two, three] {
        assert_eq!(one.expect_err("rejected").fault, Fault::Auth);
    }
    assert_eq!(cloud.log_ins(), 1);
    cloud.store().locked = false;
    identity.access(&session).await.expect("a later caller tries again");
}

#[tokio::test]
async fn log_in_to_another_project_is_refused() {
    let cloud = FakeCloud::start().await;
    let mut settings = cloud.cloud();
    settings.project.name = Some("other".to_owned());
    let identity = Identity::new(settings);
    let error = identity.access(&session(&cloud.driver())).await.expect_err("the wrong project");
    assert_eq!(error.fault, Fault::Forbidden);
    assert!(
        error.message.contains("project shop (0f3a") && error.message.contains("other is configured"),
        "{error}"
    );
}

#[tokio::test]
async fn self_check_calls_the_cloud_each_time() {
    let (cloud, driver, session) = bed().await;
    let first = driver.self_check(&session).await.expect("good");
    assert_eq!((first.project.as_str(), first.region.as_str()), (PROJECT, "RegionOne"));
    assert_eq!(cloud.store().requests.len(), 1);
    assert_eq!(driver.self_check(&session).await.expect("good").fingerprint, first.fingerprint);
    assert_eq!(cloud.store().requests.last().expect("two"), "GET /identity/v3/auth/tokens?nocatalog");
    cloud.store().tokens.clear();
    driver.self_check(&session).await.expect("the caller logs in again");
    assert_eq!((cloud.log_ins(), cloud.store().requests.len()), (2, 4));
    cloud.store().tokens.clear();
    cloud.store().locked = true;
    assert_eq!(driver.self_check(&session).await.expect_err("rejected").fault, Fault::Auth);
}

#[tokio::test]
async fn self_check_fails_in_a_region_without_services() {
    let cloud = FakeCloud::start().await;
    let mut settings = cloud.cloud();
    settings.region = "RegionTwo".to_owned();
    let driver = OpenStackDriver::new(settings, None, (*cloud.driver().settings).clone());
    let error = driver.self_check(&session(&driver)).await.expect_err("no services");
    assert!(error.message.contains("no compute service in region RegionTwo"), "{error}");
}

#[tokio::test]
async fn new_credentials_get_a_new_token() {
    let (cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    let old = identity.access(&session).await.expect("the caller has a token");
    let other = cloud.driver();
    other.self_check(&session).await.expect("good");
    identity.adopt(&other.client.identity);
    let new = identity.access(&session).await.expect("another caller has renewed the token");
    assert!(!Arc::ptr_eq(&old, &new));
    assert_eq!(cloud.log_ins(), 2);
    // A late rejection of the old token does not cause a second log-in.
    assert!(Arc::ptr_eq(&new, &identity.renewed(&session, &old).await.expect("newer")));
    assert_eq!(cloud.log_ins(), 2);
}

#[tokio::test]
async fn secrets_are_redacted_from_answers_and_logs() {
    let (_cloud, driver, session) = bed().await;
    let identity = &driver.client.identity;
    identity.access(&session).await.expect("the caller has a token");
    let secrets: Vec<String> =
        identity.secrets().iter().map(|secret| secret.expose_secret().to_owned()).collect();
    assert_eq!(secrets, ["correct horse", "token-1"]);
    let shown = format!("{driver:?}");
    assert!(!shown.contains("horse") && !shown.contains("token-1"), "{shown}");
}
