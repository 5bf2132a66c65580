//! The changes of a release in Chart.yaml, which Artifact Hub shows beside the chart. Pure functions.
//!
//! Source: <https://artifacthub.io/docs/topics/annotations/helm/>

use std::collections::BTreeMap;

use anyhow::Context;

use super::{changelog, chart};

/// The line of Chart.yaml before the list of changes. The lines of the list have a deeper indentation.
const CHANGES: &str = "  artifacthub.io/changes: |\n";
const INDENTATION: &str = "    ";

/// Returns Chart.yaml with the first sentence of each fragment as the list of changes, in the order of the changelog.
pub(super) fn with_changes(yaml: &str, fragments: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let (before, rest) = yaml
        .split_once(CHANGES)
        .with_context(|| format!("{} lacks the line {}", chart::FILE, CHANGES.trim()))?;
    let after: String = rest.split_inclusive('\n').skip_while(|line| line.starts_with(INDENTATION)).collect();
    let mut list = String::new();
    for (kind, texts) in changelog::by_kind(fragments)? {
        for text in texts {
            let sentence = first_sentence(text);
            // Artifact Hub has no such kind.
            let (kind, sentence) = match kind {
                "breaking" => ("changed", format!("Breaking: {sentence}")),
                other => (other, sentence),
            };
            // A text of JSON is also one of YAML.
            let quoted = serde_json::Value::from(sentence);
            list.push_str(&format!("{INDENTATION}- kind: {kind}\n{INDENTATION}  description: {quoted}\n"));
        }
    }
    Ok(format!("{before}{CHANGES}{list}{after}"))
}

/// The first sentence in one line, with the texts of links in place of the links, which are relative to the repository.
fn first_sentence(text: &str) -> String {
    let text = without_links(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match text.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => text,
    }
}

fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let (Some(begin), Some((_, rest))) = (plain.rfind('['), part.split_once(')')) {
            plain.remove(begin);
            plain.push_str(rest);
        } else {
            plain.push_str("](");
            plain.push_str(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::with_changes;

    const BEFORE: &str = "name: a\nannotations:\n  artifacthub.io/changes: |\n    - kind: added\n      \
                          description: Old\n  # A comment.\nkeywords: []\n";

    #[test]
    fn each_fragment_becomes_a_change() {
        let list = [
            ("b.fixed.md", "chart: `a: \"b\"` is\nvalid. A second sentence.\n"),
            ("c.breaking.md", "The flag `--x` is [removed](docs/a.md#x), see [the page](docs/b.md)"),
            ("a.fixed.md", "One 1.5 of [these]."),
        ];
        let fragments: BTreeMap<_, _> =
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let expected = "name: a\nannotations:\n  artifacthub.io/changes: |\n    \
            - kind: changed\n      description: \"Breaking: The flag `--x` is removed, see the page\"\n    \
            - kind: fixed\n      description: \"One 1.5 of [these].\"\n    \
            - kind: fixed\n      description: \"chart: `a: \\\"b\\\"` is valid.\"\n  \
            # A comment.\nkeywords: []\n";
        assert_eq!(with_changes(BEFORE, &fragments).unwrap(), expected);
        let again = with_changes(expected, &fragments).unwrap();
        assert_eq!(again, expected);
        let error = with_changes("name: a\n", &fragments).unwrap_err().to_string();
        assert!(error.contains("Chart.yaml lacks the line artifacthub.io/changes"), "{error}");
    }
}
