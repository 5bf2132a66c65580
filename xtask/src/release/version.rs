//! Finds and changes the version in the files that contain it. Pure functions.

use std::fmt;

use anyhow::{Context, bail};

/// Files that contain the version, relative to the root.
pub(super) const PLACES: [VersionedFile; 6] = [
    // The version of all crates.
    VersionedFile { file: "Cargo.toml", lines: Lines::After("[workspace.package]", &["version = \""], "\"") },
    VersionedFile { file: "Cargo.lock", lines: Lines::Crates },
    VersionedFile { file: "helm/cloud-controllers/Chart.yaml", lines: Lines::After("", &CHART_VERSIONS, "") },
    VersionedFile { file: "docs/images.md", lines: Lines::Tags },
    VersionedFile { file: "docs/install.md", lines: Lines::After("", &["$ VERSION="], "") },
    VersionedFile {
        file: "docs/gitops.md",
        lines: Lines::After("", &["    targetRevision: ", "    tag: "], ""),
    },
];

/// The lines of Chart.yaml with the version: the version of the chart, the version of the programs, and the tags of the images.
const CHART_VERSIONS: [&str; 8] = [
    "version: ",
    "appVersion: ",
    "      image: node-controller:",
    "      image: service-controller:",
    "      image: route-controller:",
    "      image: adapter-openstack:",
    "      image: adapter-sim:",
    "      image: cloudctl:",
];

/// A file, and the rule that finds the lines with the version.
#[derive(Debug)]
pub(super) struct VersionedFile {
    pub(super) file: &'static str,
    lines: Lines,
}

#[derive(Debug)]
enum Lines {
    /// The first line after this heading that begins with each of these prefixes. The last field is the text that ends the version.
    After(&'static str, &'static [&'static str], &'static str),
    /// The versions of packages that do not come from a registry, as in Cargo.lock.
    Crates,
    /// All tags of this project's images.
    Tags,
}

/// A semantic version without build metadata, which tags of images cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(semver::Version);

impl std::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let version = semver::Version::parse(text).ok().filter(|it| it.build.is_empty());
        let fault = || format!("invalid version {text:?}: expected a version such as 0.2.0 or 0.2.0-rc.1");
        version.map(Self).ok_or_else(fault)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Version {
    /// Returns whether this version is older than another version. A candidate is older than its release. Candidates of the same release
    /// have no order.
    pub(super) fn is_older(&self, than: &Self) -> bool {
        self.0 < than.0 && (self.0.pre.is_empty() || than.0.pre.is_empty() || !self.has_numbers_of(than))
    }

    fn has_numbers_of(&self, other: &Self) -> bool {
        let numbers = |it: &semver::Version| (it.major, it.minor, it.patch);
        numbers(&self.0) == numbers(&other.0)
    }
}

impl VersionedFile {
    /// Returns all versions in the file, which may contain its version several times.
    pub(super) fn found<'a>(&self, text: &'a str) -> anyhow::Result<Vec<&'a str>> {
        let found: Vec<_> =
            self.spans(text)?.into_iter().filter_map(|(from, to)| text.get(from..to)).collect();
        if found.is_empty() {
            bail!("{}: expected a version", self.file);
        }
        Ok(found)
    }

    pub(super) fn with(&self, text: &str, version: &Version) -> anyhow::Result<String> {
        let mut changed = text.to_owned();
        // Replaces from the end, so that the other positions stay valid.
        for (from, to) in self.spans(text)?.into_iter().rev() {
            changed.replace_range(from..to, &version.to_string());
        }
        Ok(changed)
    }

    /// Returns the positions of versions in the text, in their order.
    fn spans(&self, text: &str) -> anyhow::Result<Vec<(usize, usize)>> {
        match self.lines {
            Lines::After(heading, keys, end) => {
                let rest = if heading.is_empty() { Some(0) } else { text.find(&format!("{heading}\n")) };
                let rest = rest.with_context(|| format!("{}: expected the line {heading}", self.file))?;
                let span = |key: &&str| span(text, rest, key, end);
                let spans: Option<Vec<_>> = keys.iter().map(span).collect();
                spans.with_context(|| {
                    format!("{}: expected a line that begins with one of {keys:?}", self.file)
                })
            }
            Lines::Crates => Ok(crates(text)),
            Lines::Tags => Ok(tags(text)),
        }
    }
}

