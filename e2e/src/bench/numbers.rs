//! Converts counts to floating-point numbers, to calculate shares.

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub(super) fn float(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub(super) fn of_count(n: u64) -> f64 {
    n as f64
}
