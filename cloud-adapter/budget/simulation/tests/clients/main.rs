//! The budget in front of a model vendor, beside clients that have none.

mod fairness;
mod throttling;
