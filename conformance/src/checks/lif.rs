//! LIF: the life of the process.

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[];
