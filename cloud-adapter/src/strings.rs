//! The contract's bound on strings: what is longer is refused before anything else looks at it. Pure.

use cloud_api_proto::{AdapterError, error::Violation, v1alpha1::Owner};

/// Bytes of a string, unless its field says otherwise. Source: common.proto.
const STRING_MAX: usize = 256;

/// The fields of a message, which stands at `path` in the request, that are too long.
pub(crate) fn too_long<'a>(
    path: &str,
    fields: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Vec<Violation> {
    let long = fields.into_iter().filter(|(_, text)| text.len() > STRING_MAX);
    let violation = |(name, text): (&str, &str)| Violation {
        field: format!("{path}.{name}"),
        description: format!("takes {} bytes: at most {STRING_MAX}", text.len()),
    };
    long.map(violation).collect()
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
}
