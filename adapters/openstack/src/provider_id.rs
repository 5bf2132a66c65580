//! Provider IDs: `openstack:///<server>`, and `openstack://<region>/<server>` for clusters in several regions.

use cloud_adapter::{
    driver::Location,
    kit::{self, Region},
};

/// The part before `://`.
pub(crate) const SCHEME: &str = "openstack";

/// The form in which the adapter writes provider IDs. The adapter reads both forms.
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
    kit::provider_id(SCHEME, region, server)
}

/// Parses a provider ID for an adapter in this region. An ID without a region counts as an ID in this region.
pub(crate) fn locate(region: &str, provider_id: &str) -> Location {
    kit::locate(SCHEME, Region::Optional(region), provider_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_provider_ids_are_located() {
        let id = "7e0c9a52-4f0b-4a3e-9f6e-0c1f5b6f7a11";
        let here = Location::Here(id.to_owned());
        assert_eq!(locate("RegionOne", &format!("openstack:///{id}")), here);
        assert_eq!(locate("RegionOne", &format!("openstack://RegionOne/{id}")), here);
        for form in [Form::Plain, Form::Regional] {
            assert_eq!(locate("RegionOne", &write(form, "RegionOne", id)), here, "{form:?}");
        }
        assert_eq!(locate("RegionOne", &format!("openstack://RegionTwo/{id}")), Location::Elsewhere);
    }
}
