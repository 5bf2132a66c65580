//! The map from the rows of docs/behaviour.md to tests. A test names its rows in a comment above its attribute, `// Behaviour: S3, S4`; the
//! file docs/behaviour-tests.txt is generated from these comments. Each row needs a test, because a description without a test becomes
//! wrong over time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::{cargo, git};

const PAGE: &str = "docs/behaviour.md";
const MAP: &str = "docs/behaviour-tests.txt";
const HEAD: &str = "# The tests of each row of behaviour.md. Written by `cargo xtask behaviour` from the comments `// Behaviour:` above tests.\n";
/// The comment with which a test names its rows.
const MARK: &str = "// Behaviour: ";
/// Pages that name tests in their text.
const OTHERS: [&str; 1] = ["adapters/openstack/README.md"];
/// A lower-case name with at least this many `_` counts as the name of a test. Names of labels and fields are shorter, and metrics have
/// other prefixes.
const UNDERSCORES: usize = 4;
/// The folder of tests that are listed as `file::test`. All other tests are listed as `crate::test`.
const END_TO_END: &str = "e2e/tests/";

/// The existing tests, each with the rows of the page that it covers. Each name begins with its file or its crate.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Vec<String>>);

impl Known {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut known = BTreeMap::new();
        for (path, source) in git::texts(&["*.rs"])? {
            let path = path.as_str();
            let file = path.strip_prefix(END_TO_END).and_then(|_| Path::new(path).file_stem()?.to_str());
            let tests = tests_of(&source);
            if tests.is_empty() {
                continue;
            }
            let owner = match file {
                Some(file) => file.to_owned(),
                None => crate_of(root, Path::new(path))?,
            };
            for (name, rows) in tests {
                known.entry(format!("{owner}::{name}")).or_insert_with(Vec::new).extend(rows);
            }
        }
        Ok(Self(known))
    }

    /// `name` begins with the file or the crate of the test.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

pub(crate) fn write() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    fs::write(root.join(MAP), map(&rows(&page), &Known::read(&root)?)).context(MAP)
}

/// Fails if a row has no test, if a test names a row that does not exist, or if the map is not up to date. The error lists all of them.
pub(crate) fn tests_are_there() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let known = Known::read(&root)?;
    let rows = rows(&page);
    let faults = faults(&rows, &known);
    ensure!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
    let written = fs::read_to_string(root.join(MAP)).context(MAP)?;
    ensure!(written == map(&rows, &known), "{MAP} is not up to date: run `cargo xtask behaviour`");
    for page in OTHERS {
        let text = fs::read_to_string(root.join(page)).context(page)?;
        let missing = missing(&text, &known);
        ensure!(missing.is_empty(), "{page}:\n  {}", missing.join("\n  "));
    }
    Ok(())
}

fn crate_of(root: &Path, file: &Path) -> anyhow::Result<String> {
    let manifests = file.ancestors().skip(1).map(|folder| root.join(folder).join("Cargo.toml"));
    let manifest = manifests.into_iter().find(|it| it.is_file());
    let manifest = manifest.with_context(|| format!("{}: the file belongs to no crate", file.display()))?;
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let mut names = text.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    Ok(names.next().with_context(|| format!("{}: no package name", manifest.display()))?.to_owned())
}

/// Returns the names that look like tests but do not exist in any file.
fn missing(page: &str, known: &Known) -> Vec<String> {
    let names: BTreeSet<&str> = known.0.keys().filter_map(|name| name.rsplit("::").next()).collect();
    let of_test = |span: &&str| {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !span.starts_with("cloud_") && span.chars().all(lower) && span.matches('_').count() >= UNDERSCORES
    };
    let spans = (1..)
        .zip(page.lines())
        .flat_map(|(number, line)| line.split('`').skip(1).step_by(2).map(move |span| (number, span)));
    spans
        .filter(|(_, span)| of_test(span) && !names.contains(span))
        .map(|(number, span): (usize, &str)| format!("line {number}: unknown test {span}"))
        .collect()
}

/// Returns the names of the functions with a test attribute, and the rows that the comment above the attribute names.
fn tests_of(source: &str) -> Vec<(&str, Vec<String>)> {
    let (mut is_test, mut rows, mut tests) = (false, Vec::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix(MARK) {
            rows.extend(named.split(',').map(|row| row.trim().to_owned()));
        } else if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| !line.starts_with("//")) {
            let rows = std::mem::take(&mut rows);
            if std::mem::take(&mut is_test) {
                tests.extend(name.split('(').next().map(|name| (name, rows)));
            }
        }
    }
    tests
}

