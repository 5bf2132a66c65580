//! The commands, with their flags.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::{explain::ExplainArgs, limits::LimitsArgs, options::Common, orphans::OrphansArgs};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "Examples:
  The status, and the holders of shards:
    cloudctl status
  Why a Service has no address:
    cloudctl explain service default/web
  What would be done now, and what it costs:
    cloudctl plan
  How long limits would keep a cluster of 1,000 nodes waiting, and what to write in their file:
    cloudctl limits simulate --nodes 1000 --services 300 --limits limits.yaml
  With a page that a port-forward cannot reach:
    cloudctl status --url cloud-adapter=http://10.0.0.1:10273

Exit codes:
  0  everything was read, and is well
  1  something is missing or not well; it is named, and the rest is shown
  2  a flag or an argument is invalid";

/// Shows what the cloud controllers and their adapter do. It reads their pages, and has no access to the cloud.
#[derive(Clone, Debug, Parser)]
#[command(name = "cloudctl", version, after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Show adapters, budgets, queues, breakers, listings, controllers, and the holders of shards
    Status,
    /// Show the desired state of one object, its state in the cloud, the plan, and what it waits for
    Explain(ExplainArgs),
    /// Show the changes that the controllers would make now to objects that are not in sync (a dry run), and their cost in vendor calls
    Plan,
    /// Show what another cloud controller manager left, and what a takeover would change
    Adopt,
    /// Show load balancers that no Service uses any more, and delete them on request
    Orphans(OrphansArgs),
    /// Show the clusters that own objects in the cloud, according to owner tags
    Clusters,
    /// Simulate the effect of limits on vendor calls
    Limits(LimitsArgs),
    /// Print the completion script of a shell: source <(cloudctl completions bash)
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_are_consistent_and_documented() {
        Options::command().debug_assert();
        let help = Options::command().render_help().to_string();
        for text in ["cloudctl explain service default/web", "Exit codes", "[default: kube-system]"] {
            assert!(help.contains(text), "{text}: {help}");
        }
    }
}
