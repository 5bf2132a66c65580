//! Provider IDs of the simulated cloud: `sim://<region>/<instance-id>`.

use cloud_adapter::{
    driver::Location,
    kit::{self, Region},
};

/// The part before `://`.
pub(crate) const SCHEME: &str = "sim";

/// The value for `Node.spec.providerID`.
pub(crate) fn write(region: &str, instance: &str) -> String {
    format!("{SCHEME}://{region}/{instance}")
}

/// Splits a provider ID, and compares its region with `region`.
pub(crate) fn locate(region: &str, provider_id: &str) -> Location {
    kit::locate(SCHEME, Region::Required(region), provider_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_provider_id_is_located() {
        assert_eq!(locate("sim-1", &write("sim-1", "i-0001")), Location::Here("i-0001".to_owned()));
        assert_eq!(locate("sim-1", "sim:///i-0001"), Location::Malformed);
    }
}
