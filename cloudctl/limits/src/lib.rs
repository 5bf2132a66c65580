//! Simulates the effect of limits on vendor calls in a cluster of a given size. The adapter's own scheduler decides, in virtual time, about
//! the calls that the adapter and its controllers make. A simulation of hours takes milliseconds, and the same question always has the same
//! answer.
//!
//! In reading order:
//! - [`Args`] and [`Question`]: the question. The adapter's own code parses the file;
//! - `cloud`: the calls that a cloud's driver sends for each event, copied from the drivers;
//! - `world`: the scheduler, a vendor that answers after a fixed time, and the clock between them;
//! - `cluster`: shared listings, load balancers that converge, and routes in batches, modelled on the adapter;
//! - `scenarios`: the simulated events; `tally`: the counters;
//! - `cases`: decides which events take too long; `advice`: what to write to which key, and why; [`Report`] and its text.
//!
//! The model vendor answers a read after 200 ms and a write after 500 ms, and each write is visible in the next read. The model never
//! throttles, because only the real vendor knows which rates it allows.

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
pub fn run(args: &Args) -> Result<Report, Error> {
    Ok(simulate(&args.question()?))
}
