//! Rules on annotations for the chart's admission policy and `serviceDefaults`: the names, and a pattern for each type of value. Pure
//! functions.
//!
//! The patterns accept everything that service-controller accepts, and some values that service-controller refuses with an Event. A test of
//! service-controller and a test with a real API server use the same examples. A pattern cannot express whether a Service may use a port of
//! the nodes. The generated file therefore only lists the keys of such annotations, and the chart contains the rule.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::annotations::{self, Annotation, SOURCE};

const HEAD: &str =
    "# Written by `cargo xtask codegen` from service-controller/src/plan/annotations/keys.rs: change that.
";

struct Kind<'a> {
    /// The pattern in RE2 syntax, which matches the whole value.
    pattern: String,
    /// Description of valid values, for users.
    says: String,
    keys: Vec<&'a str>,
}

pub(crate) fn rules(source: &str) -> Result<String> {
    let all = annotations::read(source)?;
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for annotation in &all {
        let of = || format!("{SOURCE}: {}", annotation.name);
        let Some((pattern, says)) = kind(annotation).with_context(of)? else { continue };
        match kinds.iter_mut().find(|kind| kind.says == says) {
            Some(kind) => kind.keys.push(annotation.name),
            None => kinds.push(Kind { pattern, says, keys: vec![annotation.name] }),
        }
    }
    let mut file = HEAD.to_owned();
    writeln!(file, "prefix: {}", annotations::prefix(source)?)?;
    list(&mut file, "keys", all.iter().map(|annotation| annotation.name))?;
    list(&mut file, "portKeys", all.iter().filter(|it| it.is_of_ports()).map(|it| it.name))?;
    list(&mut file, "defaultKeys", all.iter().filter(|it| it.has_default()).map(|it| it.name))?;
    list(&mut file, "nodePortKeys", all.iter().filter(|it| is_of_nodes(it)).map(|it| it.name))?;
    writeln!(file, "values:")?;
    for kind in kinds {
        writeln!(file, "  - says: {}\n    pattern: '{}'", kind.says, kind.pattern)?;
        list(&mut file, "    keys", kind.keys.into_iter())?;
    }
    writeln!(file, "refused:")?;
    for annotation in &all {
        if let Some((pattern, says)) = refused(annotation)? {
            writeln!(file, "  - says: '{says}'\n    pattern: '{pattern}'")?;
            list(&mut file, "    keys", [annotation.name].into_iter())?;
        }
    }
    Ok(file)
}

/// Whether the value is a port of the nodes that load balancers probe. service-controller allows only some of these ports.
fn is_of_nodes(annotation: &Annotation<'_>) -> bool {
    annotation.line("Unit: ").is_ok_and(|unit| unit.starts_with("port, "))
}

/// A pattern of values that are refused although they match the type, and the reason, in the words of service-controller.
fn refused(annotation: &Annotation<'_>) -> Result<Option<(&'static str, &'static str)>> {
    Ok(match annotation.line("Type: ")? {
        "name" => Some((
            "(?i)(kube_service_.*|a[0-9a-f]{31})",
            "this name is reserved for former cloud controller managers (kube_service_..., a<uid>): write one such as shop-web",
        )),
        _ => None,
    })
}

fn list<'a>(file: &mut String, name: &str, entries: impl Iterator<Item = &'a str>) -> Result<()> {
    let indent = name.len() - name.trim_start().len();
    writeln!(file, "{name}:")?;
    for entry in entries {
        writeln!(file, "{:indent$}  - {entry}", "")?;
    }
    Ok(())
}

