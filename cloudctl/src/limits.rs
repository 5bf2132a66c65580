//! `cloudctl limits simulate` shows the effect of limits on vendor calls in a cluster of a given size. It is the only command that needs no
//! cluster; it reads one file. The adapter's own scheduler decides, in virtual time, about the calls that the adapter and its controllers
//! make. A simulation of hours takes milliseconds, and the same question always has the same answer.
//!
//! In reading order:
//! - [`SimulateArgs`] and [`Question`]: the question. The adapter's own code parses the file;
//! - `cloud`: the calls that a cloud's driver sends for each event, copied from the drivers;
//! - `world`: the scheduler, a vendor that answers after a fixed time, and the clock between them;
//! - `cluster`: shared listings, load balancers that converge, and routes in batches, modelled on the adapter;
//! - `scenarios`: the simulated events; `tally`: the counters;
//! - `results`: what the events cost; `cases`: decides which events take too long; `advice`: what to write to which key, and why;
//! - [`Report`] and its text, in `table`.
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
mod results;
mod scenarios;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod world;

use clap::{Args, Subcommand};

use self::{
    advice::Advice,
    args::{Question, SimulateArgs},
    cloud::Cloud,
    quantiles::Quantiles,
    report::Report,
    results::{Scenario, Steady},
    scenarios::simulate,
};
use crate::session::Usage;

/// Flags of `cloudctl limits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    what: What,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Simulate an adapter's configuration file on a cluster of a given size, with the adapter's own scheduler in virtual time. Shows how
    /// long a start and a new node take, how long users wait, which limit causes the longest wait, and which settings to change
    Simulate(SimulateArgs),
}

impl LimitsArgs {
    pub(crate) fn report(&self) -> Result<Report, Usage> {
        let What::Simulate(args) = &self.what;
        Ok(simulate(&args.question()?))
    }
}
