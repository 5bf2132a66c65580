//! Checks that comments, messages, names of tests and pages do not contain the words that docs/glossary.md replaces by plain words.
//!
//! Which parts of a file are prose is decided in [`mod@prose`].

mod prose;

use std::fs;

use anyhow::{Context as _, ensure};

use self::prose::prose;
use crate::{cargo, git};

/// The page with the table of words, and the heading of this table. This step refuses the words of the first column.
const PAGE: &str = "docs/glossary.md";
const HEADING: &str = "## Words we do not use";
const FILES: [&str; 17] = [
    "*.rs",
    "*.md",
    "*.yaml",
    "*.yml",
    "*.json",
    "*.proto",
    "*.tpl",
    "*.txt",
    "*.toml",
    "*.table",
    "*.py",
    "*.go",
    "*.sh",
    "*.in",
    "*Containerfile",
    ".ci/*",
    "e2e/openstack/conformance/hook",
];
/// Paths that this step skips: generated files, texts of other projects, and the tests of this step.
const APART: [&str; 6] =
    ["/generated/", PAGE, "typos.toml", "Cargo.toml", "package-lock.json", "xtask/src/check/words"];

/// Fails if a file contains a refused word, and lists all of them.
pub(crate) fn are_plain() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let words = refused(&page);
    ensure!(!words.is_empty(), "{PAGE}: the section {HEADING:?} refuses no word");
    let mut files = git::texts(&FILES)?;
    files.retain(|(path, _)| !APART.iter().any(|it| path.contains(it)));
    let faults: Vec<String> = files.iter().flat_map(|(path, text)| faults_of(path, text, &words)).collect();
    ensure!(faults.is_empty(), "{} words:\n  {}", faults.len(), faults.join("\n  "));
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Word {
    word: String,
    /// Phrases in which the word is right.
    except: Vec<String>,
}

/// Returns the words that the page refuses, which are those of the first column between commas. In parentheses behind a word are the
/// phrases in which it is right: `machine (except state machine)`. Any other text in parentheses is a condition that only a reader can
/// check, so that this step cannot refuse the word.
fn refused(page: &str) -> Vec<Word> {
    let section = page.split_once(HEADING).map(|(_, rest)| rest).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let cells = rows.skip_while(|cell| !cell.contains("---")).skip(1).map(|cell| cell.replace('`', ""));
    cells.flat_map(|cell| terms(&cell)).collect()
}

fn terms(cell: &str) -> Vec<Word> {
    let mut depth = 0_usize;
    let between = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        letter == ',' && depth == 0
    };
    let read = |term: &str| {
        let term = term.trim().to_lowercase();
        let Some((word, condition)) = term.split_once(" (") else {
            return Some(Word { word: term, except: Vec::new() });
        };
        let phrases = condition.trim_end_matches(')').strip_prefix("except ")?;
        Some(Word { word: word.to_owned(), except: phrases.split(", ").map(str::to_owned).collect() })
    };
    cell.split(between).filter_map(read).collect()
}

fn faults_of(path: &str, text: &str, words: &[Word]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in prose(path, text) {
        let line = line.to_lowercase();
        let found = words.iter().filter(|it| it.is_in(&line));
        faults
            .extend(found.map(|it| format!("{path}:{number}: {:?}; {PAGE} has plain words for it", it.word)));
    }
    faults
}

impl Word {
    fn is_in(&self, line: &str) -> bool {
        has(&self.except.iter().fold(line.to_owned(), |line, phrase| line.replace(phrase, "")), &self.word)
    }
}

/// Whether the line contains the word as a separate word.
fn has(line: &str, word: &str) -> bool {
    let edge = |letter: Option<char>| letter.is_none_or(|it| !it.is_alphanumeric() && it != '_' && it != '-');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line.get(..at), line.get(at + word.len()..));
        edge(before.and_then(|it| it.chars().next_back())) && edge(after.and_then(|it| it.chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::{Word, faults_of, refused};

    const TABLE: &str = "# Glossary\n`other` words\n\n## Words we do not use\n\n| not | but |\n| --- | --- |\n\
                         | `anew`, made afresh | `again` |\n| so long | duration |\n\
                         | machine (except state machine, ELF machine), `who` (without a noun) | instance |\n\n## Later\n| `later` | |\n";

    #[test]
    fn table_of_the_glossary_is_read() {
        let word = |word: &str, except: &[&str]| Word {
            word: word.to_owned(),
            except: except.iter().map(|&it| it.to_owned()).collect(),
        };
        let machine = word("machine", &["state machine", "elf machine"]);
        assert_eq!(
            refused(TABLE),
            [word("anew", &[]), word("made afresh", &[]), word("so long", &[]), machine]
        );
        assert!(refused("no table").is_empty());
    }

    #[test]
    fn each_refused_word_is_reported_with_its_line() {
        let words = refused(TABLE);
        let of = |path: &str, text: &str| faults_of(path, text, &words).len();
        assert_eq!(of("a.rs", "// It is made\n// Anew.\nlet anew = 1;"), 1);
        assert_eq!(of("a.rs", "#[test]\nfn it_is_made_anew() {}"), 1);
        assert_eq!(of("a.md", "renewed, and `anew`"), 0);
        assert_eq!(of("a.md", "anew; so long, who"), 2);
        assert_eq!(of("a.py", "anew = 1  # made anew\n"), 1);
        assert_eq!(of("values.yaml", "# Made anew\na: so long\n"), 2);
        assert_eq!(of("a.md", "The state machine of this machine"), 1);
        assert_eq!(of("a.md", "The state machine"), 0);
    }
}
