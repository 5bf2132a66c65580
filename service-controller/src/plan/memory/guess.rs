//! Replacement settings for those that cannot be applied to the existing load balancer: see [`super::super::as_it_is`].
//!
//! They take precedence over the last valid settings: an adapter first applies the possible part of the new settings, which the old
//! settings would revert.

use std::sync::Arc;

use super::{
    super::{spec::Shape, wanted::Wanted},
    Memory,
};

/// Replacement settings for those that cannot be applied to the existing load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Guess {
    /// Digest of the refused settings.
    wish: String,
    /// The valid or replacement settings that were in force before.
    before: Option<Arc<Wanted>>,
    /// The adapter accepted the replacement.
    pub(super) taken: bool,
}

impl Memory {
    /// Whether a replacement for these refused settings can be tried. Each replacement is tried once.
    pub(crate) fn may_guess(&self, wish: &Shape) -> bool {
        let tried = self.guess.as_ref().is_some_and(|guess| guess.wish == wish.digest);
        let refused = self.refused.as_ref().is_some_and(|(digest, _)| *digest == wish.digest);
        refused && !tried
    }

    /// Replaces the refused settings by `stand_in`.
    pub(crate) fn guess(&mut self, wish: &Shape, stand_in: Wanted) {
        let before = self.good.replace(Arc::new(stand_in));
        self.guess = Some(Guess { wish: wish.digest.clone(), before, taken: false });
        self.work = None;
    }

    /// Records that the adapter refuses the replacement. If the adapter never accepted it, restores the previous settings and returns true.
    pub(crate) fn guessed_wrong(&mut self) -> bool {
        let Some(guess) = self.guess.as_mut().filter(|guess| !guess.taken) else { return false };
        self.good = guess.before.take();
        true
    }
}
