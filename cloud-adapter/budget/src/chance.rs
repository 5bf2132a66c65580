//! Deterministic jitter: the same ticket always gives the same value, so that a run can be reproduced.

use crate::Ticket;

/// Returns a number from 0 to 1, evenly distributed over the tickets. Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
/// Generators" (SplitMix64).
pub(crate) fn jitter(ticket: Ticket) -> f64 {
    let mut bits = ticket.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
