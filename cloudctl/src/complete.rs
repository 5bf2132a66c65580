//! Completes the command line, in the form in which kubectl asks plugins for it.
//!
//! kubectl runs `kubectl_complete-cloud` with the words so far, the last of which is incomplete. It expects one candidate per line with its
//! help after a tab, then a colon and the number of a directive. Source: kubectl's `plugin_completion.go`, and the directives of
//! github.com/spf13/cobra. Names of objects are not completed.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// The hidden command for completion. It is not a clap command, so that the help does not show it.
pub(crate) const ASKED: &str = "__complete";

/// Directive: the shell may also complete file names.
const FILES: u8 = 0;
/// Directive: the shell must complete nothing else.
const NO_FILES: u8 = 4;

/// Returns the answer to kubectl. `words`: the words after the program's name.
pub(crate) fn complete(mut command: Command, words: &[&str]) -> String {
    command.build();
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (*last, before));
    let position = Position::after(&command, before);
    let (candidates, directive) = position.candidates(last);
    let mut text = String::new();
    for (name, help) in candidates.into_iter().filter(|(name, _)| name.starts_with(last)) {
        // Writing to a String cannot fail.
        writeln!(text, "{name}\t{help}").ok();
    }
    writeln!(text, ":{directive}").ok();
    text
}

struct Position<'a> {
    command: &'a Command,
    flag: Option<&'a Arg>,
    arguments: usize,
}

impl<'a> Position<'a> {
    fn after(root: &'a Command, words: &[&str]) -> Self {
        let mut position = Self { command: root, flag: None, arguments: 0 };
        for word in words {
            if position.flag.take().is_some() {
                continue;
            }
            if word.starts_with('-') {
                position.flag = flag(position.command, word);
            } else if let Some(command) = position.command.find_subcommand(word) {
                (position.command, position.arguments) = (command, 0);
            } else {
                position.arguments += 1;
            }
        }
        position
    }

    /// Returns all matching candidates with their help, and whether file names are allowed.
    fn candidates(&self, last: &str) -> (Vec<(String, String)>, u8) {
        if let Some(flag) = self.flag {
            let values = values(flag);
            let directive = if values.is_empty() { FILES } else { NO_FILES };
            return (values, directive);
        }
        if last.starts_with('-') {
            let flags = self.command.get_arguments().filter(|arg| !arg.is_hide_set() || arg.is_global_set());
            let flags =
                flags.filter_map(|arg| Some((format!("--{}", arg.get_long()?), help(arg.get_help()))));
            return (flags.collect(), NO_FILES);
        }
        let commands = self.command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut all: Vec<_> = commands.map(|it| (it.get_name().to_owned(), help(it.get_about()))).collect();
        all.extend(self.command.get_positionals().nth(self.arguments).map(values).unwrap_or_default());
        (all, NO_FILES)
    }
}

/// Returns the flag whose value the next word must be.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let named = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            arg.get_short().is_some_and(|short| word.strip_prefix('-') == Some(short.to_string().as_str()))
        }
    };
    command.get_arguments().find(named).filter(|arg| arg.get_action().takes_values())
}

fn values(arg: &Arg) -> Vec<(String, String)> {
    let all = arg.get_possible_values();
    all.iter()
        .filter(|it| !it.is_hide_set())
        .map(|it| (it.get_name().to_owned(), help(it.get_help())))
        .collect()
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{NAME, command};

    /// Returns the candidates without their help, and the directive.
    fn next(words: &[&str]) -> Vec<String> {
        let text = complete(command(NAME), words);
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        for (words, expected) in [
            (&["ex"][..], &["explain", ":4"][..]),
            (&["explain", "n"], &["node", ":4"]),
            (&["orphans", "--de"], &["--delete", ":4"]),
            (&["status", "--outp"], &["--output", ":4"]),
            (&["status", "-o", "j"], &["json", ":4"]),
            (&["-n", "explain", "completions", "bas"], &["bash", ":4"]),
            (&["explain", "s"], &["service", ":4"]),
            (&["status", "--kubeconfig", ""], &[":0"]),
            (&["status", "--output=json", ""], &[":4"]),
            (
                &["no-such-command", "-"],
                &[
                    "--kubeconfig",
                    "--context",
                    "--namespace",
                    "--release",
                    "--release-namespace",
                    "--url",
                    "--output",
                    "--color",
                    "--help",
                    "--version",
                    ":4",
                ],
            ),
        ] {
            assert_eq!(next(words), expected, "{words:?}");
        }
        assert!(next(&[""]).len() > 8 && next(&[]) == next(&[""]));
        assert!(complete(command(NAME), &["ado"]).starts_with("adopt\tShow what another"));
    }
}
