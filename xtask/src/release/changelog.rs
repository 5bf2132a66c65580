//! From fragments to a section of the changelog, and back to what a release says of itself. Texts in, texts out.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

/// The kinds of fragments, in the order in which people want to read, and their headings.
const KINDS: [(&str, &str); 4] =
    [("breaking", "Breaking"), ("added", "Added"), ("changed", "Changed"), ("fixed", "Fixed")];

/// What is not released stands below this heading, until the next one.
const UNRELEASED: &str = "## Unreleased\n";

/// What changed, by kind and in the order of the files' names. Takes each file's name and text.
pub(super) fn changes(fragments: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in fragments {
        let kind = name.strip_suffix(".md").and_then(|name| name.rsplit_once('.')).map(|(_, kind)| kind);
        let known = kind.filter(|kind| KINDS.iter().any(|(known, _)| known == kind));
        let kind = known.with_context(|| {
            format!("changelog.d/{name}: is of no kind; name it SLUG.{{breaking,added,changed,fixed}}.md")
        })?;
        if text.trim().is_empty() {
            bail!("changelog.d/{name}: says nothing; write what changed, or remove it");
        }
        by_kind.entry(kind).or_default().push(text.trim());
    }
    let mut section = String::new();
    for (kind, heading) in KINDS {
        let Some(texts) = by_kind.get(kind) else { continue };
        section.push_str(&format!("\n### {heading}\n\n"));
        for text in texts {
            section.push_str(&item(text));
        }
    }
    if section.is_empty() {
        bail!("changelog.d has no fragments: nothing changed that a user can see");
    }
    Ok(section)
}

/// One paragraph as an item of a list, its lines below each other. Its links lead from where the changelog is already.
fn item(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let mut item = String::from("- ");
    for (n, line) in lines.iter().enumerate() {
        if n > 0 && !line.is_empty() {
            item.push_str("  ");
        }
        item.push_str(line);
        item.push('\n');
    }
    item
}

/// The changelog with a new section, above those before it.
pub(super) fn with_section(
    changelog: &str,
    version: &str,
    date: &str,
    changes: &str,
) -> anyhow::Result<String> {
    if section(changelog, version).is_some() {
        bail!("CHANGELOG.md has a section {version} already; choose another version");
    }
    let (before, rest) = changelog
        .split_once(UNRELEASED)
        .with_context(|| format!("CHANGELOG.md lacks the line {}", UNRELEASED.trim_end()))?;
    let (unreleased, older) = rest.split_at(rest.find("\n## ").map_or(rest.len(), |at| at + 1));
    let mut text = format!("{before}{UNRELEASED}{}\n\n", unreleased.trim_end());
    text.push_str(&format!("## {version} - {date}\n{changes}"));
    if !older.is_empty() {
        text.push_str(&format!("\n{older}"));
    }
    Ok(text)
}

/// What the changelog says of a version, without its heading.
pub(super) fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let heading = format!("\n## {version} - ");
    let (_, rest) = changelog.split_once(&heading)?;
    let (_, text) = rest.split_once('\n')?;
    Some(text.split_once("\n## ").map_or(text, |(text, _)| text))
}

/// What is in the folder of a release, for people.
pub(super) fn notes(version: &str, changes: &str) -> String {
    format!(
        "# cloud-controllers {version}\n\nWhether all files are whole: `sha256sum --check SHA256SUMS`.\n\n{}\n",
        changes.trim()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{changes, notes, section, with_section};

    fn fragments(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    const BEFORE: &str =
        "# Changelog\n\n## Unreleased\n\nEach has a file.\n\n## 0.1.0 - 2026-01-01\n\n### Added\n\n- All.\n";

    #[test]
    fn fragments_become_a_section_by_kind() {
        let list = [
            ("b.fixed.md", "Was [wrong](docs/a.md).\n"),
            ("a.fixed.md", "One\nparagraph.\n"),
            ("z.breaking.md", "Stops."),
        ];
        let changes = changes(&fragments(&list)).unwrap();
        let expected =
            "\n### Breaking\n\n- Stops.\n\n### Fixed\n\n- One\n  paragraph.\n- Was [wrong](docs/a.md).\n";
        assert_eq!(changes, expected);
        let after = with_section(BEFORE, "0.2.0", "2026-02-02", &changes).unwrap();
        let older = "## 0.1.0 - 2026-01-01\n\n### Added\n\n- All.\n";
        let wanted = format!(
            "# Changelog\n\n## Unreleased\n\nEach has a file.\n\n## 0.2.0 - 2026-02-02\n{changes}\n{older}"
        );
        assert_eq!(after, wanted);
        assert_eq!(section(&after, "0.2.0"), Some(changes.as_str()));
        assert_eq!(section(&after, "0.1.0"), Some("\n### Added\n\n- All.\n"));
        assert_eq!(section(&after, "0.2"), None);
        assert!(notes("0.2.0", &changes).ends_with("- Was [wrong](docs/a.md).\n"));
    }

    #[test]
    fn the_first_section_comes_after_what_is_not_released() {
        let first = with_section("## Unreleased\n\nText.\n", "0.1.0", "2026-01-01", "\n- a\n").unwrap();
        assert_eq!(first, "## Unreleased\n\nText.\n\n## 0.1.0 - 2026-01-01\n\n- a\n");
    }

    #[test]
    fn what_cannot_be_a_section_is_refused_with_what_mends_it() {
        let said = |list: &[(&str, &str)]| changes(&fragments(list)).unwrap_err().to_string();
        assert!(said(&[("a.new.md", "x")]).contains("changelog.d/a.new.md: is of no kind"));
        assert!(said(&[("a.md", "x")]).contains("SLUG."));
        assert!(said(&[("a.fixed.md", " \n")]).contains("changelog.d/a.fixed.md: says nothing"));
        assert!(said(&[]).contains("no fragments"));
        let twice = with_section(BEFORE, "0.1.0", "2026-02-02", "x").unwrap_err();
        assert!(twice.to_string().contains("section 0.1.0 already"), "{twice}");
        assert!(
            with_section("# Changelog\n", "0.1.0", "", "").unwrap_err().to_string().contains("## Unreleased")
        );
    }
}