/// Returns the pattern and the description of an annotation's type, or `None` if the type is too complex for a pattern.
fn kind(annotation: &Annotation<'_>) -> Result<Option<(String, String)>> {
    let name = annotation.line("Type: ")?;
    let (pattern, says) = match name {
        "name" => (
            "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
            "a name of letters, digits, -, _ and ., the first and the last a letter or a digit",
        ),
        "text" => (r"\S(.*\S)?", "a text without blanks around it"),
        // Whitespace around an entry is ignored, and may include a newline.
        "list of strings" => (r"(?s).*\S.*", "texts with commas between them"),
        "list of namespaces" => (r"[a-z0-9,\s-]+", "names of namespaces with commas between them"),
        "list of IP addresses" => (r"[0-9a-fA-F:.,\s]+", "IP addresses with commas between them"),
        "list of `key=value`" => ("[^=,]+=[^,]*(,[^=,]+=[^,]*)*", "key=value with commas between them"),
        "duration" => ("0*[1-9][0-9]*[smh]", "a duration such as 90s, 5m or 1h"),
        "path, with a slash in front" => ("/[!-~]*", "a path such as /healthz"),
        "DNS name" => ("[a-z0-9.-]+", "a DNS name in lower case"),
        "label selector, as of `kubectl get --selector`" => return Ok(None),
        "number" => return number(annotation.line("Unit: ")?).map(Some),
        words if words.starts_with('`') => return Ok(Some(one_of(words))),
        other => bail!("unknown type {other:?}: add a pattern in xtask/src/codegen/admission.rs"),
    };
    Ok(Some((pattern.to_owned(), says.to_owned())))
}

/// Returns the pattern of a number with at most as many digits as the maximum. Examples of `unit`: `port, 1 to 65535`, `connections, 1 or
/// more`.
fn number(unit: &str) -> Result<(String, String)> {
    let (_what, range) = unit.split_once(", ").context("a number's `Unit: ` has no range")?;
    let pattern = match range.split_once(" to ") {
        Some((_least, most)) => format!("[1-9][0-9]{{0,{}}}", most.len().saturating_sub(1)),
        None => "[1-9][0-9]{0,9}".to_owned(),
    };
    Ok((pattern, format!("a number, {range}")))
}

/// Returns the pattern that accepts any of several words. Example of `words`: "`a`, `b` or `c`".
fn one_of(words: &str) -> (String, String) {
    let alone: Vec<&str> = words.split('`').skip(1).step_by(2).collect();
    (alone.join("|"), words.replace('`', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_type(name: &str, unit: &str) -> String {
        format!(
            "pub(crate) const PREFIX: &str = \"lb.example.com/\";\n/// Speed.\n///\n/// Type: {name}\n/// Default: -\n\
             /// Unit: {unit}\n/// Needs: -\npub(crate) const SPEED: Key = Key::port(\"speed\");\n"
        )
    }

    #[test]
    fn type_becomes_a_pattern() {
        let rows = [
            ("`slow`, `fast` or `wild`", "-", "says: slow, fast or wild\n    pattern: 'slow|fast|wild'"),
            ("number", "m/s, 1 to 300", "says: a number, 1 to 300\n    pattern: '[1-9][0-9]{0,2}'"),
            ("number", "m/s, 1 or more", "pattern: '[1-9][0-9]{0,9}'"),
        ];
        for (name, unit, wanted) in rows {
            let rules = rules(&with_type(name, unit)).expect("good");
            assert!(rules.contains(wanted), "{rules}");
            assert!(rules.contains("portKeys:\n  - speed\ndefaultKeys:\n  - speed\n"), "{rules}");
        }
    }

    #[test]
    fn refused_values_and_node_ports_are_listed() {
        let names = rules(&with_type("name", "-")).expect("good");
        assert!(names.contains("nodePortKeys:\nvalues:\n"), "{names}");
        let refused = names.split_once("refused:\n  - says: 'this name is reserved ").expect("a rule").1;
        assert!(refused.ends_with("    keys:\n      - speed\n"), "{names}");
        let ports = rules(&with_type("number", "port, 1 to 65535")).expect("good");
        assert!(ports.contains("nodePortKeys:\n  - speed\n"), "{ports}");
        assert!(ports.ends_with("refused:\n"), "{ports}");
    }

    #[test]
    fn unknown_annotation_type_is_an_error() {
        let error = rules(&with_type("colour", "-")).expect_err("no such type");
        assert!(format!("{error:#}").contains("unknown type \"colour\""), "{error:#}");
        assert!(rules(&with_type("number", "-")).is_err(), "a number without a range");
    }
}
