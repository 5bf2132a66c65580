//! Provider IDs: `openstack:///<server>`, and `openstack://<region>/<server>` for clusters in several regions.

use cloud_adapter::driver::Location;

/// The part before `://`.
pub(crate) const SCHEME: &str = "openstack";

/// The form in which the adapter writes provider IDs. It reads both forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// `openstack:///<server>`
    #[default]
    Plain,
    /// `openstack://<region>/<server>`
    Regional,
}

/// Formats a provider ID, the text of `Node.spec.providerID`.
pub(crate) fn write(form: Form, region: &str, server: &str) -> String {
    let region = match form {
        Form::Plain => "",
        Form::Regional => region,
    };
    format!("{SCHEME}://{region}/{server}")
}

/// Parses a provider ID for an adapter in this region. An ID without a region counts as in this region.
pub(crate) fn locate(region: &str, provider_id: &str) -> Location {
    let Some((scheme, rest)) = provider_id.split_once("://") else { return Location::Malformed };
    if scheme != SCHEME {
        return if scheme.is_empty() { Location::Malformed } else { Location::Elsewhere };
    }
    match rest.split_once('/') {
        Some((there, server)) if is_word(server) => {
            if there.is_empty() || there == region {
                Location::Here(server.to_owned())
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
        let id = "7e0c9a52-4f0b-4a3e-9f6e-0c1f5b6f7a11";
        let here = Location::Here(id.to_owned());
        assert_eq!(locate("RegionOne", &format!("openstack:///{id}")), here);
        assert_eq!(locate("RegionOne", &format!("openstack://RegionOne/{id}")), here);
        for form in [Form::Plain, Form::Regional] {
            assert_eq!(locate("RegionOne", &write(form, "RegionOne", id)), here, "{form:?}");
        }
        assert_eq!(locate("RegionOne", &format!("openstack://RegionTwo/{id}")), Location::Elsewhere);
        assert_eq!(locate("RegionOne", "aws:///eu-west-1a/i-1"), Location::Elsewhere);
        for malformed in [
            "",
            id,
            "://r1/i-1",
            "openstack://",
            "openstack:///",
            "openstack:///../i-1",
            "openstack:///a/b",
            "openstack://RegionOne/",
            &format!("openstack://{id}"),
        ] {
            assert_eq!(locate("RegionOne", malformed), Location::Malformed, "{malformed:?}");
        }
    }
}
