//! The annotations of a Service as a page to read, from the comments of the constants that service-controller reads them by. Pure.
//!
//! It reads no Rust in general, only what that file is written in: comments of which `Type`, `Default`, `Unit` and `Needs` are lines of
//! their own, and the constant below. Anything else in front of a constant is refused.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

/// Where the constants are.
pub(crate) const SOURCE: &str = "service-controller/src/plan/annotations/keys.rs";

const HEAD: &str = "# Annotations of a Service

<!-- Written by `cargo xtask codegen` from service-controller/src/plan/annotations/keys.rs: change that. -->

What a Service of type LoadBalancer can say of its load balancer beside its own fields. Every key begins with `";

const RULES: &str = "`.

- What the cloud behind the adapter cannot do is refused before anything is called: one Event names the annotation, what it holds, and
  what would be right. *Needs* names the capability that the adapter must list.
- A key below the prefix that is not in the table is refused with the nearest one, never passed over.
- Keys with * are about each port. `port.<number or name>.<key>` says it of one port alone, and comes first: with `port.443.algorithm`
  port 443 differs from the others. What is meant for all is passed over on ports where it makes no sense.
- `x.<adapter>.<key>` is what only one vendor has. It reaches the adapter as it stands, if that is the adapter's vendor, such as
  `x.openstack.member-subnet-id`; the adapter's page tells its keys.
- A cluster's default is the flag `--service-default <key>=<value>` of service-controller, repeated for each, or the chart's value
  `serviceController.serviceDefaults`. It holds for every Service that does not say it itself; an annotation that is removed lets it
  through again. Keys marked with ¹ have none.
- The chart's value `admissionPolicy.enabled` lets the API server refuse unknown keys, values of a wrong type, names that a Go cloud
  controller manager may give, and ports that a Service may not have probed, when they are written.
- Lists have commas between their entries. A duration is a whole number with `s`, `m` or `h`.

| key | type | default | unit | needs | |
| --- | --- | --- | --- | --- | --- |
";

const TAIL: &str = "
`service.beta.kubernetes.io/load-balancer-source-ranges`, a list of CIDRs, is Kubernetes' own; `spec.loadBalancerSourceRanges` wins.
";

/// The lines that every constant has.
const LINES: [&str; 4] = ["Type: ", "Default: ", "Unit: ", "Needs: "];

/// An annotation, as its constant and the comment in front of it say.
pub(crate) struct Annotation<'a> {
    /// Without the prefix.
    pub(crate) name: &'a str,
    /// How it is made: `port`, `service` or `one`.
    reach: &'a str,
    comment: Vec<&'a str>,
}

impl<'a> Annotation<'a> {
    /// `made` is such as `port("algorithm");`.
    fn read(made: &'a str, comment: Vec<&'a str>) -> Result<Self> {
        let (reach, name) = made.split_once("(\"").context("is not made of a name")?;
        let name = name.split_once('"').context("has no end of its name")?.0;
        ensure!(["port", "service", "one"].contains(&reach), "{reach} is not known");
        let read = Self { name, reach, comment };
        for label in LINES {
            read.line(label)?;
        }
        ensure!(!read.text().is_empty(), "says nothing of itself");
        Ok(read)
    }

    /// Whether one port can have its own.
    pub(crate) fn is_of_ports(&self) -> bool {
        self.reach == "port"
    }

    /// Whether the cluster can have a default for it.
    pub(crate) fn has_default(&self) -> bool {
        self.reach != "one"
    }

    /// What a line of its own says, such as `Type: `.
    pub(crate) fn line(&self, label: &str) -> Result<&'a str> {
        let line = self.comment.iter().find_map(|line| line.strip_prefix(label));
        line.with_context(|| format!("has no line `{label}`"))
    }

    fn text(&self) -> String {
        let is_text = |line: &&&str| !line.is_empty() && !LINES.iter().any(|label| line.starts_with(label));
        self.comment.iter().filter(is_text).copied().collect::<Vec<_>>().join(" ")
    }
}

/// The prefix of all annotations.
///
/// # Errors
/// A file without it.
pub(crate) fn prefix(source: &str) -> Result<&str> {
    let prefix = source.lines().find_map(|line| line.strip_prefix("pub(crate) const PREFIX: &str = "));
    Ok(prefix.with_context(|| format!("{SOURCE} has no PREFIX"))?.trim_matches(['"', ';']))
}

/// All annotations, in their order.
///
/// # Errors
/// A constant without one of its lines, or a file without constants.
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

/// The page.
///
/// # Errors
/// As [`read`] and [`prefix`].
pub(crate) fn page(source: &str) -> Result<String> {
    let mut page = [HEAD, prefix(source)?, RULES].concat();
    for annotation in read(source)? {
        let mark = match annotation.reach {
            "port" => " *",
            "one" => " ¹",
            _ => "",
        };
        write!(page, "| `{}`{mark} |", annotation.name)?;
        for label in LINES {
            write!(page, " {} |", annotation.line(label)?)?;
        }
        writeln!(page, " {} |", annotation.text())?;
    }
    page.push_str(TAIL);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "pub(crate) const PREFIX: &str = \"lb.example.com/\";\n";

    #[test]
    fn a_constant_becomes_a_row() {
        let source = "/// How fast,\n/// at most.\n///\n/// Type: number\n/// Default: 1\n/// Unit: m/s\n/// Needs: -\n\
                      pub(crate) const SPEED: Key = Key::port(\"speed\");\n";
        let page = page(&[PREFIX, source].concat()).expect("good");
        assert!(page.contains("| `speed` * | number | 1 | m/s | - | How fast, at most. |\n"), "{page}");
        assert!(page.contains("begins with `lb.example.com/`"), "{page}");
    }

    #[test]
    fn a_line_that_is_missing_is_named() {
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
