//! Provider IDs: `skeleton://<region>/<instance-id>`.

use cloud_adapter::{
    driver::Location,
    kit::{self, Region},
};

/// The part before `://`.
pub(crate) const SCHEME: &str = "skeleton";

/// Formats a provider ID, the text of `Node.spec.providerID`.
#[cfg_attr(not(test), expect(dead_code, reason = "used when instances are listed"))]
pub(crate) fn write(region: &str, instance: &str) -> String {
    format!("{SCHEME}://{region}/{instance}")
}

/// Parses a provider ID for an adapter in this region.
pub(crate) fn locate(region: &str, provider_id: &str) -> Location {
    kit::locate(SCHEME, Region::Required(region), provider_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_provider_id_is_located() {
        assert_eq!(locate("r1", &write("r1", "i-1")), Location::Here("i-1".to_owned()));
        assert_eq!(locate("r1", &write("r2", "i-1")), Location::Elsewhere);
    }
}
