//! Provider IDs of the simulated cloud: `sim://<region>/<instance-id>`.

use cloud_adapter::driver::Location;

/// The part before `://`.
pub(crate) const SCHEME: &str = "sim";

/// The value for `Node.spec.providerID`.
pub(crate) fn write(region: &str, instance: &str) -> String {
    format!("{SCHEME}://{region}/{instance}")
}

/// Splits a provider ID, and compares its region with `region`.
///
/// The instance ID may have only letters, digits and dashes, because it is sent in comma-separated lists.
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

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_provider_id_is_located() {
        assert_eq!(locate("sim-1", &write("sim-1", "i-0001")), Location::Here("i-0001".to_owned()));
    }

    #[test]
    fn provider_ids_are_here_elsewhere_or_malformed() {
        for (provider_id, wanted) in [
            ("sim://sim-2/i-0001", Location::Elsewhere),
            ("aws:///eu-west-1a/i-0123", Location::Elsewhere),
            ("openstack://region/6e23", Location::Elsewhere),
            ("kind://docker/kind/worker", Location::Elsewhere),
            ("sim://sim-1/", Location::Malformed),
            ("sim://sim-1/i-1/more", Location::Malformed),
            ("sim://sim-1/i-1,i-2", Location::Malformed),
            ("sim:///i-1", Location::Malformed),
            ("sim://i-1", Location::Malformed),
            ("sim://sim-1/../project", Location::Malformed),
            ("i-0001", Location::Malformed),
            ("", Location::Malformed),
            ("://x", Location::Malformed),
        ] {
            assert_eq!(locate("sim-1", provider_id), wanted, "{provider_id}");
        }
    }
}
