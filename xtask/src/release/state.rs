//! Decides whether a release of this tree is possible. `State::of` reads git and files, and a pure function decides.

use std::path::Path;

use anyhow::{Context, bail};

use super::tree::read;
use super::version::{PLACES, Version};
use super::{changelog, chart};
use crate::git;

/// The facts that decide whether a release is possible.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Each file with a version, and its version.
    pub(super) versions: Vec<(&'static str, String)>,
    /// Whether there are uncommitted changes.
    pub(super) changed: bool,
    /// Whether the version's tag points to this commit. `None`: the version has no tag.
    pub(super) tagged: Option<bool>,
    /// Whether the changelog contains a section for the version.
    pub(super) in_changelog: bool,
    /// Files with texts that the owner must replace before the first publication, and these texts.
    pub(super) placeholders: Vec<(&'static str, &'static str)>,
}

impl State {
    pub(super) fn of(root: &Path) -> anyhow::Result<Self> {
        let mut versions = Vec::new();
        for place in &PLACES {
            let text = read(root, place.file)?;
            versions.extend(place.found(&text)?.into_iter().map(|found| (place.file, found.to_owned())));
        }
        let version = versions.first().map(|(_, version)| version.clone()).unwrap_or_default();
        let changelog = read(root, "CHANGELOG.md")?;
        Ok(Self {
            changed: !git::output(["status", "--porcelain"])?.is_empty(),
            tagged: tagged(&version)?,
            in_changelog: changelog::section(&changelog, &version).is_some(),
            placeholders: chart::placeholders(root)?,
            versions,
        })
    }

    /// Returns the version of the tree if all files agree.
    pub(super) fn version(&self) -> anyhow::Result<Version> {
        let Some((place, version)) = self.versions.first() else { bail!("found no version") };
        if let Some((other, differs)) = self.versions.iter().find(|(_, it)| it != version) {
            bail!(
                "{place} has version {version}, but {other} has {differs}; write one to both: `cargo \
                 xtask release prepare {version}`"
            );
        }
        let read = version.parse::<Version>().map_err(anyhow::Error::msg);
        read.with_context(|| format!("{place}: version"))
    }

    /// Returns the reason why this tree cannot be released, if any.
    pub(super) fn refusal(&self, version: &Version) -> Option<String> {
        if self.changed {
            Some(
                "there are uncommitted changes; commit or remove them (`git status`), or add --draft"
                    .to_owned(),
            )
        } else if self.tagged == Some(false) {
            Some(format!(
                "the tag v{version} points to another commit; check out the tag (`git checkout \
                v{version}`), or prepare the next version"
            ))
        } else if let Some((file, text)) = self.placeholders.first() {
            Some(format!(
                "{file} has the placeholder {text:?}; the owner of the project replaces it before the first \
                 publication; to practise a release, add --rehearsal"
            ))
        } else if !self.in_changelog {
            Some(format!(
                "CHANGELOG.md has no section {version}; run `cargo xtask release prepare {version}` and commit, or add --draft"
            ))
        } else {
            None
        }
    }
}

/// Returns the reason why this version cannot be the next one, if any.
pub(super) fn refused(next: &Version, last: &Version, changed: bool, tagged: bool) -> Option<String> {
    if changed {
        Some("there are uncommitted changes; commit or remove them first (`git status`)".to_owned())
    } else if next.is_older(last) {
        Some(format!("{next} is older than {last} in Cargo.toml; choose a newer version"))
    } else if tagged {
        Some(format!("{next} is already released: the tag v{next} exists; choose a newer version"))
    } else {
        None
    }
}

/// Whether the version's tag points to this commit. `None`: the version has no tag.
pub(super) fn tagged(version: &str) -> anyhow::Result<Option<bool>> {
    let tag = format!("v{version}");
    if git::output(["tag", "--list", &tag])?.is_empty() {
        return Ok(None);
    }
    let commit = |name: &str| git::output(["rev-parse", &format!("{name}^{{commit}}")]);
    Ok(Some(commit(&tag)? == commit("HEAD")?))
}

#[cfg(test)]
mod tests {
    use super::{State, Version, refused};

    fn state() -> State {
        let versions = ["Cargo.toml", "Chart.yaml"].map(|place| (place, "0.2.0".to_owned())).to_vec();
        State { versions, changed: false, tagged: None, in_changelog: true, placeholders: Vec::new() }
    }

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn prepared_commit_can_be_built_with_and_without_its_tag() {
        let version = state().version().unwrap();
        assert_eq!(state().refusal(&version), None);
        assert_eq!(State { tagged: Some(true), ..state() }.refusal(&version), None);
    }

    #[test]
    fn unbuildable_states_are_reported_with_a_fix() {
        let said = |state: State| state.refusal(&version("0.2.0")).unwrap();
        assert!(said(State { changed: true, ..state() }).contains("git status"));
        assert!(said(State { tagged: Some(false), ..state() }).contains("git checkout v0.2.0"));
        assert!(said(State { in_changelog: false, ..state() }).contains("release prepare 0.2.0"));
        let placeholders = vec![("Chart.yaml", "a.invalid")];
        assert!(
            said(State { placeholders, ..state() }).contains("Chart.yaml has the placeholder \"a.invalid\"")
        );
    }

    #[test]
    fn differing_versions_are_reported_with_their_files() {
        let mut state = state();
        state.versions.push(("docs/images.md", "0.1.0".to_owned()));
        let said = state.version().unwrap_err().to_string();
        assert!(said.contains("Cargo.toml has version 0.2.0, but docs/images.md has 0.1.0"), "{said}");
    }

    #[test]
    fn next_version_is_newer_or_unreleased() {
        let said = |next: &str, changed, tagged| refused(&version(next), &version("0.2.0"), changed, tagged);
        assert_eq!(said("0.2.0", false, false), None);
        assert_eq!(said("0.3.0-rc.1", false, false), None);
        assert!(said("0.1.9", false, false).unwrap().contains("older than 0.2.0"));
        assert!(said("0.2.0-rc.1", false, false).unwrap().contains("older than 0.2.0"));
        assert!(said("0.2.0", false, true).unwrap().contains("tag v0.2.0"));
        assert!(said("0.3.0", true, false).unwrap().contains("git status"));
    }
}
