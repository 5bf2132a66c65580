//! The budget with a model vendor, compared with clients that have no budget.

mod fairness;
mod throttling;
