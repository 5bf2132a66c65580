//! Tests the budget with a model vendor, and compares it with clients without a budget.

mod fairness;
mod throttling;
