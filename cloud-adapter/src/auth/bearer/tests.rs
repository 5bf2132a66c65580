use std::fs;

use http::HeaderValue;
use serde_json::json;

use super::*;
use crate::{
    auth::KeySource,
    testing::{AUDIENCE, ISSUER, TokenKey, claims, jwks},
};

const WHO: &str = "kube-system:cnc";

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(value).expect("a header"))])
}

fn bearers(dir: &tempfile::TempDir, key: &TokenKey) -> (Bearers, Arc<Keys>) {
    let path = dir.path().join("jwks.json");
    fs::write(&path, jwks(&[key])).expect("a written file");
    let keys = Arc::new(Keys::new(KeySource::File { path, issuer: ISSUER.to_owned() }));
    (Bearers::offline(AUDIENCE.to_owned(), Arc::clone(&keys)), keys)
}

#[tokio::test(start_paused = true)]
async fn a_call_carries_one_token_in_its_header() {
    let (dir, key) = (tempfile::tempdir().expect("a folder"), TokenKey::elliptic("a"));
    let (bearers, _) = bearers(&dir, &key);
    let token = key.token(WHO);
    for good in [format!("Bearer {token}"), format!("bearer {token}"), format!("BEARER  {token} ")] {
        let account = bearers.check(&headers(&good)).await.expect("good");
        assert_eq!(account.to_string(), format!("system:serviceaccount:{WHO}"));
    }
    let mut two = headers(&format!("Bearer {token}"));
    two.append(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).expect("a header"));
    let without = [HeaderMap::new(), headers(&token), headers("Bearer "), headers("Basic YTpi"), two];
    for (at, headers) in without.iter().enumerate() {
        let refused = bearers.check(headers).await.expect_err("no token");
        assert_eq!(refused.reason, Reason::CallerUnauthenticated, "{at}");
        assert!(refused.message.contains("authorization: Bearer TOKEN"), "{at}: {refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_cached_until_it_expires_or_its_key_is_removed() {
    let (dir, key) = (tempfile::tempdir().expect("a folder"), TokenKey::elliptic("a"));
    let (bearers, keys) = bearers(&dir, &key);
    let Bearers::Offline { seen, .. } = &bearers else { panic!("offline") };
    let token = key.token(WHO);
    let call = headers(&format!("Bearer {token}"));
    assert!(bearers.check(&call).await.is_ok());
    let known = keys.with("a").await.expect("known");
    let remembered = |keys: &Arc<KeySet>| seen.find(&token, |used| Arc::ptr_eq(used, keys)).is_some();
    assert!(remembered(&known));
    fs::write(dir.path().join("jwks.json"), jwks(&[&TokenKey::elliptic("a")])).expect("a written file");
    keys.fetch().await.expect("good");
    let refused = bearers.check(&call).await.expect_err("the cluster now signs with another key");
    assert!(refused.message.contains("signature"), "{refused}");
    fs::write(dir.path().join("jwks.json"), jwks(&[&key])).expect("a written file");
    keys.fetch().await.expect("good");
    assert!(bearers.check(&call).await.is_ok());
    let known = keys.with("a").await.expect("known");
    assert!(remembered(&known));
    tokio::time::advance(Duration::from_secs(601)).await;
    assert!(!remembered(&known), "cached no longer than the token is valid");
}

#[tokio::test(start_paused = true)]
async fn the_token_cache_is_bounded() {
    let seen = Seen::<()>::default();
    let account = ServiceAccount::from_subject("system:serviceaccount:a:b").expect("good");
    for number in 0..REMEMBERED * 2 {
        seen.remember(&number.to_string(), (), Ok(account.clone()), Duration::from_mins(10));
    }
    assert_eq!(seen.0.lock().expect("whole").len(), REMEMBERED);
    assert!(seen.find(&(REMEMBERED * 2 - 1).to_string(), |()| true).is_some(), "the newest entry is kept");
    tokio::time::advance(Duration::from_mins(11)).await;
    seen.remember("new", (), Ok(account), Duration::from_mins(10));
    assert_eq!(seen.0.lock().expect("whole").len(), 1, "the oldest entry is evicted first");
}

#[tokio::test(start_paused = true)]
async fn without_keys_callers_are_asked_to_retry() {
    let dir = tempfile::tempdir().expect("a folder");
    let (key, away) = (TokenKey::elliptic("a"), dir.path().join("away.json"));
    let keys = Arc::new(Keys::new(KeySource::File { path: away, issuer: ISSUER.to_owned() }));
    let bearers = Bearers::offline(AUDIENCE.to_owned(), keys);
    let call = headers(&format!("Bearer {}", key.token(WHO)));
    let refused = bearers.check(&call).await.expect_err("there are no keys");
    assert_eq!(refused.reason, Reason::Starting, "the token may be valid");
    assert!(refused.retry_after.is_some());
    let nonsense = bearers.check(&headers("Bearer nonsense")).await.expect_err("none");
    assert_eq!(nonsense.reason, Reason::CallerUnauthenticated, "this token can never be valid");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_never_repeats_the_token() {
    let (dir, key) = (tempfile::tempdir().expect("a folder"), TokenKey::elliptic("a"));
    let (bearers, _) = bearers(&dir, &key);
    let mut said = claims(WHO);
    said["aud"] = json!(["other"]);
    let token = key.sign(&said);
    let refused =
        bearers.check(&headers(&format!("Bearer {token}"))).await.expect_err("for another audience");
    assert_eq!(refused.message, format!("the token is not for the audience {AUDIENCE}"));
}
