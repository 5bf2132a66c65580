//! Versions in the output of these programs.

use std::fmt;

/// Major, minor and patch version; suffixes (`-rc.1`, `+build`) are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The major version.
    pub major: u64,
    /// The minor version.
    pub minor: u64,
    /// The patch version.
    pub patch: u64,
}

impl Version {
    pub(crate) const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch }
    }

    /// Finds the first word of the output that looks like `v1.36.3` or `1.36.3`.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | '"')).find_map(Self::parse)
    }

    /// Returns whether this version has the same major and minor version as `wanted`, and can therefore replace it.
    pub(crate) fn stands_in_for(self, wanted: Self) -> bool {
        (self.major, self.minor) == (wanted.major, wanted.minor)
    }

    fn parse(word: &str) -> Option<Self> {
        let digits = word.strip_prefix('v').unwrap_or(word);
        let mut parts = digits.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let patch = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?, patch.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("v{}.{}.{}", self.major, self.minor, self.patch))
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_of_all_programs_are_parsed() {
        let cases = [
            (
                "etcd",
                "etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8\n",
                Version::new(3, 6, 8),
            ),
            ("kube-apiserver", "Kubernetes v1.36.3\n", Version::new(1, 36, 3)),
            ("kubectl", "Client Version: v1.36.3\nKustomize Version: v5.8.1\n", Version::new(1, 36, 3)),
            ("a wrapped kubectl", "Client Version: v1.32.4-dispatcher\n", Version::new(1, 32, 4)),
            ("helm", "v4.3.1+g1234abc\n", Version::new(4, 3, 1)),
            ("containerd", "containerd github.com/containerd/containerd/v2 v2.4.2 \n", Version::new(2, 4, 2)),
            (
                "the shim",
                "containerd-shim-runc-v2:\n  Version:  v2.4.2\n  Revision:\n",
                Version::new(2, 4, 2),
            ),
        ];
        for (name, answer, wanted) in cases {
            assert_eq!(Version::find(answer), Some(wanted), "{name}");
        }
    }

    #[test]
    fn output_without_a_version_has_none() {
        for answer in ["", "unknown flag", "v4.3", "1.x.3"] {
            assert_eq!(Version::find(answer), None, "{answer:?}");
        }
    }

    #[test]
    fn only_the_patch_version_may_differ() {
        let wanted = Version::new(1, 36, 3);
        assert!(Version::new(1, 36, 0).stands_in_for(wanted));
        assert!(!Version::new(1, 35, 3).stands_in_for(wanted));
        assert!(!Version::new(2, 36, 3).stands_in_for(wanted));
    }
}
