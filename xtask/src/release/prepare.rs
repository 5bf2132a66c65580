//! `cargo xtask release prepare`: changes the files for a release. The maintainer reviews, commits and tags them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use jiff::civil::Date;

use super::state;
use super::tree::read;
use super::version::{PLACES, Version};
use super::{artifacthub, changelog, chart};
use crate::step::say;
use crate::{cargo, git};

const CHANGELOG: &str = "CHANGELOG.md";
const FRAGMENTS: &str = "changelog.d";

pub(super) fn run(version: &Version) -> anyhow::Result<()> {
    let root = cargo::root();
    let changed = !git::output(["status", "--porcelain"])?.is_empty();
    let tagged = state::tagged(&version.to_string())?.is_some();
    let [first, ..] = &PLACES;
    let text = read(&root, first.file)?;
    let last = first.found(&text)?.first().map(|last| last.parse::<Version>());
    let last = last.context("Cargo.toml has no version")?.map_err(anyhow::Error::msg)?;
    if let Some(refusal) = state::refused(version, &last, changed, tagged) {
        bail!(refusal);
    }
    write(&root, version, today())?;
    say(&format!(
        "Review the changes (`git diff`), then:\n  git commit --all --message 'chore: release \
         {version}'\n  git tag --annotate v{version} --message {version}\n  cargo xtask release build"
    ));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the date of the release is the day on which it is prepared")]
fn today() -> Date {
    jiff::Zoned::now().date()
}

/// Reads and checks all files before it writes any.
fn write(root: &Path, version: &Version, date: Date) -> anyhow::Result<()> {
    let fragments = fragments(root)?;
    let changes = changelog::changes(&fragments)?;
    let mut files = Vec::new();
    for place in &PLACES {
        let text = place.with(&read(root, place.file)?, version)?;
        let text =
            if place.file == chart::FILE { artifacthub::with_changes(&text, &fragments)? } else { text };
        files.push((place.file, text));
    }
    let text =
        changelog::with_section(&read(root, CHANGELOG)?, &version.to_string(), &date.to_string(), &changes)?;
    files.push((CHANGELOG, text));
    for (file, text) in files {
        say(&format!("writing {file}"));
        fs::write(root.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    for name in fragments.keys() {
        let path = root.join(FRAGMENTS).join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    say(&format!("removed {} fragments of {FRAGMENTS}", fragments.len()));
    Ok(())
}

/// Returns the unreleased changes, by the names of their files.
pub(super) fn fragments(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut fragments = BTreeMap::new();
    for file in fs::read_dir(root.join(FRAGMENTS)).with_context(|| format!("cannot read {FRAGMENTS}"))? {
        let name = file?.file_name().to_string_lossy().into_owned();
        if name != "README.md" {
            let text = read(root, &format!("{FRAGMENTS}/{name}"))?;
            fragments.insert(name, text);
        }
    }
    Ok(fragments)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::civil::date;

    use super::super::tree::read;
    use super::{PLACES, changelog, fragments, write};
    use crate::cargo;

    /// Runs on a copy of the repository's files.
    #[test]
    fn all_files_get_the_version_and_the_changelog_a_section() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for file in PLACES.iter().map(|place| place.file).chain(["CHANGELOG.md", "changelog.d/README.md"]) {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::copy(cargo::root().join(file), root.join(file)).unwrap();
        }
        let version = "9.0.0".parse().unwrap();
        let error = write(root, &version, date(2026, 2, 3)).unwrap_err();
        assert!(error.to_string().contains("no fragments"), "{error}");
        assert_eq!(read(root, "CHANGELOG.md").unwrap(), read(&cargo::root(), "CHANGELOG.md").unwrap());

        fs::write(root.join("changelog.d/a.added.md"), "A thing.\n").unwrap();
        write(root, &version, date(2026, 2, 3)).unwrap();
        for place in &PLACES {
            let text = read(root, place.file).unwrap();
            assert!(place.found(&text).unwrap().iter().all(|it| *it == "9.0.0"), "{}", place.file);
        }
        let text = read(root, "CHANGELOG.md").unwrap();
        assert!(text.contains("## 9.0.0 - 2026-02-03\n"), "{text}");
        assert_eq!(changelog::section(&text, "9.0.0").unwrap().trim(), "### Added\n\n- A thing.");
        let chart = read(root, super::chart::FILE).unwrap();
        let (_, changes) = chart.split_once("  artifacthub.io/changes: |\n").unwrap();
        let list =
            "    - kind: added\n      description: \"A thing.\"\n  # There is no artifacthub.io/signKey";
        assert!(changes.starts_with(list), "{changes}");
        assert!(fragments(root).unwrap().is_empty());
        assert!(root.join("changelog.d/README.md").exists());
    }

    /// Checks the present fragments of the repository, so that errors appear before the release.
    #[test]
    fn fragments_of_this_tree_are_valid() {
        let fragments = fragments(&cargo::root()).unwrap();
        if !fragments.is_empty() {
            changelog::changes(&fragments).unwrap();
        }
    }
}
