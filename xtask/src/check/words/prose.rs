//! Finds the prose in a file: comments and texts.
//!
//! Other languages than Rust are read by the marks of their comments and strings alone, which is enough to leave out their code.

use std::ffi::OsStr;
use std::path::Path;

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

/// Returns the prose of a file with the numbers of its lines. In code, prose is comments and strings, and in Rust also names of tests. In
/// other files, prose is all text. Text in backticks is code, so it is left out.
pub(super) fn prose(path: &str, text: &str) -> Vec<(usize, String)> {
    match Path::new(path).extension().and_then(OsStr::to_str) {
        Some("rs") => of_rust(text),
        Some("go") => of_code(text, &GO),
        Some("json") => of_code(text, &JSON),
        Some("py") => of_code(text, &PYTHON),
        Some("sh") => of_code(text, &SHELL),
        None if text.starts_with("#!") => of_code(text, &SHELL),
        _ => (1..).zip(text.lines()).map(|(number, line)| (number, without_code(line))).collect(),
    }
}

fn of_rust(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = names_of_tests(text).collect();
    let (mut at, mut number) = (0_usize, 1_usize);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let length = usize::try_from(token.len).unwrap_or(usize::MAX);
        let piece = text.get(at..at.saturating_add(length)).unwrap_or_default();
        if is_prose(token.kind) && is_text(piece) {
            let lines = (number..).zip(piece.lines());
            found.extend(lines.map(|(number, line)| (number, without_code(&without_places(line)))));
        }
        at += length;
        number += piece.matches('\n').count();
    }
    found
}

/// Whether a comment or string is a text. A single word in quotes is a name.
fn is_text(piece: &str) -> bool {
    piece.starts_with(['/', '#']) || piece.contains(char::is_whitespace)
}

/// The marks at the beginning and the end of each kind of prose in a language, and whether a backslash hides the end mark.
type Marks = [(&'static str, &'static str, bool)];

const GO: [(&str, &str, bool); 4] =
    [("//", "\n", false), ("/*", "*/", false), ("\"", "\"", true), ("`", "`", false)];
const JSON: [(&str, &str, bool); 1] = [("\"", "\"", true)];
const PYTHON: [(&str, &str, bool); 4] =
    [("#", "\n", false), ("\"\"\"", "\"\"\"", true), ("\"", "\"", true), ("'", "'", true)];
const SHELL: [(&str, &str, bool); 3] = [("#", "\n", false), ("\"", "\"", true), ("'", "'", false)];

fn of_code(text: &str, marks: &Marks) -> Vec<(usize, String)> {
    let (mut found, mut at) = (Vec::new(), 0_usize);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let begins = marks.iter().find(|(open, ..)| rest.starts_with(open));
        // In a shell, `#` begins a comment only at the begin of a word, and a backslash hides a quote.
        let inside = rest.starts_with('#')
            && text.get(..at).is_some_and(|it| !it.is_empty() && !it.ends_with(char::is_whitespace));
        let Some((open, close, hides)) = begins.filter(|_| !inside) else {
            let n_letters = if rest.starts_with('\\') { 2 } else { 1 };
            at += rest.chars().take(n_letters).map(char::len_utf8).sum::<usize>();
            continue;
        };
        let inner = rest.get(open.len()..).unwrap_or_default();
        let length = open.len() + end_of(inner, close, *hides);
        let piece = rest.get(..length).unwrap_or(rest);
        if is_text(piece) {
            let number = 1 + text.get(..at).unwrap_or_default().matches('\n').count();
            // The backticks around a raw string are not those of code in a text.
            let prose = piece.strip_prefix('`').map_or(piece, |inner| inner.trim_end_matches('`'));
            found.extend(
                (number..)
                    .zip(prose.lines())
                    .map(|(number, line)| (number, without_code(&without_places(line)))),
            );
        }
        at += length;
    }
    found
}

/// Returns the length of a piece, including its end.
fn end_of(inner: &str, close: &str, hides: bool) -> usize {
    let mut is_hidden = false;
    for (at, letter) in inner.char_indices() {
        if !is_hidden && inner.get(at..).is_some_and(|rest| rest.starts_with(close)) {
            return at + close.len();
        }
        is_hidden = hides && letter == '\\' && !is_hidden;
    }
    inner.len()
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

/// Returns the names of the tests as sentences, with their line numbers.
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
    use super::prose;

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
    fn comments_and_texts_of_other_languages_are_prose() {
        for (path, source, wanted) in [
            (
                "a.go",
                "// One\nvar two = \"three four\" /* five\nsix */ + \"seven\"",
                vec![(1, "// One"), (2, "\"three four\""), (2, "/* five"), (3, "six */")],
            ),
            ("a.go", "a := `one\ntwo`", vec![(1, "one"), (2, "two")]),
            (
                "a.py",
                "\"\"\"One.\n\nTwo `three` four.\"\"\"\nfive = f'six {seven}'  # Eight\n",
                vec![(1, "\"\"\"One."), (2, ""), (3, "Two   four.\"\"\""), (4, "'six  '"), (4, "# Eight")],
            ),
            (
                "a.sh",
                "# One\necho \"two \\\"three\\\"\" ${four#five} don\\'t\n",
                vec![(1, "# One"), (2, "\"two \\\"three\\\"\"")],
            ),
            ("run", "#!/bin/sh\none two\n", vec![(1, "#!/bin/sh")]),
            (".ci/run", "#!/bin/sh\n'one two'\n", vec![(1, "#!/bin/sh"), (2, "'one two'")]),
            ("a.json", "{\"one\": \"two three\"}", vec![(1, "\"two three\"")]),
            ("a.yaml", "one: two # `three` four\n", vec![(1, "one: two #   four")]),
        ] {
            let lines = prose(path, source);
            let texts: Vec<(usize, &str)> =
                lines.iter().map(|(number, text)| (*number, text.trim_end())).collect();
            assert_eq!(texts, wanted, "{path}");
        }
    }
}
