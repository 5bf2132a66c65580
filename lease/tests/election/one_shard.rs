//! Runs the tests of `Elector` with an elector for one shard.

use crate::{BEGIN, FakeServer, server, start_one_shard as start};

#[path = "handover.rs"]
#[expect(clippy::duplicate_mod, reason = "the same tests, with another elector")]
mod handover;
#[path = "trouble.rs"]
#[expect(clippy::duplicate_mod, reason = "the same tests, with another elector")]
mod trouble;
