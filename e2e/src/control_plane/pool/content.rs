//! What an etcd has, to put it back. The API server follows, as it would what another API server writes.
//!
//! Spoken is etcd's JSON API: <https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>. Keys and values are base64 there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::http::Http;

/// All that Kubernetes has is between these.
const RANGE: [&str; 2] = ["/registry/", "/registry0"];
/// What the API server makes some time after it is ready.
const LATE: [&str; 3] = [
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/servicecidrs/kubernetes",
    "/registry/services/specs/default/kubernetes",
];
/// The API server renews its own, whatever was there.
const LEASES: &str = "/registry/leases/";
/// etcd takes 128 in one transaction.
const AT_ONCE: usize = 100;
/// Nothing new in so many looks, of which there are ten a second: then it has made what it makes at a start.
const QUIET_LOOKS: usize = 10;
/// And so many looks without a difference: then etcd is as at first, and no process changes it any more.
const STILL_LOOKS: usize = 2;
/// A second or two; the rest is for a machine under load.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// Keys and values, as base64, by what the keys are.
type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Entry {
    key: String,
    #[serde(default)]
    value: String,
}

/// What it had at first.
#[derive(Debug)]
pub(super) struct Content {
    etcd: Etcd,
    at_first: Entries,
}

impl Content {
    /// Waits until the API server has made what it makes for itself.
    pub(super) async fn settled(url: &str) -> anyhow::Result<Self> {
        let etcd = Etcd { url: url.to_owned(), http: Http::new()? };
        let looks = Mutex::new(Looks::default());
        eventually("the API server has made its own objects", SETTLED_WITHIN, || async {
            let now = etcd.entries().await?;
            looks.lock().unwrap_or_else(PoisonError::into_inner).settles(now)
        })
        .await?;
        let at_first = looks.into_inner().unwrap_or_else(PoisonError::into_inner).last;
        Ok(Self { etcd, at_first })
    }

    /// Puts it back.
    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        // Who was killed may have had a write under way, which comes after we have looked.
        let still = AtomicUsize::new(0);
        eventually("etcd stays as it was at first", SETTLED_WITHIN, || async {
            let orders = orders(&self.at_first, &self.etcd.entries().await?);
            for chunk in orders.chunks(AT_ONCE) {
                self.etcd.call("kv/txn", &json!({ "success": chunk })).await?;
            }
            let looks = if orders.is_empty() { still.load(Relaxed) + 1 } else { 0 };
            still.store(looks, Relaxed);
            ensure!(looks == STILL_LOOKS, "{} keys were not as at first", orders.len());
            Ok(())
        })
        .await
    }
}

/// What was there at each look.
#[derive(Debug, Default)]
struct Looks {
    last: Entries,
    quiet: usize,
}

impl Looks {
    /// Fails while something is missing, or is new.
    fn settles(&mut self, now: Entries) -> anyhow::Result<()> {
        self.quiet = if orders(&self.last, &now).is_empty() { self.quiet + 1 } else { 0 };
        self.last = now;
        let missing = LATE.iter().find(|key| !self.last.contains_key(**key));
        ensure!(missing.is_none(), "there is no {missing:?}");
        ensure!(self.quiet >= QUIET_LOOKS, "{} looks in a row showed nothing new", self.quiet);
        Ok(())
    }
}

/// What makes the first of the second.
fn orders(wanted: &Entries, there: &Entries) -> Vec<Value> {
    let gone = there.iter().filter(|(key, _)| !wanted.contains_key(*key));
    let gone = gone.map(|(_, entry)| json!({ "requestDeleteRange": { "key": entry.key } }));
    let changed = wanted.iter().filter(|(key, entry)| match there.get(*key) {
        Some(now) => now != *entry && !key.starts_with(LEASES),
        None => true,
    });
    let put = |entry: &Entry| json!({ "requestPut": { "key": entry.key, "value": entry.value } });
    gone.chain(changed.map(|(_, entry)| put(entry))).collect()
}

#[derive(Debug)]
struct Etcd {
    url: String,
    http: Http,
}

impl Etcd {
    async fn entries(&self) -> anyhow::Result<Entries> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            kvs: Vec<Entry>,
        }
        let [from, to] = RANGE.map(|key| STANDARD.encode(key));
        let answer = self.call("kv/range", &json!({ "key": from, "rangeEnd": to })).await?;
        let answer: Answer = serde_json::from_str(&answer).context("not what etcd answers")?;
        let named = answer.kvs.into_iter().map(|entry| {
            let key = STANDARD.decode(&entry.key).context("not base64")?;
            Ok((String::from_utf8(key).context("not a key of Kubernetes")?, entry))
        });
        named.collect()
    }

    async fn call(&self, method: &str, request: &Value) -> anyhow::Result<String> {
        let url = format!("{}/v3/{method}", self.url);
        self.http.text(&url, |client| client.post(&url).json(request)).await
    }
}

#[cfg(test)]
mod tests {
    use super::{Entries, Entry, LATE, Looks, QUIET_LOOKS, json, orders};

    fn entries(all: &[(&str, &str)]) -> Entries {
        let entry = |key: &str, value: &str| Entry { key: format!("<{key}>"), value: value.to_owned() };
        all.iter().map(|(key, value)| ((*key).to_owned(), entry(key, value))).collect()
    }

    #[test]
    fn what_came_goes_and_what_was_changed_or_went_comes_back() {
        let wanted = entries(&[("a", "1"), ("b", "2"), ("c", "3"), ("/registry/leases/x", "old")]);
        let there = entries(&[("a", "1"), ("b", "4"), ("d", "5"), ("/registry/leases/x", "new")]);
        let put = |key: &str, value: &str| json!({ "requestPut": { "key": key, "value": value } });
        let wanted_orders =
            [json!({ "requestDeleteRange": { "key": "<d>" } }), put("<b>", "2"), put("<c>", "3")];
        assert_eq!(orders(&wanted, &there), wanted_orders);
        assert!(orders(&wanted, &wanted).is_empty());
    }

    #[test]
    fn it_has_settled_when_nothing_is_missing_and_nothing_new_comes() {
        let late = LATE.map(|key| (key, "1"));
        let mut looks = Looks::default();
        assert!((0..=QUIET_LOOKS).all(|_| looks.settles(entries(&late[..2])).is_err()), "one is missing");
        assert!((0..QUIET_LOOKS).all(|_| looks.settles(entries(&late)).is_err()), "the last one is new");
        looks.settles(entries(&late)).unwrap();
        looks.settles(entries(&[&late[..], &[("more", "1")]].concat())).unwrap_err();
    }
}
