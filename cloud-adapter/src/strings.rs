//! The contract's limits on string lengths, checked before all other validation. This module is pure.

use std::fmt;

use cloud_api_proto::{AdapterError, error::Violation, v1alpha1::Owner};

/// Maximum length of a string, and of a provider ID, in bytes. Some fields have other limits. Source: common.proto.
const STRING_MAX: usize = 256;
const PROVIDER_ID_MAX: usize = 512;
/// Maximum length of a Kubernetes qualified name: a DNS subdomain, a slash and a label.
const APP_PROTOCOL_MAX: usize = 253 + 1 + 63;

/// Returns a violation for each of these fields that is too long. `path` is the path of their message in the request.
pub(crate) fn too_long<'a>(
    path: impl fmt::Display,
    fields: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Vec<Violation> {
    let judge = |(name, text): (&str, &str)| judged(format!("{path}.{name}"), text, most(name));
    fields.into_iter().filter_map(judge).collect()
}

/// Returns a violation if this string of a list or map is too long. `path` is the path of the string in the request.
pub(crate) fn item_too_long(path: impl Into<String>, text: &str) -> Option<Violation> {
    judged(path.into(), text, STRING_MAX)
}

fn judged(field: String, text: &str, most: usize) -> Option<Violation> {
    let description = || format!("is {} bytes long: at most {most} are allowed", text.len());
    (text.len() > most).then(|| Violation { field, description: description() })
}

/// Maximum length of a field with this name, in bytes.
fn most(name: &str) -> usize {
    match name {
        "provider_id" => PROVIDER_ID_MAX,
        "app_protocol" => APP_PROTOCOL_MAX,
        _other => STRING_MAX,
    }
}

pub(crate) fn too_long_of_owner(path: &str, owner: &Owner) -> Vec<Violation> {
    let Owner { kind, namespace, name, uid } = owner;
    too_long(path, [("kind", kind.as_str()), ("namespace", namespace), ("name", name), ("uid", uid)])
}

/// Returns the faults as an error, if there are any.
///
/// Returns `FIELD_INVALID` if there are faults.
pub(crate) fn refuse(violations: Vec<Violation>) -> Result<(), AdapterError> {
    if violations.is_empty() { Ok(()) } else { Err(AdapterError::fields(violations)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_may_have_256_bytes() {
        let name = "x".repeat(STRING_MAX);
        let longer = Owner { name: format!("{name}x"), uid: name.clone(), ..Owner::default() };
        refuse(too_long_of_owner("owner", &Owner { name, ..Owner::default() })).expect("just short enough");
        let error = refuse(too_long_of_owner("upserts[3].owner", &longer)).expect_err("one byte too many");
        assert_eq!(error.message, "upserts[3].owner.name: is 257 bytes long: at most 256 are allowed");
    }
    #[test]
    fn provider_id_may_have_512_bytes() {
        let id = "x".repeat(PROVIDER_ID_MAX);
        let judged = |id: &str| refuse(too_long("refs[7]", [("provider_id", id)]));
        judged(&id).expect("just short enough");
        let error = judged(&format!("{id}x")).expect_err("one byte too many");
        assert_eq!(error.message, "refs[7].provider_id: is 513 bytes long: at most 512 are allowed");
    }
}
