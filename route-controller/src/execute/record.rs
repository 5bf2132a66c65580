//! Where the record of unmarked routes outlives the process: a ConfigMap of ours, an entry a route.
//!
//! Clouds that remember whose a route is leave the record empty: then there is no ConfigMap and nothing is written.

use std::collections::BTreeMap;

use controller_core::kube_api::{self, within};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::plan::record::Record;

/// The name of the ConfigMap, in the namespace of this process.
pub(crate) const NAME: &str = "route-controller-routes";

/// Longest key of a ConfigMap. Source: Kubernetes' validation. A route whose ID takes more is known to this process alone.
const LONGEST_KEY: usize = 253;

/// The ConfigMap.
#[derive(Clone, Debug)]
pub(crate) struct Store(Api<ConfigMap>);

impl Store {
    /// In the namespace of the pod, or of the kubeconfig.
    pub(crate) fn new(kube: kube::Client) -> Self {
        Self(Api::default_namespaced(kube))
    }

    /// What is kept; nothing if there is no ConfigMap. Cost: one read.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn load(&self) -> Result<Record, kube_api::Error> {
        let entries = match within(self.0.get(NAME)).await {
            Ok(found) => found.data.unwrap_or_default(),
            Err(error) if error.is_not_found() => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(entries.into_iter().filter_map(|(key, uid)| Some((decoded(&key)?, uid))).collect())
    }

    /// Makes what is kept the same as `record`. Cost: nothing if it is; else one write, and another if there is no ConfigMap.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn save(&self, record: &Record, stored: &Record) -> Result<(), kube_api::Error> {
        let changes = record.changes_since(stored);
        let data: BTreeMap<String, Option<&str>> =
            changes.into_iter().filter_map(|(id, uid)| Some((encoded(id)?, uid))).collect();
        if data.is_empty() {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "data": data }));
        match within(self.0.patch(NAME, &PatchParams::default(), &patch)).await {
            Err(error) if error.is_not_found() => (),
            done => return done.map(drop),
        }
        // It was never there, or somebody deleted it: all that is known, or the rest would be unknown to the next process.
        let entries = record.entries().filter_map(|(id, uid)| Some((encoded(id)?, uid.to_owned())));
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            data: Some(entries.collect()),
            ..ConfigMap::default()
        };
        within(self.0.create(&PostParams::default(), &map)).await.map(drop)
    }
}

/// An ID as a ConfigMap's key: what no key may hold is written as `_` and two hexadecimal digits. `None`: it is too long.
fn encoded(id: &str) -> Option<String> {
    let key: String = id
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => char::from(byte).to_string(),
            other => format!("_{other:02x}"),
        })
        .collect();
    (!key.is_empty() && key.len() <= LONGEST_KEY).then_some(key)
}

/// The ID again. `None`: a person wrote it.
fn decoded(key: &str) -> Option<String> {
    let mut parts = key.split('_');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_a_key_and_an_id_again() {
        for (id, key) in [
            ("10.244.1.0/24=192.0.2.11", "10.244.1.0_2f24_3d192.0.2.11"),
            ("fd00:244:0:1::/64=2001:db8::1", "fd00_3a244_3a0_3a1_3a_3a_2f64_3d2001_3adb8_3a_3a1"),
            ("a_b ü", "a_5fb_20_c3_bc"),
        ] {
            assert_eq!(encoded(id).as_deref(), Some(key));
            assert_eq!(decoded(key).as_deref(), Some(id));
        }
        assert_eq!((encoded(""), encoded(&"x".repeat(254))), (None, None));
        for strange in ["_", "a_2", "a_zz", "a_ff"] {
            assert_eq!(decoded(strange), None, "{strange}");
        }
    }
}
