//! Checks that comments, messages, names of tests and pages have none of the words that docs/glossary.md replaces by plain ones.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use crate::{cargo, git};

/// The page with the table of words, and the heading of this table. This step refuses the words that the first column has in backticks.
const PAGE: &str = "docs/glossary.md";
const HEADING: &str = "## Words we do not use";
/// The files that this step checks, as patterns of `git ls-files`.
const FILES: [&str; 8] = ["*.rs", "*.md", "*.yaml", "*.yml", "*.proto", "*.tpl", "*.txt", "*.toml"];
/// Paths that this step skips: generated files, texts of other projects, and the tests below.
const APART: [&str; 5] = ["/generated/", PAGE, "typos.toml", "Cargo.toml", "xtask/src/check/words.rs"];
/// Exceptions, where a refused word is right: the path, and the line's text.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Fails with each refused word.
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

/// Returns the words that the page refuses.
fn refused(page: &str) -> Vec<String> {
    let section = page.split_once(HEADING).map(|(_, rest)| rest).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_lowercase).collect()
}

fn faults_of(path: &str, text: &str, words: &[String]) -> Vec<String> {
    let is_exception =
        |line: &str| EXCEPTIONS.iter().any(|(file, part)| *file == path && line.contains(part));
    let mut faults = Vec::new();
    for (number, line) in prose(path, text) {
        if is_exception(&line) {
            continue;
        }
        let line = line.to_lowercase();
        let found = words.iter().filter(|word| has(&line, word));
        faults.extend(found.map(|word| format!("{path}:{number}: {word:?}; {PAGE} has plain words for it")));
    }
    faults
}

/// Whether the line contains the word as a separate word.
fn has(line: &str, word: &str) -> bool {
    let edge = |letter: Option<char>| letter.is_none_or(|it| !it.is_alphanumeric() && it != '_' && it != '-');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line.get(..at), line.get(at + word.len()..));
        edge(before.and_then(|it| it.chars().next_back())) && edge(after.and_then(|it| it.chars().next()))
    })
}

/// Returns the prose of a file with the numbers of its lines: in Rust the comments, strings and names of tests, in other files all text
/// outside of backticks.
fn prose(path: &str, text: &str) -> Vec<(usize, String)> {
    if Path::new(path).extension().is_none_or(|it| it != "rs") {
        return (1..).zip(text.lines()).map(|(number, line)| (number, without_code(line))).collect();
    }
    let mut found: Vec<(usize, String)> = names_of_tests(text).collect();
    let (mut at, mut number) = (0_usize, 1_usize);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let length = usize::try_from(token.len).unwrap_or(usize::MAX);
        let piece = text.get(at..at.saturating_add(length)).unwrap_or_default();
        // A single word in quotes is a name.
        let is_text = piece.starts_with('/') || piece.contains(char::is_whitespace);
        if is_prose(token.kind) && is_text {
            let lines = (number..).zip(piece.lines());
            found.extend(lines.map(|(number, line)| (number, without_code(&without_places(line)))));
        }
        at += length;
        number += piece.matches('\n').count();
    }
    found
}

fn is_prose(kind: TokenKind) -> bool {
    use LiteralKind::{CStr, RawStr, Str};
    matches!(
        kind,
        TokenKind::LineComment { .. }
            | TokenKind::BlockComment { .. }
            | TokenKind::Literal { kind: Str { .. } | RawStr { .. } | CStr { .. }, .. }
    )
}

/// Returns the name of a test as a sentence.
fn names_of_tests(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut is_test = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let line = line.trim();
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let (_, name) = line.split_once("fn ").filter(|_| is_test && !line.starts_with("//"))?;
        is_test = false;
        Some((number, name.split('(').next()?.replace('_', " ")))
    })
}

/// Removes the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Removes names of variables from a format string.
fn without_places(line: &str) -> String {
    line.split('{')
        .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::{faults_of, prose, refused};

    const TABLE: &str = "# Glossary\n`other` words\n\n## Words we do not use\n\n| not | but |\n| --- | --- |\n\
                         | `anew`, made anew | `again` |\n| `so long` | duration |\n\n## Later\n| `later` | |\n";

    #[test]
    fn table_of_the_glossary_is_read() {
        assert_eq!(refused(TABLE), ["anew", "so long"]);
        assert!(refused("no table").is_empty());
    }

    #[test]
    fn comments_strings_and_names_of_tests_are_prose_and_code_is_not() {
        let source = "//! One\nfn a() { let b = [\"Two {anew} `c`\", \"nine\"]; } // Three\n#[test]\nfn four_and_five() {}\n/* Six\nSeven */\n";
        let lines = prose("a.rs", source);
        let texts: Vec<(usize, &str)> = lines.iter().map(|(number, text)| (*number, text.trim())).collect();
        let wanted = [
            (4, "four and five"),
            (1, "//! One"),
            (2, "\"Two"),
            (2, "// Three"),
            (5, "/* Six"),
            (6, "Seven */"),
        ];
        for (number, text) in wanted {
            assert!(
                texts.iter().any(|(n, it)| *n == number && it.starts_with(text)),
                "{number} {text}: {texts:?}"
            );
        }
        assert_eq!(texts.len(), wanted.len(), "{texts:?}");
    }

    #[test]
    fn each_refused_word_is_reported_with_its_line() {
        let words = refused(TABLE);
        let of = |path: &str, text: &str| faults_of(path, text, &words).len();
        assert_eq!(of("a.rs", "// It is made\n// Anew.\nlet anew = 1;"), 1);
        assert_eq!(of("a.rs", "#[test]\nfn it_is_made_anew() {}"), 1);
        assert_eq!(of("a.md", "renewed, and `anew`"), 0);
        assert_eq!(of("a.md", "anew; so long"), 2);
    }
}
