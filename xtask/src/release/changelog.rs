//! Turns fragments into a section of the changelog, and extracts the notes of a release. Pure functions.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

/// The kinds of fragments with their headings, in the order of the changelog.
const KINDS: [(&str, &str); 4] =
    [("breaking", "Breaking"), ("added", "Added"), ("changed", "Changed"), ("fixed", "Fixed")];

/// The heading of the unreleased changes, which end at the next heading.
const UNRELEASED: &str = "## Unreleased\n";

/// Returns the texts of the fragments by kind, in the order of the changelog and then by file name. `fragments` contains the text of each
/// file by the name of the file.
pub(super) fn by_kind(
    fragments: &BTreeMap<String, String>,
) -> anyhow::Result<Vec<(&'static str, Vec<&str>)>> {
    let mut by_kind = KINDS.map(|(kind, _)| (kind, Vec::new()));
    for (name, text) in fragments {
        let kind = name.strip_suffix(".md").and_then(|name| name.rsplit_once('.')).map(|(_, kind)| kind);
        let known = by_kind.iter_mut().find(|(known, _)| Some(*known) == kind);
        let (_, texts) = known.with_context(|| {
            format!("changelog.d/{name}: unknown kind of fragment; name it SLUG.{{breaking,added,changed,fixed}}.md")
        })?;
        if text.trim().is_empty() {
            bail!("changelog.d/{name}: empty; describe the change, or remove the file");
        }
        texts.push(text.trim());
    }
    Ok(by_kind.into_iter().filter(|(_, texts)| !texts.is_empty()).collect())
}

/// Returns the changes, sorted by kind and then by file name.
pub(super) fn changes(fragments: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut section = String::new();
    for (kind, texts) in by_kind(fragments)? {
        let heading = KINDS.iter().find(|(known, _)| *known == kind).map_or(kind, |(_, heading)| heading);
        section.push_str(&format!("\n### {heading}\n\n"));
        for text in texts {
            section.push_str(&item(text));
        }
    }
    if section.is_empty() {
        bail!("changelog.d has no fragments, so this release has no changes for users");
    }
    Ok(section)
}

/// Formats a paragraph as a list item, with wrapped lines. The links of a fragment are already relative to CHANGELOG.md.
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

/// Returns the changelog with a new section above the older ones.
pub(super) fn with_section(
    changelog: &str,
    version: &str,
    date: &str,
    changes: &str,
) -> anyhow::Result<String> {
    if section(changelog, version).is_some() {
        bail!("CHANGELOG.md already has a section {version}; choose another version");
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

/// Returns the section of a version, without its heading.
pub(super) fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let heading = format!("\n## {version} - ");
    let (_, rest) = changelog.split_once(&heading)?;
    let (_, text) = rest.split_once('\n')?;
    Some(text.split_once("\n## ").map_or(text, |(text, _)| text))
}

/// The README of a release's folder.
pub(super) fn notes(version: &str, arches: &str, published: bool, changes: &str) -> String {
    let warning = if published { "" } else { "This is not a release: do not publish or use it.\n\n" };
    format!(
        "# cloud-controllers {version}\n\n{warning}Images and programs are for Linux on {arches}. To verify the \
         signatures, compare `cosign.pub` with the key of the maintainers, then run `cosign verify-blob --key cosign.pub \
         --bundle SHA256SUMS.sigstore.json --insecure-ignore-tlog SHA256SUMS` and `sha256sum --check --ignore-missing SHA256SUMS`.\n\n{}\n",
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
        assert!(notes("0.2.0", "amd64", true, &changes).ends_with("- Was [wrong](docs/a.md).\n"));
        assert!(!notes("0.2.0", "amd64", true, &changes).contains("not a release"));
        assert!(
            notes("0.2.0", "amd64", true, &changes).contains("sha256sum --check --ignore-missing SHA256SUMS")
        );
        assert!(notes("0.2.0", "amd64", false, &changes).contains("not a release"));
    }

    #[test]
    fn first_section_follows_the_unreleased_changes() {
        let first = with_section("## Unreleased\n\nText.\n", "0.1.0", "2026-01-01", "\n- a\n").unwrap();
        assert_eq!(first, "## Unreleased\n\nText.\n\n## 0.1.0 - 2026-01-01\n\n- a\n");
    }

    #[test]
    fn invalid_fragments_are_refused_with_a_fix() {
        let said = |list: &[(&str, &str)]| changes(&fragments(list)).unwrap_err().to_string();
        assert!(said(&[("a.new.md", "x")]).contains("changelog.d/a.new.md: unknown kind"));
        assert!(said(&[("a.md", "x")]).contains("SLUG."));
        assert!(said(&[("a.fixed.md", " \n")]).contains("changelog.d/a.fixed.md: empty"));
        assert!(said(&[]).contains("no fragments"));
        let twice = with_section(BEFORE, "0.1.0", "2026-02-02", "x").unwrap_err();
        assert!(twice.to_string().contains("already has a section 0.1.0"), "{twice}");
        assert!(
            with_section("# Changelog\n", "0.1.0", "", "").unwrap_err().to_string().contains("## Unreleased")
        );
    }
}
