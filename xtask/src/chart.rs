//! `cargo xtask chart`: writes the table of values into the chart's README, from the comments in values.yaml, and tells what the schema
//! does not know.
//!
//! It reads no YAML in general, only what values.yaml is written in: two spaces a level, comments above the key, lists and
//! empty maps on the key's own line. Anything else is refused.

mod schema;

use std::fs;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::say;

const CHART: &str = "helm/cloud-controllers";
const BEGIN: &str = "<!-- Written by `cargo xtask chart` from values.yaml. -->\n";
const END: &str = "<!-- End of what is written. -->\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails if the table would change
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.check {
        return check();
    }
    let (old, new) = readmes()?;
    if old == new {
        return Ok(());
    }
    say(&format!("writing {CHART}/README.md"));
    fs::write(cargo::root().join(CHART).join("README.md"), new).context("cannot write the chart's README.md")
}

/// Fails if the table or the schema differs from values.yaml.
pub(crate) fn check() -> anyhow::Result<()> {
    let (old, new) = readmes()?;
    if old != new {
        bail!("the table of values in {CHART}/README.md differs from values.yaml");
    }
    let faults = schema::faults(&entries(&read("values.yaml")?)?, &read("values.schema.json")?)?;
    if !faults.is_empty() {
        bail!("{CHART}/values.schema.json:\n  {}", faults.join("\n  "));
    }
    Ok(())
}

fn read(name: &str) -> anyhow::Result<String> {
    let path = cargo::root().join(CHART).join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The README as it is, and as it should be.
fn readmes() -> anyhow::Result<(String, String)> {
    let old = read("README.md")?;
    let new = with_table(&old, &table(&read("values.yaml")?)?)?;
    Ok((old, new))
}

/// The README with this table between its marks.
fn with_table(readme: &str, table: &str) -> anyhow::Result<String> {
    let (before, rest) =
        readme.split_once(BEGIN).with_context(|| format!("README.md lacks the line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("README.md lacks the line {END}"))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// One line a value. A key with keys below it gets a line if it has a comment.
fn table(values: &str) -> anyhow::Result<String> {
    let mut table = String::from("| key | default | meaning |\n| --- | --- | --- |\n");
    for Entry { key, default, meaning } in entries(values)? {
        if !default.is_empty() || !meaning.is_empty() {
            table.push_str(&row(&key, default, &meaning));
        }
    }
    Ok(table)
}

/// A key of values.yaml with its whole path.
#[derive(Debug)]
struct Entry<'a> {
    key: String,
    /// Empty for a key with keys below it.
    default: &'a str,
    meaning: String,
}

fn entries(values: &str) -> anyhow::Result<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for (n, line) in values.lines().enumerate() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        if text.is_empty() {
            comment.clear();
            continue;
        }
        let Some((key, default)) = text.split_once(':').filter(|_| !text.starts_with("- ")) else {
            bail!("values.yaml:{}: a line is a comment or `key: value`, with lists as [...]", n + 1);
        };
        path.truncate((line.len() - text.len()) / 2);
        path.push(key);
        entries.push(Entry { key: path.join("."), default: default.trim(), meaning: comment.join(" ") });
        comment.clear();
    }
    Ok(entries)
}

fn row(key: &str, default: &str, meaning: &str) -> String {
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    format!("| `{key}` | {default} | {} |\n", meaning.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, table, with_table};

    #[test]
    fn a_value_has_its_whole_key_its_default_and_the_comment_above_it() {
        let values = "# A name,\n# never changed.\nname: x\n\n# Not about c.\n\na:\n  # Of a|b.\n  b:\n    c: 1\n  d: []\n";
        assert_eq!(
            table(values).unwrap(),
            "| key | default | meaning |\n\
             | --- | --- | --- |\n\
             | `name` | `x` | A name, never changed. |\n\
             | `a.b` |  | Of a\\|b. |\n\
             | `a.b.c` | `1` |  |\n\
             | `a.d` | `[]` |  |\n"
        );
    }

    #[test]
    fn yaml_that_it_does_not_read_is_refused_with_its_line() {
        let error = table("a:\n  - b: c\n").expect_err("a list below its key");
        assert!(error.to_string().starts_with("values.yaml:2: "), "{error}");
    }

    #[test]
    fn what_stands_around_the_table_stays() {
        let readme = format!("# Chart\n{BEGIN}old\n{END}end\n");
        assert_eq!(with_table(&readme, "new\n").unwrap(), format!("# Chart\n{BEGIN}new\n{END}end\n"));
        assert!(with_table("# Chart\n", "new\n").is_err());
    }
}
