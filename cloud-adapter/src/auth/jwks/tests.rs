use std::fs;

use tempfile::TempDir;

use super::*;
use crate::testing::{ISSUER, TokenKey, jwks};

struct Cluster {
    dir: TempDir,
    keys: Keys,
}

impl Cluster {
    fn publishing(keys: &[&TokenKey]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("jwks.json");
        let cluster = Self { keys: Keys::new(KeySource::File { path, issuer: ISSUER.to_owned() }), dir };
        cluster.publish(keys);
        cluster
    }

    fn publish(&self, keys: &[&TokenKey]) {
        self.write(&jwks(keys));
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.path().join("jwks.json"), text).expect("a written file");
    }

    async fn knows(&self, id: &str) -> bool {
        self.keys.with(id).await.is_ok_and(|keys| keys.has(id))
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_triggers_a_fetch_with_a_minimum_interval() {
    let (old, new, newest) =
        (TokenKey::elliptic("old"), TokenKey::elliptic("new"), TokenKey::elliptic("newest"));
    let cluster = Cluster::publishing(&[&old]);
    assert!(cluster.knows("old").await, "the first fetch is not delayed");
    cluster.publish(&[&old, &new]);
    assert!(!cluster.knows("new").await, "forged tokens trigger no second fetch");
    tokio::time::advance(AT_MOST).await;
    assert!(cluster.knows("new").await);
    cluster.publish(&[&newest]);
    tokio::time::advance(AT_MOST).await;
    assert!(cluster.knows("old").await, "a known key triggers no fetch");
    assert!(cluster.knows("newest").await);
    assert!(!cluster.knows("old").await, "a revoked key is not known");
}

#[tokio::test(start_paused = true)]
async fn known_keys_stay_while_the_source_is_not_reachable() {
    let key = TokenKey::elliptic("a");
    let cluster = Cluster::publishing(&[&key]);
    cluster.write("nonsense");
    let why = cluster.keys.with("a").await.expect_err("no keys have been fetched yet");
    assert!(why.contains("is not a JSON Web Key Set"), "{why}");
    cluster.publish(&[&key]);
    tokio::time::advance(AT_MOST).await;
    assert!(cluster.knows("a").await);
    cluster.write("{}");
    tokio::time::advance(AT_MOST).await;
    assert!(cluster.keys.with("b").await.is_err(), "a token with key b may be valid, but this is unknown");
    assert!(cluster.knows("a").await);
    fs::remove_file(cluster.dir.path().join("jwks.json")).expect("there");
    tokio::time::advance(AT_MOST).await;
    assert!(cluster.keys.with("b").await.is_err());
    assert!(cluster.knows("a").await);
}

#[tokio::test(start_paused = true)]
async fn keys_are_refreshed_and_unchanged_keys_keep_their_set() {
    let (old, new) = (TokenKey::elliptic("old"), TokenKey::elliptic("new"));
    let cluster = Cluster::publishing(&[&old]);
    let script = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let first = cluster.keys.with("old").await.expect("known");
        tokio::time::sleep(reload::EVERY * 3).await;
        let again = cluster.keys.with("old").await.expect("known");
        assert!(Arc::ptr_eq(&first, &again), "tokens verified with these keys stay cached");
        cluster.publish(&[&new]);
        tokio::time::sleep(reload::EVERY * 2).await;
        assert!(!cluster.knows("old").await, "a revoked key is no longer known");
        assert!(cluster.knows("new").await);
    };
    tokio::select! {
        () = cluster.keys.keep_fresh() => (),
        () = script => (),
    }
}

#[test]
fn a_failed_fetch_is_repeated_soon() {
    assert_eq!(pause(EVERY, false), EVERY);
    assert!(pause(EVERY, true) <= Duration::from_mins(1));
    assert_eq!(pause(reload::EVERY, true), reload::EVERY.min(AT_MOST));
}
