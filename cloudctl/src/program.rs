//! The program: parses flags, prints the report, and sets the exit code.

use std::{
    ffi::{OsStr, OsString},
    future::pending,
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{
    CommandFactory as _, FromArgMatches as _,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    adopt, check, clusters,
    commands::{Command, NAME, Options, command, common_options},
    complete, explain,
    orphans::{self, OrphansArgs},
    output::{self, Report, say},
    plan,
    session::Usage,
    status, version,
};

/// Exit code for a wrong flag or argument.
const WRONG_USAGE: u8 = 2;
/// Exit code after an interruption: by convention 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;
/// The beginning of the names by which kubectl finds its plugins. Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/.
const PLUGIN: &str = "kubectl-";

/// Runs the command in the arguments.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let [_program, asked, words @ ..] = args.as_slice()
        && asked == complete::ASKED
    {
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
        let printed = output::print(&complete::complete(command(NAME), &words));
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let options = match parsed(&args) {
        Ok(options) => options,
        Err(error) => {
            // Even if standard error is closed, the exit code reports the error.
            let _printed = error.print();
            return if error.use_stderr() { ExitCode::from(WRONG_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match started(&options) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::from(if error.is::<Usage>() { WRONG_USAGE } else { 1 })
        }
    }
}

fn parsed(args: &[OsString]) -> Result<Options, clap::Error> {
    let mut command = command(&called(args.first()));
    let matches = command.try_get_matches_from_mut(args).map_err(|error| with_commands(error, &command))?;
    Options::from_arg_matches(&matches)
}

/// Returns how the user calls the program: `kubectl cloud` if its file is `kubectl-cloud`. `program`: the program's name, with or without a
/// path.
fn called(program: Option<&OsString>) -> String {
    let name = program.and_then(|it| Path::new(it).file_stem()).and_then(OsStr::to_str);
    let plugin = name.and_then(|it| it.strip_prefix(PLUGIN));
    // kubectl separates words by dashes, and has underscores in place of the dashes of a word.
    plugin.map_or_else(|| NAME.to_owned(), |it| format!("kubectl {}", it.replace('-', " ").replace('_', "-")))
}

/// Adds the list of the commands to the error about an unknown command, unless the error already names a similar command.
fn with_commands(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let unknown = error.kind() == ErrorKind::InvalidSubcommand;
    if unknown && error.get(ContextKind::SuggestedSubcommand).is_none() {
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let text = StyledStr::from(format!("the commands are {}", names.join(", ")));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![text]));
    }
    error
}

fn started(options: &Options) -> anyhow::Result<ExitCode> {
    // The installation only fails if a provider is already installed, which is not a problem.
    let _first = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(answer(options))
}

async fn answer(options: &Options) -> anyhow::Result<ExitCode> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the clock; all other code gets the time as an argument"
    )]
    let now = Timestamp::now();
    let common = &options.common;
    options.command.check(common)?;
    match &options.command {
        Command::Status => finish(options, &status::read(common, now).await?),
        Command::Check(args) => finish(options, &check::read(common, args, now).await?),
        Command::Plan => finish(options, &plan::read(common, now).await?),
        Command::Adopt => finish(options, &adopt::read(common, now).await?),
        Command::Orphans(args) => orphans(options, args, now).await,
        Command::Clusters => finish(options, &clusters::read(common, now).await?),
        Command::Completions { shell } => completions(*shell),
        Command::Options => {
            output::print(&common_options())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Limits(args) => finish(options, &args.report()?),
        Command::Version(args) => finish(options, &version::read(common, args, now).await?),
        Command::Explain(args) => finish(options, &explain::read(common, args, now).await?),
    }
}

async fn orphans(options: &Options, args: &OrphansArgs, now: Timestamp) -> anyhow::Result<ExitCode> {
    let mut session = orphans::open(&options.common, now).await?;
    if !args.delete {
        return finish(options, &orphans::list(&mut session).await);
    }
    let outcome = orphans::release(&mut session, args, interrupted).await?;
    let code = finish(options, &outcome)?;
    Ok(if outcome.interrupted { ExitCode::from(INTERRUPTED) } else { code })
}

/// Resolves at the next Ctrl-C. From this call on, Ctrl-C no longer ends the program.
fn interrupted() -> impl Future<Output = ()> {
    let signals = signal(SignalKind::interrupt());
    async move {
        match signals {
            Ok(mut signals) => signals.recv().await.unwrap_or_default(),
            // Without a signal handler, Ctrl-C still ends the program.
            Err(_unheard) => pending().await,
        }
    }
}

fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    let mut command = Options::command().mut_args(|arg| arg.hide(false));
    clap_complete::generate(shell, &mut command, "cloudctl", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn finish(options: &Options, report: &impl Report) -> anyhow::Result<ExitCode> {
    let common = &options.common;
    let text = output::written(report, common.output, common.color.is_on(no_color()))?;
    output::print(&text)?;
    let fine = report.is_well() && report.missing().is_empty();
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the environment disables colours. Source: no-color.org.
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        parsed(&args).expect_err("is wrong").to_string()
    }

    #[test]
    fn the_help_names_the_command_that_the_user_knows() {
        for (program, called) in [
            ("/usr/bin/cloudctl", "cloudctl"),
            ("kubectl-cloud", "kubectl cloud"),
            ("/root/.krew/bin/kubectl-cloudctl", "kubectl cloudctl"),
            ("kubectl-my_cloud-ctl", "kubectl my-cloud ctl"),
        ] {
            let help = refused(&[program, "--help"]);
            assert!(help.contains(&format!("Usage: {called} <COMMAND>")), "{help}");
            assert!(help.contains(&format!("    {called} status\n")), "{help}");
            for command in [&["explain"][..], &["orphans"], &["limits", "simulate"]] {
                let help = refused(&[&[program], command, &["--help"]].concat());
                assert!(help.contains(&format!("Usage: {called} {} ", command.join(" "))), "{help}");
                assert!(help.contains(&format!("Use \"{called} options\"")), "{help}");
            }
        }
    }

    #[test]
    fn an_unknown_command_lists_the_commands() {
        let listed = "the commands are status, check, explain, ";
        let why = refused(&["cloudctl", "get", "svc"]);
        assert!(why.contains("unrecognized subcommand 'get'") && why.contains(listed), "{why}");
        let why = refused(&["cloudctl", "statsu"]);
        assert!(why.contains("'status'") && !why.contains(listed), "{why}");
    }
}
