//! Saves and restores the content of etcd. The API server sees the changes as if another API server had made them.
//!
//! This module uses etcd's JSON API: <https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>. Keys and values are base64 in this API.

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

/// The range of all Kubernetes keys.
const RANGE: [&str; 2] = ["/registry/", "/registry0"];
/// Objects that the API server creates only some time after it is ready.
const LATE: [&str; 3] = [
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/servicecidrs/kubernetes",
    "/registry/services/specs/default/kubernetes",
];
/// The Leases of the API server. The API server renews them in any case, so their values are not restored.
const LEASES: &str = "/registry/leases/";
/// The maximum number of operations per transaction. The default limit of etcd is 128.
const AT_ONCE: usize = 100;
/// The number of consecutive checks without new keys after which the API server has created all its objects. There are ten checks per
/// second.
const QUIET_CHECKS: usize = 10;
/// The number of consecutive checks without a difference after which the content counts as restored.
const STILL_CHECKS: usize = 2;
/// The deadline. Restoring usually takes one or two seconds. The limit is higher because the host may be busy.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// Values by key, both as base64.
type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Entry {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug)]
pub(super) struct Content {
    etcd: Etcd,
    at_first: Entries,
}

impl Content {
    pub(super) async fn settled(url: &str) -> anyhow::Result<Self> {
        let etcd = Etcd { url: url.to_owned(), http: Http::new()? };
        let checks = Mutex::new(Checks::default());
        eventually("the API server has created its own objects", SETTLED_WITHIN, || async {
            let now = etcd.entries().await?;
            checks.lock().unwrap_or_else(PoisonError::into_inner).settles(now)
        })
        .await?;
        let at_first = checks.into_inner().unwrap_or_else(PoisonError::into_inner).last;
        Ok(Self { etcd, at_first })
    }

    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        // A process that was killed may have sent a write that arrives after a check.
        let still = AtomicUsize::new(0);
        eventually("etcd keeps its initial content", SETTLED_WITHIN, || async {
            let orders = orders(&self.at_first, &self.etcd.entries().await?);
            for chunk in orders.chunks(AT_ONCE) {
                self.etcd.call("kv/txn", &json!({ "success": chunk })).await?;
            }
            let checks = if orders.is_empty() { still.load(Relaxed) + 1 } else { 0 };
            still.store(checks, Relaxed);
            ensure!(checks == STILL_CHECKS, "{} keys differed from the initial content", orders.len());
            Ok(())
        })
        .await
    }
}

/// The entries that the last check found, and the number of consecutive checks without a change.
#[derive(Debug, Default)]
struct Checks {
    last: Entries,
    quiet: usize,
}

impl Checks {
    /// Returns an error while an expected key is missing, or while there are new keys.
    fn settles(&mut self, now: Entries) -> anyhow::Result<()> {
        self.quiet = if orders(&self.last, &now).is_empty() { self.quiet + 1 } else { 0 };
        self.last = now;
        let missing = LATE.iter().find(|key| !self.last.contains_key(**key));
        ensure!(missing.is_none(), "missing key {missing:?}");
        ensure!(self.quiet >= QUIET_CHECKS, "{} consecutive checks found no new keys", self.quiet);
        Ok(())
    }
}

/// The operations that turn the content `there` into the content `wanted`.
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
        let answer: Answer = serde_json::from_str(&answer).context("invalid answer of etcd")?;
        let named = answer.kvs.into_iter().map(|entry| {
            let key = STANDARD.decode(&entry.key).context("invalid base64")?;
            Ok((String::from_utf8(key).context("invalid Kubernetes key")?, entry))
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
    use super::{Checks, Entries, Entry, LATE, QUIET_CHECKS, json, orders};

    fn entries(all: &[(&str, &str)]) -> Entries {
        let entry = |key: &str, value: &str| Entry { key: format!("<{key}>"), value: value.to_owned() };
        all.iter().map(|(key, value)| ((*key).to_owned(), entry(key, value))).collect()
    }

    #[test]
    fn restore_undoes_additions_changes_and_deletions() {
        let wanted = entries(&[("a", "1"), ("b", "2"), ("c", "3"), ("/registry/leases/x", "old")]);
        let there = entries(&[("a", "1"), ("b", "4"), ("d", "5"), ("/registry/leases/x", "new")]);
        let put = |key: &str, value: &str| json!({ "requestPut": { "key": key, "value": value } });
        let wanted_orders =
            [json!({ "requestDeleteRange": { "key": "<d>" } }), put("<b>", "2"), put("<c>", "3")];
        assert_eq!(orders(&wanted, &there), wanted_orders);
        assert!(orders(&wanted, &wanted).is_empty());
    }

    #[test]
    fn content_settles_without_missing_and_new_keys() {
        let late = LATE.map(|key| (key, "1"));
        let mut checks = Checks::default();
        assert!((0..=QUIET_CHECKS).all(|_| checks.settles(entries(&late[..2])).is_err()), "a key is missing");
        assert!((0..QUIET_CHECKS).all(|_| checks.settles(entries(&late)).is_err()), "the last key is new");
        checks.settles(entries(&late)).unwrap();
        checks.settles(entries(&[&late[..], &[("more", "1")]].concat())).unwrap_err();
    }
}