/// Returns the position of the version in the first line from `start` on that begins with `key`. The version is the text after `key`, up to
/// `end`. If `end` is empty, it is the rest of the line.
fn span(text: &str, start: usize, key: &str, end: &str) -> Option<(usize, usize)> {
    let mut from = start;
    for line in text.get(start..)?.split_inclusive('\n') {
        if let Some(value) = line.strip_prefix(key) {
            let length = if end.is_empty() { value.trim_end().len() } else { value.find(end)? };
            return Some((from + key.len(), from + key.len() + length));
        }
        from += line.len();
    }
    None
}

fn crates(lock: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut from = 0;
    for part in lock.split_inclusive("\n\n") {
        if part.starts_with("[[package]]") && !part.contains("\nsource = ") {
            spans.extend(span(part, 0, "version = \"", "\"").map(|(a, b)| (from + a, from + b)));
        }
        from += part.len();
    }
    spans
}

/// Finds tags as in `registry.example/node-controller:0.1.0`.
fn tags(text: &str) -> Vec<(usize, usize)> {
    const NAME: &str = "registry.example/";
    let named = text.match_indices(NAME).filter_map(|(at, _)| {
        let from = at + text.get(at..)?.find(':')? + 1;
        let rest = text.get(from..)?;
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c)).unwrap_or(rest.len());
        // Some names have no tag.
        rest.starts_with(|c: char| c.is_ascii_digit()).then_some((from, from + length))
    });
    let mut spans: Vec<_> = named.collect();
    spans.dedup();
    spans
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{PLACES, Version};
    use crate::cargo;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_semantic_and_have_an_order() {
        for text in ["0.1.0", "10.20.30", "1.0.0-rc.1", "1.0.0-a-b.0"] {
            assert_eq!(version(text).to_string(), text);
        }
        for text in
            ["", "1.0", "v1.0.0", "1.0.0.0", "1.0.0-", "01.0.0", "1.0.0-rc.01", "1.0.0+x", "1.0.0-a..b"]
        {
            assert!(text.parse::<Version>().unwrap_err().contains("0.2.0-rc.1"), "{text}");
        }
        assert!(version("0.9.0").is_older(&version("0.10.0")));
        assert!(version("0.2.0-rc.1").is_older(&version("0.2.0")));
        assert!(!version("0.2.0").is_older(&version("0.2.0-rc.1")));
        assert!(!version("0.2.0").is_older(&version("0.2.0")));
    }

    #[test]
    fn version_is_written_to_every_place_and_nowhere_else() {
        for place in &PLACES {
            let text = fs::read_to_string(cargo::root().join(place.file)).unwrap();
            let before = place.found(&text).unwrap();
            let all = if place.file == "Cargo.lock" { 15..99 } else { 1..9 };
            assert!(all.contains(&before.len()), "{}: {before:?}", place.file);
            assert!(before.iter().all(|it| *it == env!("CARGO_PKG_VERSION")), "{}: {before:?}", place.file);
            let after = place.with(&text, &version("7.7.7-rc.1")).unwrap();
            assert!(place.found(&after).unwrap().iter().all(|it| *it == "7.7.7-rc.1"), "{}", place.file);
            let changed = text.lines().zip(after.lines()).filter(|(a, b)| a != b).count();
            assert_eq!(changed, before.len(), "{}", place.file);
        }
    }

    #[test]
    fn packages_from_a_registry_keep_their_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\nsource = \"registry\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let written = PLACES[1].with(lock, &version("0.2.0")).unwrap();
        assert_eq!(written.matches("0.1.0").count(), 1);
        assert!(written.contains("name = \"b\"\nversion = \"0.2.0\""), "{written}");
        assert!(PLACES[0].found("[package]\n").unwrap_err().to_string().contains("[workspace.package]"));
    }
}
