//! Provider IDs: `skeleton://<region>/<instance-id>`.

use cloud_adapter::driver::Location;

/// The part before `://`.
pub(crate) const SCHEME: &str = "skeleton";

/// Formats a provider ID, the text of `Node.spec.providerID`.
#[cfg_attr(not(test), expect(dead_code, reason = "used when instances are listed"))]
pub(crate) fn write(region: &str, instance: &str) -> String {
    format!("{SCHEME}://{region}/{instance}")
}

/// Parses a provider ID for an adapter in this region.
pub(crate) fn locate(region: &str, provider_id: &str) -> Location {
    let Some((scheme, rest)) = provider_id.split_once("://") else { return Location::Malformed };
    if scheme != SCHEME {
        return if scheme.is_empty() { Location::Malformed } else { Location::Elsewhere };
    }
    match rest.split_once('/') {
        Some((there, instance)) if is_word(there) && is_word(instance) => {
            if there == region {
                Location::Here(instance.to_owned())
            } else {
                Location::Elsewhere
            }
        }
        Some(_) | None => Location::Malformed,
    }
}

/// Characters that need no encoding in an API path.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_are_here_elsewhere_or_malformed() {
        assert_eq!(locate("r1", &write("r1", "i-1")), Location::Here("i-1".to_owned()));
        assert_eq!(locate("r1", &write("r2", "i-1")), Location::Elsewhere);
        assert_eq!(locate("r1", "aws:///eu-west-1a/i-1"), Location::Elsewhere);
        for malformed in
            ["", "i-1", "://r1/i-1", &write("r1", ""), &write("r1", "../i-1"), &write("r1", "a/b")]
        {
            assert_eq!(locate("r1", malformed), Location::Malformed, "{malformed:?}");
        }
    }
}
