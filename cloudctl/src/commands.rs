//! The commands, with their flags.

use clap::{Args as _, CommandFactory as _, Parser, Subcommand, ValueEnum as _};
use clap_complete::Shell;

use crate::{
    check::CheckArgs, explain::ExplainArgs, limits::LimitsArgs, options::Common, orphans::OrphansArgs,
    output::Format, session::Usage,
};

pub(crate) const EXAMPLES: &str = "Examples:
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

/// The end of each command's help.
const COMMON: &str = "Use \"cloudctl options\" for a list of options that all commands accept.";
/// The command that lists the common options.
const OPTIONS: &str = "options";

/// Shows what the cloud controllers and their adapter do. Reads their status pages and objects in the cluster, and has no access to the
/// cloud.
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
    /// Print the options that all commands accept
    Options,
    /// Print the completion script of a shell: source <(cloudctl completions bash)
    Completions {
        /// Name of the shell
        shell: Shell,
    },
}

impl Command {
    fn formats(&self) -> &'static [Format] {
        const WIDE: &[Format] = &[Format::Table, Format::Wide, Format::Json, Format::Yaml];
        const NAME: &[Format] = &[Format::Table, Format::Name, Format::Json, Format::Yaml];
        match self {
            Self::Status | Self::Explain(_) | Self::Adopt => WIDE,
            Self::Plan | Self::Clusters => NAME,
            Self::Orphans(args) if !args.delete => NAME,
            Self::Check(_) | Self::Orphans(_) | Self::Limits(_) => {
                &[Format::Table, Format::Json, Format::Yaml]
            }
            Self::Options | Self::Completions { .. } => Format::value_variants(),
        }
    }

    /// Refuses common options that make no sense for this command.
    pub(crate) fn check(&self, common: &Common) -> Result<(), Usage> {
        let formats = self.formats();
        let word = |it: &Format| it.to_possible_value().map(|it| it.get_name().to_owned());
        if !formats.contains(&common.output) {
            let known: Vec<String> = formats.iter().filter_map(word).collect();
            let asked = word(&common.output).unwrap_or_default();
            let known = known.join(", ");
            return Err(Usage(format!("invalid output format '{asked}': this command prints {known}")));
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

/// Returns the command line. Only the help of `options` lists the common options.
pub(crate) fn command() -> clap::Command {
    let all = |it: clap::Command| Common::augment_args(it).mut_args(|arg| arg.hide(false).global(false));
    Options::command()
        .mut_subcommands(|it| if it.get_name() == OPTIONS { all(it) } else { it.after_help(COMMON) })
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
        command().debug_assert();
        let help = command().render_help().to_string();
        for text in ["cloudctl explain svc/web -n default", "Exit codes", "cloudctl options"] {
            assert!(help.contains(text), "{text}: {help}");
        }
    }

    #[test]
    fn common_options_are_listed_once() {
        let listed = common_options();
        let mut command = command();
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
