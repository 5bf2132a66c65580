//! Whether the pages that name tests still name ones that are there: a promise without a test rots. In docs/behaviour.md each row
//! must name one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::cargo;

const PAGE: &str = "docs/behaviour.md";
/// Names tests here and there.
const OTHERS: [&str; 1] = ["docs/clouds/openstack.md"];
/// A name in lower case with at least so many of `_` is that of a test: labels and fields are shorter, metrics begin otherwise.
const UNDERSCORES: usize = 4;
/// Where a name with a file in front of it is.
const END_TO_END: &str = "e2e/tests/";

/// Fails with every row that names no test, or one that is not there.
pub(crate) fn tests_are_there() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(&root).output().context("git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let mut known = BTreeSet::new();
    for path in String::from_utf8(listed.stdout)?.lines() {
        // What is removed and not yet committed is still listed.
        let Ok(source) = fs::read_to_string(root.join(path)) else { continue };
        let file = path.strip_prefix(END_TO_END).and_then(|_| Path::new(path).file_stem()?.to_str());
        for name in tests_of(&source) {
            known.insert(file.map_or_else(|| name.to_owned(), |file| format!("{file}::{name}")));
        }
    }
    let faults = faults(&page, &known);
    ensure!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
    for page in OTHERS {
        let text = fs::read_to_string(root.join(page)).context(page)?;
        let missing = missing(&text, &known);
        ensure!(missing.is_empty(), "{page}:\n  {}", missing.join("\n  "));
    }
    Ok(())
}

/// What looks like a test's name, and is none of any file.
fn missing(page: &str, known: &BTreeSet<String>) -> Vec<String> {
    let names: BTreeSet<&str> = known.iter().filter_map(|name| name.rsplit("::").next()).collect();
    let of_test = |span: &&str| {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !span.starts_with("cloud_") && span.chars().all(lower) && span.matches('_').count() >= UNDERSCORES
    };
    let spans = (1..)
        .zip(page.lines())
        .flat_map(|(number, line)| line.split('`').skip(1).step_by(2).map(move |span| (number, span)));
    spans
        .filter(|(_, span)| of_test(span) && !names.contains(span))
        .map(|(number, span): (usize, &str)| format!("line {number}: there is no test {span}"))
        .collect()
}

/// The names of the functions that are marked as tests.
fn tests_of(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().map(str::trim).filter_map(move |line| {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let (_, name) = line.split_once("fn ").filter(|_| is_test && !line.starts_with("//"))?;
        is_test = false;
        name.split('(').next()
    })
}

/// What is wrong with the tables whose last column is headed `test`.
fn faults(page: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut in_table, mut n_rows) = (false, 0_usize);
    for (number, line) in (1..).zip(page.lines()) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let last = cells.last().copied().unwrap_or_default();
        if !line.starts_with('|') {
            in_table = false;
        } else if last == "test" {
            in_table = true;
        } else if in_table && !last.starts_with("---") {
            n_rows += 1;
            let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
            if names.is_empty() {
                faults.push(format!("line {number} names no test"));
            }
            let missing = names.iter().filter(|name| !known.contains(**name));
            faults.extend(missing.map(|name| format!("line {number}: there is no test {name}")));
        }
    }
    if n_rows == 0 {
        faults.push("there is no table with a last column `test`".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{faults, missing, tests_of};

    #[test]
    fn marked_functions_are_tests_and_no_others() {
        let source = "#[test]\nfn a() {}\nfn helper() {}\n#[tokio::test(start_paused = true)]\n\
                      #[expect(x)]\nasync fn b() {}\nproptest! {\n    #[test]\n    fn c(x in 0..3) {}\n}\n";
        assert_eq!(tests_of(source).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn what_looks_like_a_test_must_be_one() {
        let known = ["file::a_b_c_d_e".to_owned()].into();
        let page = "`a_b_c_d_e` is one,\n`a_b_c_d_f` is not, `a_b_c_d` and `A_B_C_D_E` are others";
        assert_eq!(missing(page, &known), ["line 2: there is no test a_b_c_d_f"]);
    }

    #[test]
    fn a_row_without_a_test_that_is_there_is_told() {
        let known = ["a".to_owned(), "scenarios::b".to_owned()].into();
        let page = "| what | test |\n| --- | --- |\n| good | `a`, `scenarios::b` |\n| none | (later) |\n| gone | `b` |\n\n\
                    | other | table |\n| --- | --- |\n| is | not judged |\n";
        assert_eq!(faults(page, &known), ["line 4 names no test", "line 5: there is no test b"]);
        assert_eq!(faults("no table", &known), ["there is no table with a last column `test`"]);
    }
}
