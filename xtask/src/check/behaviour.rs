//! Whether the pages that name tests still name ones that are there: a promise without a test rots. In docs/behaviour.md each row
//! must name one, and a name says which crate's it is: another crate may have one of the same name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::cargo;

const PAGE: &str = "docs/behaviour.md";
/// Names tests here and there.
const OTHERS: [&str; 2] = ["docs/clouds/openstack.md", "docs/development.md"];
/// A name in lower case with at least so many of `_` is that of a test: labels and fields are shorter, metrics begin otherwise.
const UNDERSCORES: usize = 4;
/// Where a name with a file in front of it is. Any other has its crate there, but for those of the section's own.
const END_TO_END: &str = "e2e/tests/";
/// Whose tests are meant in a section, by the first word of its heading, where a name stands alone.
const SECTIONS: [(&str, &str); 3] =
    [("Nodes", "node-controller"), ("Services", "service-controller"), ("Routes", "route-controller")];

/// The tests that are there.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Each with its file in front.
    end_to_end: BTreeSet<String>,
    /// Each with its crate in front.
    others: BTreeSet<String>,
}

impl Known {
    /// Looks through all files of the repository.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let listed =
            Command::new("git").args(["ls-files", "*.rs"]).current_dir(root).output().context("git")?;
        ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        let mut known = Self::default();
        for path in String::from_utf8(listed.stdout)?.lines() {
            // What is removed and not yet committed is still listed.
            let Ok(source) = fs::read_to_string(root.join(path)) else { continue };
            let file = path.strip_prefix(END_TO_END).and_then(|_| Path::new(path).file_stem()?.to_str());
            let mut tests = tests_of(&source).peekable();
            if let Some(file) = file {
                known.end_to_end.extend(tests.map(|name| format!("{file}::{name}")));
            } else if tests.peek().is_some() {
                let owner = crate_of(root, Path::new(path))?;
                known.others.extend(tests.map(|name| format!("{owner}::{name}")));
            }
        }
        Ok(known)
    }

    /// Whether there is a test of this name, which has its file or its crate in front.
    pub(super) fn has(&self, name: &str) -> bool {
        self.end_to_end.contains(name) || self.others.contains(name)
    }
}

/// Fails with every row that names no test, or one that is not there.
pub(crate) fn tests_are_there() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let known = Known::read(&root)?;
    let faults = faults(&page, &known);
    ensure!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
    for page in OTHERS {
        let text = fs::read_to_string(root.join(page)).context(page)?;
        let missing = missing(&text, &known);
        ensure!(missing.is_empty(), "{page}:\n  {}", missing.join("\n  "));
    }
    Ok(())
}

/// The name of the crate that a file belongs to.
fn crate_of(root: &Path, file: &Path) -> anyhow::Result<String> {
    let manifests = file.ancestors().skip(1).map(|folder| root.join(folder).join("Cargo.toml"));
    let manifest = manifests.into_iter().find(|it| it.is_file());
    let manifest = manifest.with_context(|| format!("{}: of no crate", file.display()))?;
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let mut names = text.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    Ok(names.next().with_context(|| format!("{}: no name", manifest.display()))?.to_owned())
}

/// What looks like a test's name, and is none of any file.
fn missing(page: &str, known: &Known) -> Vec<String> {
    let all = known.end_to_end.iter().chain(&known.others);
    let names: BTreeSet<&str> = all.filter_map(|name| name.rsplit("::").next()).collect();
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
fn faults(page: &str, known: &Known) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut in_table, mut n_rows, mut of_section) = (false, 0_usize, None);
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(heading) = line.strip_prefix("## ") {
            of_section = SECTIONS.iter().find(|(word, _)| heading.starts_with(word)).map(|(_, it)| *it);
        }
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
            let wrong = names.iter().filter_map(|name| fault(name, of_section, known));
            faults.extend(wrong.map(|fault| format!("line {number}: {fault}")));
        }
    }
    if n_rows == 0 {
        faults.push("there is no table with a last column `test`".to_owned());
    }
    faults
}

/// What is wrong with the name of a test. `of_section`: the crate that is meant where it names none; without one, the only one that
/// has it.
fn fault(name: &str, of_section: Option<&str>, known: &Known) -> Option<String> {
    let own = |it: &str| known.others.contains(&format!("{it}::{name}"));
    if known.end_to_end.contains(name) || known.others.contains(name) || of_section.is_some_and(own) {
        return None;
    }
    let end = format!("::{name}");
    let all: Vec<&str> = known.others.iter().filter(|it| it.ends_with(&end)).map(String::as_str).collect();
    match (all.as_slice(), of_section) {
        ([], _) => Some(format!("there is no test {name}")),
        ([_only], None) => None,
        (all, _) => Some(format!("say whose test {name} is: {}", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, faults, missing, tests_of};

    #[test]
    fn marked_functions_are_tests_and_no_others() {
        let source = "#[test]\nfn a() {}\nfn helper() {}\n#[tokio::test(start_paused = true)]\n\
                      #[expect(x)]\nasync fn b() {}\nproptest! {\n    #[test]\n    fn c(x in 0..3) {}\n}\n";
        assert_eq!(tests_of(source).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    fn known(end_to_end: &[&str], others: &[&str]) -> Known {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Known { end_to_end: set(end_to_end), others: set(others) }
    }

    #[test]
    fn what_looks_like_a_test_must_be_one() {
        let known = known(&["file::a_b_c_d_e"], &["crate::f_g_h_i_j"]);
        let page =
            "`a_b_c_d_e` and `f_g_h_i_j` are,\n`a_b_c_d_f` is not, `a_b_c_d` and `A_B_C_D_E` are others";
        assert_eq!(missing(page, &known), ["line 2: there is no test a_b_c_d_f"]);
    }

    #[test]
    fn a_row_without_a_test_that_is_there_is_told() {
        let known = known(&["scenarios::b"], &["lease::a"]);
        let page = "| what | test |\n| --- | --- |\n| good | `a`, `scenarios::b` |\n| none | (later) |\n| gone | `b` |\n\n\
                    | other | table |\n| --- | --- |\n| is | not judged |\n";
        assert_eq!(faults(page, &known), ["line 4 names no test", "line 5: there is no test b"]);
        assert_eq!(faults("no table", &known), ["there is no table with a last column `test`"]);
    }

    #[test]
    fn a_test_of_the_name_in_another_crate_is_another_test() {
        let known = known(&[], &["node-controller::a", "route-controller::a", "lease::b"]);
        let page = |heading: &str, name: &str| {
            format!("{heading}\n| what | test |\n| --- | --- |\n| it | `{name}` |\n")
        };
        let told = |heading: &str, name: &str| faults(&page(heading, name), &known);
        for (heading, name) in [
            ("## Nodes: initialisation", "a"),
            ("## Nodes\n### Their ends", "a"),
            ("## Routes", "a"),
            ("## Routes", "lease::b"),
            ("## Processes", "b"),
            ("## Processes", "node-controller::a"),
        ] {
            assert_eq!(told(heading, name), [""; 0], "{heading} {name}");
        }
        for (heading, name, fault) in [
            ("## Services", "a", "say whose test a is: node-controller::a, route-controller::a"),
            ("## Processes", "a", "say whose test a is: node-controller::a, route-controller::a"),
            ("## Routes", "b", "say whose test b is: lease::b"),
            ("## Routes", "lease::a", "there is no test lease::a"),
            ("## Nodes", "c", "there is no test c"),
        ] {
            assert_eq!(told(heading, name), [format!("line 4: {fault}")], "{heading} {name}");
        }
    }
}
