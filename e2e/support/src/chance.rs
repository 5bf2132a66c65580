//! Random numbers that are the same in each run of a test.

/// SplitMix64. Source: Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Creates a generator. Different seeds give different sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`, or 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True with a probability of 1/n.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random element of `all`. `None` if `all` is empty.
    pub fn of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(u64::try_from(all.len()).ok()?)).ok()?;
        all.get(at).cloned()
    }
}
