//! BUD: budgets of vendor calls.

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[];
