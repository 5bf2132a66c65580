//! Generates the reference page of Service annotations from the comments of the constants in service-controller. Pure functions.
//!
//! This is not a general Rust parser. It supports only the form of that file: a comment, then the constant. In the comment, `Type`,
//! `Default`, `Unit` and `Needs` have a line each. Anything else before a constant is refused.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

pub(crate) const SOURCE: &str = "service-controller/src/plan/annotations/keys.rs";

const HEAD: &str = "# Annotations of a Service

<!-- Written by `cargo xtask codegen` from service-controller/src/plan/annotations/keys.rs: change that. -->

Settings of a Service of type LoadBalancer, in addition to its own fields. Every key begins with `";

const RULES: &str = "`.

- A setting that the cloud does not support is refused before any call: an Event names the annotation, its value, and what is expected.
  *Needs* names the capability that the adapter must list.
- A key that is not in the table is refused with the nearest known one, never ignored. This includes a key without `lb.` in front, such as
  `cloudadapter.dev/internal`.
- Keys with * apply to each port. `port.<number or name>.<key>`, such as `port.443.algorithm`, applies to one port and takes precedence. A
  setting for all ports is ignored on ports where it makes no sense.
- `x.<adapter>.<key>`, such as `x.openstack.member-subnet-id`, is passed unchanged to the adapter of that name, whose page lists its keys.
- `--service-default <key>=<value>` (repeatable) of service-controller, or the chart's value `serviceController.serviceDefaults`, sets a
  default for all Services of the cluster without the annotation. Keys with ¹ cannot have one.
- With the chart's value `admissionPolicy.enabled`, the API server refuses unknown keys, values of a wrong type, names that a Go cloud
  controller manager may give, and ports that a Service may not have probed.
- Commas separate the entries of lists. A duration is a whole number with `s`, `m` or `h`.

| key | type | default | needs | |
| --- | --- | --- | --- | --- |
";

const TAIL: &str = "
Kubernetes defines `service.beta.kubernetes.io/load-balancer-source-ranges`, a list of CIDRs; `spec.loadBalancerSourceRanges` takes
precedence.
";

/// The lines that every constant must have.
const LINES: [&str; 4] = ["Type: ", "Default: ", "Unit: ", "Needs: "];

/// An annotation, from its constant and the comment before it.
pub(crate) struct Annotation<'a> {
    /// The name without the prefix.
    pub(crate) name: &'a str,
    /// Kind of the annotation: `port`, `service` or `one`.
    reach: &'a str,
    comment: Vec<&'a str>,
}

impl<'a> Annotation<'a> {
    /// Parses a constant. `made`: the part after `Key::`, such as `port("algorithm");`.
    fn read(made: &'a str, comment: Vec<&'a str>) -> Result<Self> {
        let (reach, name) = made.split_once("(\"").context("is not a call with a name")?;
        let name = name.split_once('"').context("has an unterminated name")?.0;
        ensure!(["port", "service", "one"].contains(&reach), "unknown kind {reach}");
        let read = Self { name, reach, comment };
        for label in LINES {
            read.line(label)?;
        }
        ensure!(!read.text().is_empty(), "has no description");
        Ok(read)
    }

    /// Whether the annotation can be set for one port.
    pub(crate) fn is_of_ports(&self) -> bool {
        self.reach == "port"
    }

    /// Whether the annotation can have a default value for the cluster.
    pub(crate) fn has_default(&self) -> bool {
        self.reach != "one"
    }

    /// The text of a labelled line, such as `Type: `.
    pub(crate) fn line(&self, label: &str) -> Result<&'a str> {
        let line = self.comment.iter().find_map(|line| line.strip_prefix(label));
        line.with_context(|| format!("has no line `{label}`"))
    }

    fn text(&self) -> String {
        let is_text = |line: &&&str| !line.is_empty() && !LINES.iter().any(|label| line.starts_with(label));
        self.comment.iter().filter(is_text).copied().collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn prefix(source: &str) -> Result<&str> {
    let prefix = source.lines().find_map(|line| line.strip_prefix("pub(crate) const PREFIX: &str = "));
    Ok(prefix.with_context(|| format!("{SOURCE} has no PREFIX"))?.trim_matches(['"', ';']))
}

/// All annotations, in the order of the file.
pub(crate) fn read(source: &str) -> Result<Vec<Annotation<'_>>> {
    let mut all = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
            continue;
        }
        let comment = std::mem::take(&mut comment);
        if let Some((_, made)) = line.split_once(": Key = Key::") {
            all.push(Annotation::read(made, comment).with_context(|| format!("{SOURCE}: {line}"))?);
        }
    }
    ensure!(!all.is_empty(), "{SOURCE} has no keys");
    Ok(all)
}

pub(crate) fn page(source: &str) -> Result<String> {
    let mut page = [HEAD, prefix(source)?, RULES].concat();
    for annotation in read(source)? {
        let mark = match annotation.reach {
            "port" => " *",
            "one" => " ¹",
            _ => "",
        };
        let [kind, default, unit, needs] = LINES.map(|label| annotation.line(label));
        let unit =
            Some(unit?).filter(|unit| *unit != "-").map_or_else(String::new, |unit| format!(" ({unit})"));
        let (name, text) = (annotation.name, annotation.text());
        writeln!(page, "| `{name}`{mark} | {}{unit} | {} | {} | {text} |", kind?, default?, needs?)?;
    }
    page.push_str(TAIL);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "pub(crate) const PREFIX: &str = \"lb.example.com/\";\n";

    #[test]
    fn constant_becomes_a_row() {
        let source = "/// How fast,\n/// at most.\n///\n/// Type: number\n/// Default: 1\n/// Unit: m/s\n/// Needs: -\n\
                      pub(crate) const SPEED: Key = Key::port(\"speed\");\n";
        let page = page(&[PREFIX, source].concat()).expect("good");
        assert!(page.contains("| `speed` * | number (m/s) | 1 | - | How fast, at most. |\n"), "{page}");
        assert!(page.contains("begins with `lb.example.com/`"), "{page}");
    }

    #[test]
    fn missing_line_is_named() {
        let source =
            "/// How fast.\n///\n/// Type: number\npub(crate) const SPEED: Key = Key::one(\"speed\");\n";
        let error = page(&[PREFIX, source].concat()).expect_err("no default");
        assert!(
            format!("{error:#}").contains("SPEED") && format!("{error:#}").contains("`Default: `"),
            "{error:#}"
        );
        assert!(page(PREFIX).is_err(), "no keys at all");
    }
}
