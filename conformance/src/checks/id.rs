//! ID: what an adapter says of itself.

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[];
