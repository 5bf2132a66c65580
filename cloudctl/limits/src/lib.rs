//! What limits on vendor calls mean for a cluster of some size: the adapter's own scheduler decides, in virtual time, about the calls
//! that the adapter and its controllers make. Hours pass in milliseconds, and the same question has the same answer each time.
//!
//! In reading order:
//! - [`Args`] and [`Question`]: what is asked; the file is read by the adapter's own code;
//! - `cloud`: what a cloud's driver sends for each thing that happens, from the drivers;
//! - `world`: the scheduler, a vendor that answers after a fixed time, and the clock between them;
//! - `cluster`: listings that are shared, load balancers that converge, routes in batches, as the adapter does it;
//! - `scenarios`: what is made to happen; `tally`: what is counted meanwhile;
//! - `cases`: which of it takes too long; `advice`: what to write where, and why; [`Report`] and its text.
//!
//! The model vendor answers each call, a read after 200 ms and a write after 500 ms, and what was written shows in the next read. It
//! throttles nothing: whether a vendor allows what a file says, only the vendor knows.

mod advice;
mod args;
mod cases;
mod cloud;
mod cluster;
mod quantiles;
mod report;
mod scenarios;
mod table;
mod tally;
mod world;

pub use self::{
    advice::Advice,
    args::{Args, Error, Question},
    cloud::Cloud,
    quantiles::Quantiles,
    report::{Bound, BucketUse, CallCount, ClassWait, FamilyShare, Listed, Report, Scenario, Steady, Users},
    scenarios::simulate,
};

/// Reads the file and answers.
///
/// # Errors
/// If the file cannot be read, or is not as the adapter takes it: all faults, with their keys.
pub fn run(args: &Args) -> Result<Report, Error> {
    Ok(simulate(&args.question()?))
}
