//! Versions of Octavia's API.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Version {
    /// Minimum version that the driver needs. Tags need 2.5, adding members 2.11, and allowed CIDRs 2.12 (Train, 2019).
    pub(crate) const NEEDED: Self = Self::v2(12);
    pub(crate) const ZONES: Self = Self::v2(14);
    /// Minimum version for HTTP and TCP health monitors of UDP pools (Ussuri, 2020).
    pub(crate) const UDP_BY_TCP: Self = Self::v2(16);
    pub(crate) const PROXY_V2: Self = Self::v2(22);
    pub(crate) const SCTP: Self = Self::v2(23);
    /// Minimum version for additional VIPs, which dual stack needs.
    pub(crate) const ADDITIONAL_VIPS: Self = Self::v2(26);

    pub(crate) const fn v2(minor: u32) -> Self {
        Self { major: 2, minor }
    }

    /// Parses a version such as `v2.26`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (major, minor) = text.strip_prefix('v')?.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(Version::read("v2.9").expect("good") < Version::NEEDED);
        assert!(Version::read("v2.30").expect("good") > Version::ADDITIONAL_VIPS);
        for text in ["2.9", "v2", "v2.x", ""] {
            assert_eq!(Version::read(text), None, "{text}");
        }
    }
}
