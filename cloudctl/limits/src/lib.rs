//! What limits on vendor calls mean for a cluster of a given size: the adapter's own scheduler decides, in virtual time, about the calls
//! that the adapter and its controllers make. Hours pass in milliseconds, and the same question has the same answer each time.
//!
//! In reading order:
//! - [`Args`] and [`Question`]: the question; the file is parsed by the adapter's own code;
//! - `cloud`: the calls that a cloud's driver sends for each event, copied from the drivers;
//! - `world`: the scheduler, a vendor that answers after a fixed time, and the clock between them;
//! - `cluster`: shared listings, load balancers that converge, routes in batches, as in the adapter;
//! - `scenarios`: the simulated events; `tally`: the counters;
//! - `cases`: which events take too long; `advice`: what to write where, and why; [`Report`] and its text.
//!
//! The model vendor answers each call, a read after 200 ms and a write after 500 ms, and a write is visible in the next read. It never
//! throttles: only the vendor knows which rates it allows.

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

/// Reads the file and runs the simulation.
///
/// # Errors
/// The file cannot be read, or the adapter would refuse it: all faults, with their keys.
pub fn run(args: &Args) -> Result<Report, Error> {
    Ok(simulate(&args.question()?))
}
