//! RT: routes.

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[];
