//! Short digests, for IDs and for comparisons.

/// Length of a digest in bytes. 128 bits make collisions negligible.
const LENGTH: usize = 16;

pub(super) fn short(digest: &[u8]) -> String {
    digest.iter().take(LENGTH).map(|byte| format!("{byte:02x}")).collect()
}
