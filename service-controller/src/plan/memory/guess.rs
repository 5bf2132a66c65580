//! What stands in for a wish of which something cannot change on what is there: see [`super::super::as_it_is`].
//!
//! It comes before the last wish that was good: an adapter does first whatever can be done of a wish, and the older wish would undo that.

use std::sync::Arc;

use super::{
    super::{spec::Shape, wanted::Wanted},
    Memory,
};

/// What stands in for a wish of which something cannot change on what is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Guess {
    /// The digest of that wish.
    wish: String,
    /// What stood in, or was good, before.
    before: Option<Arc<Wanted>>,
    /// The adapter took it up.
    pub(super) taken: bool,
}

impl Memory {
    /// Whether it is worth a try to let something stand in for this refused wish: it was not tried yet.
    pub(crate) fn may_guess(&self, wish: &Shape) -> bool {
        let tried = self.guess.as_ref().is_some_and(|guess| guess.wish == wish.digest);
        let refused = self.refused.as_ref().is_some_and(|(digest, _)| *digest == wish.digest);
        refused && !tried
    }

    /// Lets this stand in for the wish that was refused.
    pub(crate) fn guess(&mut self, wish: &Shape, stand_in: Wanted) {
        let before = self.good.replace(Arc::new(stand_in));
        self.guess = Some(Guess { wish: wish.digest.clone(), before, taken: false });
        self.work = None;
    }

    /// The adapter refuses what stands in. Whether that was never right: it is given up then, for what was there before.
    pub(crate) fn guessed_wrong(&mut self) -> bool {
        let Some(guess) = self.guess.as_mut().filter(|guess| !guess.taken) else { return false };
        self.good = guess.before.take();
        true
    }
}
