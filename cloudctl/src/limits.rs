//! `cloudctl limits`: simulates the effect of limits on vendor calls. The only command that reads nothing but a file.

use clap::{Args, Subcommand};
use limits_simulation::{Error, run};

use crate::{
    missing::Missing,
    output::{Paper, Report, Tone},
    session::Usage,
};

/// Flags of `cloudctl limits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    pub(crate) what: What,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum What {
    /// Simulate an adapter's file on a cluster of a given size, with the adapter's own scheduler in virtual time. Shows how long a start
    /// and a new node take, how long users wait, which limit causes the longest wait, and which settings to change
    Simulate(limits_simulation::Args),
}

/// Runs the simulation.
pub(crate) fn answer(what: &What) -> Result<limits_simulation::Report, Usage> {
    match what {
        What::Simulate(args) => {
            run(args).map_err(|error @ (Error::Read { .. } | Error::Invalid { .. })| Usage(error.to_string()))
        }
    }
}

impl Report for limits_simulation::Report {
    fn show(&self, paper: &mut Paper) {
        for line in self.to_string().lines() {
            let tone = if line.starts_with(' ') { Tone::Plain } else { Tone::Title };
            paper.toned(tone, line);
        }
    }

    fn missing(&self) -> &[Missing] {
        &[]
    }

    /// Advice does not count as a failure, because the vendor may not allow higher limits.
    fn is_well(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use limits_simulation::{Cloud, Question, simulate};

    use crate::output::{Format, written};

    #[test]
    fn a_simulation_is_printed_as_text_and_json() {
        let question = Question::new((3, 1, None), "{}", Cloud::Sim).expect("valid");
        let report = simulate(&question);
        let shown = written(&report, Format::Table, true).expect("UTF-8");
        assert!(shown.contains("\u{1b}[1m3 nodes, 1 Service, 3 routes\u{1b}[0m\n"), "{shown}");
        assert!(shown.contains("\n  converged after "), "{shown}");
        for format in [Format::Json, Format::Yaml] {
            let told = written(&report, format, false).expect("the error is printed");
            assert!(told.contains("convergedSeconds") && told.contains("callsPerHour"), "{told}");
        }
    }
}
