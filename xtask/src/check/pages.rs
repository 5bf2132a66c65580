//! Checks the pages of the documentation: each page is in the book, and each block of commands declares whether a test runs it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use e2e_tools::pages::{How, STAGES, SUMMARY, blocks, listed};

use super::behaviour::Known;
use crate::{cargo, git};

/// The prefix of commands of this program. They are parsed even if no test runs them.
const OURS: &str = "cargo xtask ";
const BOOK: &str = "docs/";

/// All pages by their paths in the repository.
type Pages = BTreeMap<String, String>;

/// Fails with a list of the faults: pages that are not in the book, blocks of commands without a declaration, and invalid `cargo xtask`
/// commands.
pub(crate) fn commands_are_known() -> anyhow::Result<()> {
    let root = cargo::root();
    let pages: Pages = git::texts(&["*.md"])?.into_iter().collect();
    let known = Known::read(&root)?;
    let listed = listed(pages.get(SUMMARY).context(SUMMARY)?);
    let judge = Judge { is_test: &|name| known.has(name), refuse: &crate::refuse };
    let mut faults = contents(&listed, &pages);
    faults.extend(listed.iter().filter_map(|path| Some(judge.page(path, pages.get(path)?))).flatten());
    ensure!(faults.is_empty(), "\n  {}", faults.join("\n  "));
    Ok(())
}

/// Checks that the book has each page below docs/ exactly once.
fn contents(listed: &[String], pages: &Pages) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = listed.iter().filter(|path| !seen.insert(path.as_str()));
    let mut faults: Vec<String> = twice.map(|path| format!("{SUMMARY}: lists {path} twice")).collect();
    let below = pages.keys().filter(|path| path.starts_with(BOOK) && *path != SUMMARY);
    let missing = below.filter(|path| !listed.contains(path));
    faults.extend(missing.map(|path| format!("{SUMMARY}: does not list {path}")));
    faults
}

/// Checks whether a test exists, and whether a command of `cargo xtask` is valid.
struct Judge<'a> {
    is_test: &'a dyn Fn(&str) -> bool,
    /// Returns the fault if the arguments of `cargo xtask` are invalid.
    refuse: &'a dyn Fn(&[&str]) -> Option<String>,
}

impl Judge<'_> {
    fn page(&self, path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for block in blocks(text) {
            let why = match block.how {
                None => Some("needs a comment above: `run`, `tested: ...` or `not run: ...`".to_owned()),
                Some(How::Tested(test)) if !(self.is_test)(test) => Some(format!("unknown test {test}")),
                Some(How::Run(stage)) if !STAGES.contains(&stage) => {
                    Some(format!("unknown stage {stage}, expected one of {STAGES:?}"))
                }
                Some(How::Run(_) | How::Tested(_) | How::NotRun(_)) => None,
            };
            let ours =
                block.commands().into_iter().filter_map(|command| (self.refuse)(&words(&command.text)?));
            let wrong = ours.collect::<Vec<_>>();
            faults.extend(why.into_iter().chain(wrong).map(|why| format!("{path}:{}: {why}", block.line)));
        }
        faults
    }
}

/// Returns the arguments of `cargo xtask`, at any position of a command line.
fn words(typed: &str) -> Option<Vec<&str>> {
    let (_, rest) = typed.split_once(OURS)?;
    let end = rest.find(['#', ')', '|', ';', '&', '>']).unwrap_or(rest.len());
    Some(rest.get(..end)?.split_whitespace().filter(|word| *word != "\\").collect())
}

#[cfg(test)]
mod tests {
    use super::{Judge, contents};

    #[test]
    fn the_book_has_each_page_once() {
        let listed = ["docs/a.md", "docs/a.md", "README.md"].map(str::to_owned);
        let pages = ["docs/SUMMARY.md", "docs/a.md", "docs/b.md", "x/c.md"];
        let pages = pages.map(|path| (path.to_owned(), String::new())).into();
        let expected = ["docs/SUMMARY.md: lists docs/a.md twice", "docs/SUMMARY.md: does not list docs/b.md"];
        assert_eq!(contents(&listed, &pages), expected);
    }

    #[test]
    fn each_command_declares_whether_it_is_run() {
        let page = "<!-- run -->\n```sh\na\n```\n<!-- run: bench -->\n```sh\na\n```\n```console\n$ b\n```\n<!-- tested: f::no -->\n```sh\nc\n```\n<!-- tested: f::t -->\n```sh\n```\n";
        let judge = Judge { is_test: &|name| name == "f::t", refuse: &|_| None };
        let faults = judge.page("docs/a.md", page);
        let [stage, unmarked, no_test] = faults.as_slice() else { panic!("{faults:?}") };
        assert!(stage.starts_with("docs/a.md:6: unknown stage bench"), "{stage}");
        assert!(unmarked.starts_with("docs/a.md:9: needs a comment above"), "{unmarked}");
        assert_eq!(no_test, "docs/a.md:13: unknown test f::no");
    }

    #[test]
    fn xtask_commands_are_parsed_even_if_nothing_runs_them() {
        let page = "<!-- not run: x -->\n```console\n$ eval \"$(cargo xtask tools)\" # so\n$ A=1 cargo xtask demo --loud  # no\n$ cargo xtask test \\\n    unit\n```\n";
        let judge = Judge { is_test: &|_| true, refuse: &crate::refuse };
        let faults = judge.page("docs/a.md", page);
        assert!(
            matches!(faults.as_slice(), [one] if one.starts_with("docs/a.md:2: ") && one.contains("--loud")),
            "{faults:?}"
        );
    }
}
