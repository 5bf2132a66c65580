//! Pseudo-random numbers that are the same in each run.

/// The generator SplitMix64. Source: Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The upper half of the 64-bit number is sufficient.
        f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}
