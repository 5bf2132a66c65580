//! The contract's bound on strings: what is longer is refused before anything else looks at it. Pure.

use std::fmt;

use cloud_api_proto::{AdapterError, error::Violation, v1alpha1::Owner};

/// Bytes of a string, unless its field says otherwise, and of a provider ID. Source: common.proto.
const STRING_MAX: usize = 256;
const PROVIDER_ID_MAX: usize = 512;
/// A qualified name of Kubernetes: a DNS subdomain, a slash and a label.
const APP_PROTOCOL_MAX: usize = 253 + 1 + 63;

/// The fields of a message, which stands at `path` in the request, that are too long.
pub(crate) fn too_long<'a>(
    path: impl fmt::Display,
    fields: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Vec<Violation> {
    let judge = |(name, text): (&str, &str)| judged(format!("{path}.{name}"), text, most(name));
    fields.into_iter().filter_map(judge).collect()
}

/// One string of a list or a map that is too long; `path` is its own.
pub(crate) fn item_too_long(path: impl Into<String>, text: &str) -> Option<Violation> {
    judged(path.into(), text, STRING_MAX)
}

fn judged(field: String, text: &str, most: usize) -> Option<Violation> {
    let description = || format!("takes {} bytes: at most {most}", text.len());
    (text.len() > most).then(|| Violation { field, description: description() })
}

/// Bytes that a field of this name takes.
fn most(name: &str) -> usize {
    match name {
        "provider_id" => PROVIDER_ID_MAX,
        "app_protocol" => APP_PROTOCOL_MAX,
        _other => STRING_MAX,
    }
}

/// Those of an owner.
pub(crate) fn too_long_of_owner(path: &str, owner: &Owner) -> Vec<Violation> {
    let Owner { kind, namespace, name, uid } = owner;
    too_long(path, [("kind", kind.as_str()), ("namespace", namespace), ("name", name), ("uid", uid)])
}

/// Refuses what was found, if anything was.
///
/// # Errors
/// `FIELD_INVALID`.
pub(crate) fn refuse(violations: Vec<Violation>) -> Result<(), AdapterError> {
    if violations.is_empty() { Ok(()) } else { Err(AdapterError::fields(violations)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_of_256_bytes_is_taken_and_one_more_is_named() {
        let name = "x".repeat(STRING_MAX);
        let longer = Owner { name: format!("{name}x"), uid: name.clone(), ..Owner::default() };
        refuse(too_long_of_owner("owner", &Owner { name, ..Owner::default() })).expect("just fits");
        let error = refuse(too_long_of_owner("upserts[3].owner", &longer)).expect_err("one byte too many");
        assert_eq!(error.message, "upserts[3].owner.name: takes 257 bytes: at most 256");
    }
    #[test]
    fn a_provider_id_of_512_bytes_is_taken_and_one_more_is_named() {
        let id = "x".repeat(PROVIDER_ID_MAX);
        let judged = |id: &str| refuse(too_long("refs[7]", [("provider_id", id)]));
        judged(&id).expect("just fits");
        let error = judged(&format!("{id}x")).expect_err("one byte too many");
        assert_eq!(error.message, "refs[7].provider_id: takes 513 bytes: at most 512");
    }
}
