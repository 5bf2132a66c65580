//! Stores the record of untagged routes in a ConfigMap, one entry per route, so that the record survives a restart.
//!
//! On clouds with owner tags on routes, the record is empty, and no ConfigMap is created or written.

use std::collections::BTreeMap;

use controller_core::kube_api::{self, within};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::plan::record::Record;

/// Name of the ConfigMap, in the namespace of this process.
pub(crate) const NAME: &str = "route-controller-routes";

/// Maximum length of a ConfigMap's key. Source: Kubernetes' validation. Routes with longer IDs are kept in memory only.
const LONGEST_KEY: usize = 253;

#[derive(Clone, Debug)]
pub(crate) struct Store(Api<ConfigMap>);

impl Store {
    /// Creates the access to the ConfigMap in the namespace of the pod, or of the kubeconfig.
    pub(crate) fn new(kube: kube::Client) -> Self {
        Self(Api::default_namespaced(kube))
    }

    /// Loads the record. Without a ConfigMap the record is empty. Cost: one read.
    pub(crate) async fn load(&self) -> Result<Record, kube_api::Error> {
        let entries = match within(self.0.get(NAME)).await {
            Ok(found) => found.data.unwrap_or_default(),
            Err(error) if error.is_not_found() => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(entries.into_iter().filter_map(|(key, uid)| Some((decoded(&key)?, uid))).collect())
    }

    /// Updates the stored record to `record`. Cost: no request if nothing changed; else one write, or two if the ConfigMap does not exist
    /// yet.
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
        // The ConfigMap does not exist, so all entries are written. Otherwise the next process would not know the unchanged entries.
        let entries = record.entries().filter_map(|(id, uid)| Some((encoded(id)?, uid.to_owned())));
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            data: Some(entries.collect()),
            ..ConfigMap::default()
        };
        within(self.0.create(&PostParams::default(), &map)).await.map(drop)
    }
}

/// Encodes an ID as a key of a ConfigMap. Bytes other than ASCII letters, digits, `.` and `-` become `_` and two hexadecimal digits. Returns
/// `None` if the key is empty or too long.
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

/// Decodes a key. Returns `None` for keys that this controller did not write.
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
    fn id_round_trips_through_its_key() {
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
