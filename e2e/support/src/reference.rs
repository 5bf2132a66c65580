//! For tests: compares docs/reference/metrics.md and docs/reference/events.md with the processes. The tables of these pages are generated
//! from the metrics that the processes export and from the Events that they emit.
//!
//! A unit test of each process uses every metric once, because a metric with labels is not exported before its first use. The test passes
//! the exported page to [`assert_up_to_date`]. If `UPDATE_REFERENCE` is set, the table is written instead of compared. With [`unlisted`],
//! an end-to-end test searches the pages of real processes for metrics that those unit tests missed. `cargo xtask check reasons` does the
//! same for Events.

mod document;
mod event;
mod metrics;

use document::{Document, table};
pub use event::Event;

const METRICS: Document = Document { name: "metrics.md" };
const EVENTS: Document = Document { name: "events.md" };

/// Fails unless the table of a process contains exactly the metrics of `page`. Metrics that the tables of the processes `beside` contain
/// are ignored. `page` is in the OpenMetrics format.
///
/// # Panics
/// Panics if the metrics differ, or if the document has no such table. The message says how to write the table.
#[track_caller]
pub fn assert_up_to_date(process: &str, beside: &[&str], page: &str) {
    METRICS.assert(process, &table("| metric | type | labels | unit | |", &unlisted(beside, page)));
}

/// Returns the rows of a page that are missing in the tables of these processes.
///
/// # Panics
/// Panics if the document cannot be read or lacks one of the tables.
#[must_use]
pub fn unlisted(processes: &[&str], page: &str) -> Vec<String> {
    METRICS.without(processes, metrics::rows(page))
}

/// Fails unless the table of a process has exactly these Events.
///
/// # Panics
/// Panics if the Events differ, or if the document has no such table. The message says how to write the table.
#[track_caller]
pub fn assert_events_up_to_date(process: &str, events: &[Event]) {
    EVENTS.assert(process, &table("| reason | type | what it says, for instance |", &event::rows(events)));
}
