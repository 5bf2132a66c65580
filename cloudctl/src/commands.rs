//! The commands, with their flags.

use clap::{Args as _, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    check::CheckArgs, explain::ExplainArgs, limits::LimitsArgs, options::Common, orphans::OrphansArgs,
    output::Format, session::Usage, version::VersionArgs,
};

const EXAMPLES: &str = "Examples:
  The status, and the holders of shards:
    cloudctl status
  Whether the cluster is ready for an installation, and later whether everything works:
    cloudctl check --wait 2m
  Why a Service has no address:
    cloudctl explain svc/web -n default
  What would be done now, and what it costs:
    cloudctl plan
  How long limits would keep a cluster of 1,000 nodes waiting, and what to write in their file:
    cloudctl limits simulate --nodes 1000 --services 300 --limits limits.yaml
  With a page that a port-forward cannot reach:
    cloudctl status --url cloud-adapter=http://10.0.0.1:10273

Exit codes:
  0  everything was read, and is well
  1  something is missing or not well; it is named, and the rest is shown
  2  a flag or an argument is invalid

Use \"cloudctl options\" for a list of options that all commands accept.";

/// The name of the program.
pub(crate) const NAME: &str = "cloudctl";
/// The end of each command's help.
const COMMON: &str = "Use \"cloudctl options\" for a list of options that all commands accept.";
/// The command that lists the common options.
const OPTIONS: &str = "options";
const EXPLAIN: &str = "explain";
/// The usage of `explain`, whose two forms clap cannot derive.
const USAGE: &str = "cloudctl explain (TYPE NAME | TYPE/NAME)";

/// Shows what the cloud controllers and their adapter do. Reads their status pages and objects in the cluster, and has no access to the
/// cloud.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, version)]
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
    /// Check the cluster before an installation, or the release after it: one line for each check
    Check(CheckArgs),
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
    /// Print the version of cloudctl, and the versions of the adapter and the controllers
    Version(VersionArgs),
    /// Print the options that all commands accept
    Options,
    /// Print the completion script of a shell: source <(cloudctl completions bash)
    #[command(visible_alias = "completion")]
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

impl Command {
    /// Whether the report is about objects or processes with names, which `-o name` prints.
    const fn has_names(&self) -> bool {
        match self {
            Self::Check(_) | Self::Limits(_) | Self::Version(_) => false,
            Self::Status
            | Self::Explain(_)
            | Self::Plan
            | Self::Adopt
            | Self::Orphans(_)
            | Self::Clusters
            | Self::Options
            | Self::Completions { .. } => true,
        }
    }

    /// Refuses common options that make no sense for this command.
    pub(crate) fn check(&self, common: &Common) -> Result<(), Usage> {
        if common.output == Format::Name && !self.has_names() {
            return Err(Usage(
                "invalid output format 'name': the report of this command contains no names of objects: use table, \
                 wide, json or yaml"
                    .to_owned(),
            ));
        }
        if common.namespace.is_some() && !matches!(self, Self::Explain(_)) {
            return Err(Usage(
                "invalid flag --namespace: only `explain` needs the namespace of an object; \
                 --release-namespace is where the chart is installed"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// Returns the command line. Only the help of `options` lists the common options. `called`: how users call the program, such as `kubectl
/// cloud`, which the help shows.
pub(crate) fn command(called: &str) -> clap::Command {
    let named = |text: &str| text.replace("cloudctl ", &format!("{called} "));
    let common = named(COMMON);
    let all = |it: clap::Command| {
        let about = it.get_about().cloned().unwrap_or_default();
        Common::augment_args(it).about(about).mut_args(|arg| arg.hide(false).global(false))
    };
    let helped = |it: clap::Command| match it.get_name() {
        OPTIONS => all(it),
        EXPLAIN => it.after_help(&common).override_usage(named(USAGE)),
        _ => it.after_help(&common).mut_subcommands(|it| it.after_help(&common)),
    };
    Options::command().bin_name(called).after_help(named(EXAMPLES)).mut_subcommands(helped)
}

pub(crate) fn common_options() -> String {
    let all = Common::augment_args(clap::Command::new(OPTIONS)).disable_help_flag(true);
    let mut all = all.mut_args(|arg| arg.hide(false)).help_template("{all-args}");
    format!("The following options can be passed to any command:\n\n{}\n", all.render_help())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent_and_documented() {
        command(NAME).debug_assert();
        let help = command(NAME).render_help().to_string();
        for text in ["cloudctl explain svc/web -n default", "Exit codes", "cloudctl options"] {
            assert!(help.contains(text), "{text}: {help}");
        }
    }

    #[test]
    fn common_options_are_listed_once() {
        let listed = common_options();
        let mut command = command(NAME);
        command.build();
        for subcommand in command.get_subcommands_mut() {
            let help = subcommand.render_help().to_string();
            let lists = subcommand.get_name() == OPTIONS;
            assert_eq!(help.contains("--kubeconfig"), lists, "{help}");
        }
        assert!(listed.contains("--release-namespace <NAME>") && listed.contains("kube-system"), "{listed}");
        assert!(!listed.contains("Usage"), "{listed}");
    }
}
