//! Provider IDs: `<scheme>://<region>/<instance>`.

use crate::driver::Location;

/// The region of an adapter, and whether provider IDs name it.
#[derive(Clone, Copy, Debug)]
pub enum Region<'a> {
    /// Every provider ID contains a region.
    Required(&'a str),
    /// A provider ID may lack a region, as in `<scheme>:///<instance>`. Such an ID counts as an ID of this region.
    Optional(&'a str),
}

/// Returns the text of `Node.spec.providerID` for an instance.
pub fn provider_id(scheme: &str, region: &str, instance: &str) -> String {
    format!("{scheme}://{region}/{instance}")
}

/// Parses a provider ID for an adapter in a region. An instance ID contains only characters that need no encoding in an API path or a list.
pub fn locate(scheme: &str, region: Region<'_>, provider_id: &str) -> Location {
    let Some((other, rest)) = provider_id.split_once("://") else { return Location::Malformed };
    if other != scheme {
        return if other.is_empty() { Location::Malformed } else { Location::Elsewhere };
    }
    let Some((there, instance)) = rest.split_once('/').filter(|(_, instance)| is_word(instance)) else {
        return Location::Malformed;
    };
    let is_here = match region {
        Region::Required(_) if !is_word(there) => return Location::Malformed,
        Region::Required(here) => there == here,
        Region::Optional(here) => there.is_empty() || there == here,
    };
    if is_here { Location::Here(instance.to_owned()) } else { Location::Elsewhere }
}

/// Returns whether a text consists of letters, digits and dashes.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_are_here_elsewhere_or_malformed() {
        let here = || Location::Here("i-0001".to_owned());
        for (id, required, optional) in [
            ("acme://r-1/i-0001", here(), here()),
            ("acme:///i-0001", Location::Malformed, here()),
            ("acme://r-2/i-0001", Location::Elsewhere, Location::Elsewhere),
            ("aws:///eu-west-1a/i-0123", Location::Elsewhere, Location::Elsewhere),
            ("kind://docker/kind/worker", Location::Elsewhere, Location::Elsewhere),
        ] {
            assert_eq!(locate("acme", Region::Required("r-1"), id), required, "{id}");
            assert_eq!(locate("acme", Region::Optional("r-1"), id), optional, "{id}");
        }
        assert_eq!(provider_id("acme", "r-1", "i-0001"), "acme://r-1/i-0001");
        for malformed in [
            "",
            "i-0001",
            "://x",
            "://r-1/i-1",
            "acme://",
            "acme:///",
            "acme://i-1",
            "acme://r-1/",
            "acme://r-1/i-1/more",
            "acme://r-1/i-1,i-2",
            "acme://r-1/../project",
            "acme:///../i-1",
        ] {
            for region in [Region::Required("r-1"), Region::Optional("r-1")] {
                assert_eq!(locate("acme", region, malformed), Location::Malformed, "{malformed:?}");
            }
        }
    }
}
