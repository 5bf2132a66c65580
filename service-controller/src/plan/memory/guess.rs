//! What stands in for a wish of which something cannot change on what is there, where nothing that was good is remembered: see
//! [`super::super::as_it_is`].

use std::sync::Arc;

use super::{
    super::{spec::Shape, wanted::Wanted},
    Memory,
};

/// What stands in for a wish of which something cannot change on what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guess {
    /// The digest of that wish.
    wish: String,
    /// The adapter took it up.
    pub(super) taken: bool,
}

impl Memory {
    /// Whether it is worth a try to let something stand in for this refused wish: nothing that was good does, and it was not tried yet.
    pub(crate) fn may_guess(&self, wish: &Shape) -> bool {
        let tried = self.guess.as_ref().is_some_and(|guess| guess.wish == wish.digest);
        let refused = self.refused.as_ref().is_some_and(|(digest, _)| *digest == wish.digest);
        refused && !tried && (self.good.is_none() || self.guess.is_some())
    }

    /// Lets this stand in for the wish that was refused.
    pub(crate) fn guess(&mut self, wish: &Shape, stand_in: Wanted) {
        self.guess = Some(Guess { wish: wish.digest.clone(), taken: false });
        self.good = Some(Arc::new(stand_in));
        self.work = None;
    }

    /// The adapter refuses what stands in. Whether that was never right: it is given up then.
    pub(crate) fn guessed_wrong(&mut self) -> bool {
        let wrong = self.guess.as_ref().is_some_and(|guess| !guess.taken);
        if wrong {
            self.good = None;
        }
        wrong
    }
}
