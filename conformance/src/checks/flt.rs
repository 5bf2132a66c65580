//! FLT: faults.

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[];
