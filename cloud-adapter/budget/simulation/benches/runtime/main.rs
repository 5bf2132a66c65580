//! Prints the figures of the budget: throttling and fairness in virtual time, and the cost of a decision in real time.

#![expect(clippy::disallowed_methods, reason = "the benchmark measures real time")]

mod decisions;
mod fairness;
mod throttling;

fn main() -> anyhow::Result<()> {
    for rows in [throttling::rows, fairness::rows, decisions::rows] {
        doc_tools::bench::print(&rows())?;
    }
    Ok(())
}