/// Returns the identifiers of the rows, in the order of the page: the first cells of its tables.
fn rows(page: &str) -> Vec<&str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.filter(|cell| is_row(cell)).collect()
}

/// Whether the text is capital letters and a number, such as `S12`.
fn is_row(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    digits.len() < cell.len() && !digits.is_empty() && digits.bytes().all(|one| one.is_ascii_digit())
}

fn map(rows: &[&str], known: &Known) -> String {
    let line = |row: &str, test: &str| format!("{row} {test}\n");
    let tests = rows.iter().flat_map(|row| {
        let of_row = known.0.iter().filter(|(_, rows)| rows.iter().any(|it| it == row));
        of_row.map(|(test, _)| line(row, test)).collect::<Vec<_>>()
    });
    std::iter::once(HEAD.to_owned()).chain(tests).collect()
}

fn faults(rows: &[&str], known: &Known) -> Vec<String> {
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    faults
        .extend(rows.iter().filter(|row| !seen.insert(**row)).map(|row| format!("the page has {row} twice")));
    let named: BTreeSet<&str> = known.0.values().flatten().map(String::as_str).collect();
    let untested = rows.iter().filter(|row| !named.contains(**row));
    faults.extend(
        untested.map(|row| format!("no test names {row}: write `{MARK}{row}` above the test's attribute")),
    );
    for (test, named) in &known.0 {
        let unknown = named.iter().filter(|row| !seen.contains(row.as_str()));
        faults.extend(unknown.map(|row| format!("{test} names {row}, a row that does not exist")));
    }
    if rows.is_empty() {
        faults.push("no table has rows such as `S1`".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{Known, faults, map, missing, rows, tests_of};

    #[test]
    fn marked_functions_are_tests_and_no_others() {
        let source = "#[test]\nfn a() {}\nfn helper() {}\n// Behaviour: S1, R2\n#[tokio::test(start_paused = true)]\n\
                      #[expect(x)]\nasync fn b() {}\nproptest! {\n    #[test]\n    fn c(x in 0..3) {}\n}\n";
        let row = |text: &str| text.to_owned();
        assert_eq!(
            tests_of(source),
            [("a", Vec::new()), ("b", vec![row("S1"), row("R2")]), ("c", Vec::new())]
        );
    }

    fn known(tests: &[(&str, &[&str])]) -> Known {
        let rows = |rows: &[&str]| rows.iter().map(|&row| row.to_owned()).collect();
        Known(tests.iter().map(|(name, named)| ((*name).to_owned(), rows(named))).collect())
    }

    #[test]
    fn names_that_look_like_tests_must_be_tests() {
        let known = known(&[("file::a_b_c_d_e", &[]), ("crate::f_g_h_i_j", &[])]);
        let page =
            "`a_b_c_d_e` and `f_g_h_i_j` are,\n`a_b_c_d_f` is not, `a_b_c_d` and `A_B_C_D_E` are others";
        assert_eq!(missing(page, &known), ["line 2: unknown test a_b_c_d_f"]);
    }

    const TABLE: &str = "| # | what |\n| --- | --- |\n| S1 | it |\n| S2 | that |\n\n| other | table |\n| --- | --- |\n| is | not read |\n";

    #[test]
    fn map_has_each_row_with_its_tests() {
        assert_eq!(rows(TABLE), ["S1", "S2"]);
        let known = known(&[("lease::a", &["S2", "S1"]), ("minutes::b", &["S1"]), ("lease::c", &[])]);
        let map = map(&rows(TABLE), &known);
        assert_eq!(map.lines().skip(1).collect::<Vec<_>>(), ["S1 lease::a", "S1 minutes::b", "S2 lease::a"]);
        assert_eq!(faults(&rows(TABLE), &known), [""; 0]);
    }

    #[test]
    fn row_without_a_test_and_test_without_a_row_are_reported() {
        let known = known(&[("lease::a", &["S1", "S3"])]);
        let found = faults(&rows(TABLE), &known);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("no test names S2")
                && found[1] == "lease::a names S3, a row that does not exist"
        );
        assert_eq!(faults(&["S1", "S1"], &known)[0], "the page has S1 twice");
        assert_eq!(faults(&[], &Known::default()), ["no table has rows such as `S1`"]);
    }
}
