//! Checks the alerts of the chart. Each alert must have a runbook for the operator on call, and a row in docs/monitor.md. Its test cases
//! must show when the alert fires and when it does not. promtool checks the rules themselves.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use e2e_tools::{Environment, Prometheus};

use crate::cargo;
use crate::tool::run_captured;

const RULES: &str = "helm/cloud-controllers/files/alerts.yaml";
const CASES: &str = "e2e/alerts";
const PAGES: &str = "docs/runbooks";
const GUIDE: &str = "docs/monitor.md";
/// The headings of a runbook, in their order.
const HEADINGS: [&str; 4] = ["Meaning", "What users notice", "How to find the cause", "What to do"];

#[derive(Debug, Default)]
struct Texts {
    rules: String,
    cases: String,
    guide: String,
    /// The runbooks: their names without extension, and their texts.
    pages: Vec<(String, String)>,
}

pub(super) fn check() -> anyhow::Result<()> {
    let root = cargo::root();
    let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut texts =
        Texts { rules: read(&root.join(RULES))?, guide: read(&root.join(GUIDE))?, ..Texts::default() };
    let mut cases = files(&root.join(CASES), "yaml")?;
    cases.sort();
    for path in &cases {
        texts.cases += &read(path)?;
    }
    for path in files(&root.join(PAGES), "md")? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        texts.pages.push((name, read(&path)?));
    }
    let faults = faults(&texts);
    ensure!(faults.is_empty(), "alerts:\n  {}", faults.join("\n  "));
    let promtool = Prometheus::get(&Environment::of_this_process()?)?.promtool;
    let mut rules = Command::new(&promtool);
    rules.args(["check", "rules", RULES]).current_dir(&root);
    run_captured(&mut rules, "fix the rules that are named above")?;
    let mut tests = Command::new(&promtool);
    tests.args(["test", "rules"]).args(&cases).current_dir(&root);
    run_captured(&mut tests, "fix the rules, or the cases in e2e/alerts")
}

fn files(dir: &Path, ending: &str) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|it| it == ending)).collect())
}

fn faults(texts: &Texts) -> Vec<String> {
    let mut faults = Vec::new();
    let alerts: BTreeSet<&str> = alerts(&texts.rules).map(|(name, _)| name).collect();
    if alerts.is_empty() {
        faults.push(format!("{RULES} has no alerts"));
    }
    for (name, rule) in self::alerts(&texts.rules) {
        if !rule.contains(&format!("\n          runbook: {PAGES}/{name}.md\n")) {
            faults.push(format!("{name} has no annotation `runbook: {PAGES}/{name}.md`"));
        }
        for case in ["fires", "does not fire"] {
            if !texts.cases.contains(&format!("\n  - name: {name} {case}\n")) {
                faults.push(format!("{CASES} has no case `{name} {case}`"));
            }
        }
        if !texts.guide.contains(&format!("(runbooks/{name}.md)")) {
            faults.push(format!("{GUIDE} has no link to runbooks/{name}.md"));
        }
        match texts.pages.iter().find(|(page, _)| page == name) {
            None => faults.push(format!("{PAGES}/{name}.md does not exist")),
            Some((_, text)) => {
                let has: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
                if has != HEADINGS {
                    faults.push(format!("{PAGES}/{name}.md has the headings {has:?}, expected {HEADINGS:?}"));
                }
            }
        }
    }
    let without = texts.pages.iter().filter(|(page, _)| !alerts.contains(page.as_str()));
    faults.extend(without.map(|(page, _)| format!("{PAGES}/{page}.md belongs to no alert")));
    faults
}

/// Returns the name and the rule of each alert.
fn alerts(rules: &str) -> impl Iterator<Item = (&str, &str)> {
    rules.split("      - alert: ").skip(1).filter_map(|rule| Some((rule.lines().next()?.trim(), rule)))
}

#[cfg(test)]
mod tests {
    use super::{HEADINGS, Texts, faults};

    #[test]
    fn missing_parts_of_an_alert_are_reported() {
        let good = Texts {
            rules: "groups:\n      - alert: A\n          runbook: docs/runbooks/A.md\n".to_owned(),
            cases: "tests:\n  - name: A fires\n  - name: A does not fire\n".to_owned(),
            guide: "[A](runbooks/A.md)".to_owned(),
            pages: vec![("A".to_owned(), HEADINGS.map(|it| format!("## {it}\n")).concat())],
        };
        assert_eq!(faults(&good), Vec::<String>::new());
        let bad = Texts {
            rules: "      - alert: A\n      - alert: B\n          runbook: docs/runbooks/B.md\n".to_owned(),
            cases: "\n  - name: B fires\n".to_owned(),
            guide: String::new(),
            pages: vec![("B".to_owned(), "## Meaning\n".to_owned()), ("C".to_owned(), String::new())],
        };
        let found = faults(&bad).join("\n");
        for words in [
            "A has no annotation",
            "no case `A fires`",
            "no case `B does not fire`",
            "no link to runbooks/B.md",
            "A.md does not exist",
            "B.md has the headings",
            "C.md belongs to no alert",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
        assert_eq!(faults(&Texts::default()).len(), 1);
    }
}
