//! The files that contain the version, whether they agree, and how to change the version. Pure functions.

use std::cmp::Ordering;
use std::fmt;

use anyhow::{Context, bail};

/// Files that contain the version, relative to the root.
pub(super) const PLACES: [VersionedFile; 4] = [
    // The version of all crates.
    VersionedFile { file: "Cargo.toml", lines: Lines::After("[workspace.package]", &["version = \""], "\"") },
    VersionedFile { file: "Cargo.lock", lines: Lines::Crates },
    VersionedFile {
        file: "helm/cloud-controllers/Chart.yaml",
        lines: Lines::After("", &["version: ", "appVersion: "], ""),
    },
    VersionedFile { file: "docs/images.md", lines: Lines::Tags },
];

/// A file, and the rule that finds the lines with the version.
#[derive(Debug)]
pub(super) struct VersionedFile {
    pub(super) file: &'static str,
    lines: Lines,
}

#[derive(Debug)]
enum Lines {
    /// For each prefix, the first line after this heading that begins with the prefix; and the text that ends the version.
    After(&'static str, &'static [&'static str], &'static str),
    /// The versions of packages that come from no registry, as in Cargo.lock.
    Crates,
    /// All tags of this project's images.
    Tags,
}

/// `MAJOR.MINOR.PATCH`, and for a candidate also a suffix such as `-WORD.N`. Source: Semantic Versioning 2.0.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    numbers: [u64; 3],
    candidate: String,
}

impl std::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("invalid version {text:?}: expected a version such as 0.2.0 or 0.2.0-rc.1");
        let (numbers, candidate) = text.split_once('-').unwrap_or((text, ""));
        let number = |text: &str| {
            let plain = text.bytes().all(|c| c.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
            plain.then(|| text.parse().ok()).flatten()
        };
        let numbers: Option<Vec<u64>> = numbers.split('.').map(number).collect();
        let numbers = numbers.and_then(|it| <[u64; 3]>::try_from(it).ok()).ok_or_else(fault)?;
        // Helm refuses numbers with a leading 0.
        let word = |word: &str| {
            let number = word.bytes().all(|c| c.is_ascii_digit());
            let padded = number && word.len() > 1 && word.starts_with('0');
            !word.is_empty() && !padded && word.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
        };
        if text.contains('-') && !candidate.split('.').all(word) {
            return Err(fault());
        }
        Ok(Self { numbers, candidate: candidate.to_owned() })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.candidate.is_empty() { Ok(()) } else { write!(f, "-{}", self.candidate) }
    }
}

impl Version {
    /// Whether this version precedes another one: a candidate precedes its release. Candidates are not compared with each other.
    pub(super) fn is_older(&self, than: &Self) -> bool {
        match self.numbers.cmp(&than.numbers) {
            Ordering::Less => true,
            Ordering::Equal => !self.candidate.is_empty() && than.candidate.is_empty(),
            Ordering::Greater => false,
        }
    }
}

impl VersionedFile {
    /// Returns the version that the file contains, possibly several times.
    pub(super) fn found<'a>(&self, text: &'a str) -> anyhow::Result<Vec<&'a str>> {
        let found: Vec<_> =
            self.spans(text)?.into_iter().filter_map(|(from, to)| text.get(from..to)).collect();
        if found.is_empty() {
            bail!("{}: expected a version", self.file);
        }
        Ok(found)
    }

    /// Returns the file with another version.
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

/// Returns the position of the version: between the first line from `start` on that begins with `key`, and `end` or the end of that line.
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
            let all = if place.file == "Cargo.lock" { 15..99 } else { 1..4 };
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
