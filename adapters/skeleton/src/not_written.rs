//! Errors of functions that are not written yet. Delete this file when the last function is written.

use cloud_adapter::driver::{Fault, VendorError};

/// All parts of the driver that are to be written. The order makes each part testable as soon as it is written.
const PARTS: [&str; 7] = [
    "self_check, in src/driver.rs: returns the account of the credentials. From then on the adapter serves",
    "src/classify.rs: the cloud's own error codes",
    "list_page and get_batch, in src/instances.rs; capability instances",
    "list_page, in src/load_balancers.rs, with the fields that the plan compares",
    "plan_deletion, then plan, in src/plan.rs, with src/step.rs and execute; capability loadbalancers, then each lb.*",
    "list_page, in src/routes.rs, and plan_routes; capability routes",
    "describe, in src/driver.rs: with measured limits and consistency horizon",
];

pub(crate) fn not_written(part: &str, file: &str) -> VendorError {
    VendorError::new(Fault::Unsupported, format!("not written yet: {part}, in {file}"))
}

/// Returns the error of a driver in which no part is written yet. The error lists all parts.
pub(crate) fn nothing_written() -> VendorError {
    let lines: Vec<String> = PARTS.iter().zip(1..).map(|(part, n)| format!("\n  {n}. {part}")).collect();
    VendorError::new(
        Fault::Unsupported,
        format!("not written yet, to be written in this order:{}", lines.concat()),
    )
}
