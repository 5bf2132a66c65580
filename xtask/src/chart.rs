//! `cargo xtask chart`: generates the table in the chart's README and the defaults that templates read from values.yaml, and the keys that
//! templates know from the schema. Reports keys that are missing from the schema.
//!
//! This command supports only the subset of YAML that values.yaml uses: two spaces per level, comments above the key, lists and empty maps
//! on the line of their key. It refuses everything else.

mod schema;

use std::fs;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::say;

const CHART: &str = "helm/cloud-controllers";
const BEGIN: &str = "<!-- Written by `cargo xtask chart` from values.yaml. -->\n";
const END: &str = "<!-- End of what is written. -->\n";

/// The defaults for templates, which cannot read values.yaml.
const DEFAULTS: &str = "files/defaults.yaml";
/// The known keys for templates, which cannot read the schema.
const KEYS: &str = "files/keys.yaml";

pub(crate) fn write() -> anyhow::Result<()> {
    for (name, old, new) in written()? {
        if old != new {
            say(&format!("writing {CHART}/{name}"));
            let path = cargo::root().join(CHART).join(name);
            fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Fails if the table, the defaults or the schema do not match values.yaml.
pub(crate) fn check() -> anyhow::Result<()> {
    for (name, old, new) in written()? {
        if old != new {
            bail!("{CHART}/{name} differs from values.yaml or values.schema.json");
        }
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

/// The generated files: name, current text, and expected text.
fn written() -> anyhow::Result<[(&'static str, String, String); 3]> {
    let (values, readme) = (read("values.yaml")?, read("README.md")?);
    let with_table = with_table(&readme, &table(&values)?)?;
    let keys = schema::keys(&read("values.schema.json")?)?;
    // A generated file may not exist yet.
    let before = |name| fs::read_to_string(cargo::root().join(CHART).join(name)).unwrap_or_default();
    Ok([
        ("README.md", readme, with_table),
        (DEFAULTS, before(DEFAULTS), defaults(&values)),
        (KEYS, before(KEYS), keys),
    ])
}

/// The values without their comments.
fn defaults(values: &str) -> String {
    let keys = values.lines().filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'));
    let mut text = "# Written by `cargo xtask chart`: values.yaml, which templates cannot read.\n".to_owned();
    for line in keys {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Returns the README with this table between its markers.
fn with_table(readme: &str, table: &str) -> anyhow::Result<String> {
    let (before, rest) =
        readme.split_once(BEGIN).with_context(|| format!("README.md lacks the line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("README.md lacks the line {END}"))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// The table has one line per value. A key with children gets a line only if the key has a comment.
fn table(values: &str) -> anyhow::Result<String> {
    let mut table = String::from("| key | default | meaning |\n| --- | --- | --- |\n");
    for Entry { key, default, meaning } in entries(values)? {
        if !default.is_empty() || !meaning.is_empty() {
            table.push_str(&row(&key, default, &meaning));
        }
    }
    Ok(table)
}

/// A key of values.yaml with its full path.
#[derive(Debug)]
struct Entry<'a> {
    key: String,
    /// The default; empty for a key with children.
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
            bail!("values.yaml:{}: expected a comment or `key: value`, with lists as [...]", n + 1);
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
    use super::{BEGIN, END, defaults, table, with_table};

    #[test]
    fn value_has_its_full_key_default_and_comment() {
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
    fn defaults_are_the_values_alone() {
        let written = defaults("# A name.\na: x\n\nb:\n  # Of b.\n  c: \"#\"\n");
        assert_eq!(written.split_once('\n').unwrap().1, "a: x\nb:\n  c: \"#\"\n");
    }

    #[test]
    fn unsupported_yaml_is_refused_with_its_line() {
        let error = table("a:\n  - b: c\n").expect_err("a list below its key");
        assert!(error.to_string().starts_with("values.yaml:2: "), "{error}");
    }

    #[test]
    fn text_around_the_table_stays() {
        let readme = format!("# Chart\n{BEGIN}old\n{END}end\n");
        assert_eq!(with_table(&readme, "new\n").unwrap(), format!("# Chart\n{BEGIN}new\n{END}end\n"));
        assert!(with_table("# Chart\n", "new\n").is_err());
    }
}
