//! For tests: docs/reference/metrics.md and docs/reference/events.md, whose tables are made of what the processes show and tell.
//!
//! A unit test of each process lets everything happen once, for a metric with labels is on no page before, and hands its page to
//! [`assert_up_to_date`]. With `UPDATE_REFERENCE` in the environment the table is written instead of compared. An end-to-end test
//! looks on the pages of real processes for what those tests forgot: [`unlisted`]. What was forgotten among Events `cargo xtask check
//! reasons` finds.

mod document;
mod event;
mod metrics;

use document::{Document, table};
pub use event::Event;

const METRICS: Document = Document { name: "metrics.md" };
const EVENTS: Document = Document { name: "events.md" };

/// Fails unless the table of a process has what its page shows, no more and no less, but for what the tables of `beside` have.
/// `page`: in the OpenMetrics format.
///
/// # Panics
/// When they differ, or the document has no such table; the message tells how it is written.
#[track_caller]
pub fn assert_up_to_date(process: &str, beside: &[&str], page: &str) {
    METRICS.assert(process, &table("| metric | type | labels | unit | |", &unlisted(beside, page)));
}

/// The rows of a page that the tables of these processes do not have.
///
/// # Panics
/// When the document cannot be read or lacks one of the tables.
#[must_use]
pub fn unlisted(processes: &[&str], page: &str) -> Vec<String> {
    METRICS.without(processes, metrics::rows(page))
}

/// Fails unless the table of a process has these Events, no more and no less.
///
/// # Panics
/// When they differ, or the document has no such table; the message tells how it is written.
#[track_caller]
pub fn assert_events_up_to_date(process: &str, events: &[Event]) {
    EVENTS.assert(process, &table("| reason | type | what it says, for instance |", &event::rows(events)));
}
