//! All that is true of one elector is true of one shard.

use crate::{BEGIN, FakeServer, server, start_one_shard as start};

#[path = "handover.rs"]
#[expect(clippy::duplicate_mod, reason = "the same tests, of another elector")]
mod handover;
#[path = "trouble.rs"]
#[expect(clippy::duplicate_mod, reason = "the same tests, of another elector")]
mod trouble;
