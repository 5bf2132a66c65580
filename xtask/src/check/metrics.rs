//! Checks that docs/reference/metrics.md lists each metric in the sources. The unit tests that write the page cover only the metrics that
//! they use. This check also finds metrics with labels that no unit test uses.

use std::fs;

use anyhow::{Context, ensure};

use crate::{cargo, git};

const PAGE: &str = "docs/reference/metrics.md";
/// Code that precedes the name of a metric.
const BEFORE_NAMES: [&str; 8] = [
    ".register(",
    ".register_with_unit(",
    "counted(page,",
    "gauged(page,",
    "timed(page,",
    "batches(page,",
    "encode_descriptor(",
    "rows((",
];

pub(super) fn are_listed() -> anyhow::Result<()> {
    let root = cargo::root();
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let (mut missing, mut n_names) = (Vec::new(), 0_usize);
    let other = |path: &str| path.contains("tests") || path.starts_with("xtask/");
    for (path, source) in git::texts(&["*.rs"])?.iter().filter(|(path, _)| !other(path)) {
        if !source.contains("prometheus_client::") && !source.contains("metrics::Registry") {
            continue;
        }
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for name in names(source) {
            n_names += 1;
            if !is_listed(&page, name) {
                missing.push(format!("{path}: {name}"));
            }
        }
    }
    ensure!(
        n_names > 30,
        "found only {n_names} metrics in the sources: adapt this check to the way \
         in which they are registered"
    );
    ensure!(missing.is_empty(), "missing in {PAGE}:\n  {}", missing.join("\n  "));
    Ok(())
}

/// Returns the names of metrics without the prefix of their registry.
fn names(source: &str) -> Vec<&str> {
    let after = BEFORE_NAMES.iter().flat_map(|words| source.split(words).skip(1));
    after.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
}

fn is_listed(page: &str, name: &str) -> bool {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.into_iter().any(|row| {
        let row = row.strip_suffix("_total").unwrap_or(row);
        [row, row.strip_suffix("_seconds").unwrap_or(row)].iter().any(|row| {
            row.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('_'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{is_listed, names};

    #[test]
    fn metric_name_is_found_where_it_is_registered() {
        let source = "let a = counted(page, \"calls\", \"Help\");\nregistry.register(\n    \"b\",\n    help);\n\
                      node.register(&client);\nself.rows((\"c\", help), rows);";
        let mut found = names(source);
        found.sort_unstable();
        assert_eq!(found, ["b", "c", "calls"]);
    }

    #[test]
    fn row_matches_a_metric_name_or_its_suffix() {
        let page =
            "| `x_calls_total` | counter |\n| `x_wait_seconds` | histogram |\n| `shed_total` | counter |\n";
        for (name, listed) in [
            ("calls", true),
            ("wait", true),
            ("wait_seconds", true),
            ("shed", true),
            ("s", false),
            ("b", false),
        ] {
            assert_eq!(is_listed(page, name), listed, "{name}");
        }
    }
}
