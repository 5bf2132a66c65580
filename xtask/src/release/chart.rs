//! Packs the chart of a release, and turns it into an artifact for registries. Reads the values of Chart.yaml that other files of the
//! release contain.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value};

use super::tree::read;
use crate::git;
use crate::images::layer::{self, File};
use crate::images::manifest::{self, Layout};

/// The name of the chart, which Helm expects as the archive's folder.
pub(super) const NAME: &str = "cloud-controllers";
/// The path of the chart below the registry of the images. With this path, the chart cannot have the name of an image.
pub(super) const REPOSITORY: &str = "charts/cloud-controllers";
pub(super) const FILE: &str = "helm/cloud-controllers/Chart.yaml";

const CHART: &str = "helm/cloud-controllers";
/// The keys of Chart.yaml whose values are plain text. Registries show these values.
const KEYS: [&str; 8] =
    ["apiVersion", "name", "description", "type", "version", "appVersion", "kubeVersion", "home"];

/// Texts that the owner must replace before the first publication, each with its file.
const PLACEHOLDERS: [(&str, &str); 3] = [
    (FILE, "cloud-controllers.invalid"),
    (FILE, "To be named by the owner"),
    ("MAINTAINERS.md", "to be named by the owner"),
];

/// Returns the placeholders that are still in this tree.
pub(super) fn placeholders(root: &Path) -> anyhow::Result<Vec<(&'static str, &'static str)>> {
    let mut found = Vec::new();
    for (file, text) in PLACEHOLDERS {
        if read(root, file)?.contains(text) {
            found.push((file, text));
        }
    }
    Ok(found)
}

pub(super) fn home(root: &Path) -> anyhow::Result<String> {
    let yaml = read(root, FILE)?;
    let home = value(&yaml, "home").with_context(|| format!("{FILE} has no home"))?;
    Ok(home.trim_end_matches('/').to_owned())
}

/// Packs the chart like `helm package`, but reproducibly: without times, without owners, and without files that git ignores.
pub(super) fn package(root: &Path) -> anyhow::Result<Vec<u8>> {
    let listed = git::output(["ls-files", "--cached", "--others", "--exclude-standard", "--", CHART])?;
    let mut files = Vec::new();
    for path in listed.lines().filter(|path| root.join(path).exists()) {
        let content = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        files.push((path.replacen(CHART, NAME, 1), content));
    }
    let files: Vec<_> =
        files.iter().map(|(path, content)| File { path: path.as_str(), mode: 0o644, content }).collect();
    Ok(layer::layer(&files)?.blob)
}

/// The package as an artifact for registries.
pub(super) fn artifact(root: &Path, package: &[u8], version: &str) -> anyhow::Result<Layout> {
    let yaml = read(root, FILE)?;
    let metadata: Map<String, Value> =
        KEYS.iter().filter_map(|key| Some(((*key).to_owned(), value(&yaml, key)?.into()))).collect();
    manifest::chart(&metadata.into(), package, version)
}

/// The value of a key at the top level, without quotes.
fn value<'a>(yaml: &'a str, key: &str) -> Option<&'a str> {
    let value = yaml.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().trim_matches('"')).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flate2::read::GzDecoder;

    use super::{artifact, package, placeholders, value};
    use crate::cargo;
    use crate::images::layer;

    #[test]
    fn chart_is_packed_completely_and_reproducibly() {
        let packed = package(&cargo::root()).unwrap();
        assert_eq!(packed, package(&cargo::root()).unwrap());
        let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
        let paths: BTreeSet<_> = archive
            .entries()
            .unwrap()
            .map(|entry| String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned())
            .collect();
        for path in
            ["Chart.yaml", "values.yaml", "values.schema.json", "templates/_pod.tpl", "files/alerts.yaml"]
        {
            assert!(paths.contains(&format!("cloud-controllers/{path}")), "{path}: {paths:?}");
        }
        assert!(paths.iter().all(|path| path.starts_with("cloud-controllers/")), "{paths:?}");
    }

    #[test]
    fn artifact_has_the_package_as_its_only_layer() {
        let packed = package(&cargo::root()).unwrap();
        let layout = artifact(&cargo::root(), &packed, "0.1.0").unwrap();
        let files = layout.files();
        let layer = format!("blobs/{}", layer::digest(&packed).replacen(':', "/", 1));
        assert!(files.iter().any(|file| file.path == layer && file.content == packed), "{layer}");
        let manifest = format!("blobs/{}", layout.digest.replacen(':', "/", 1));
        let manifest = files.iter().find(|file| file.path == manifest).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(manifest.content).unwrap();
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.cncf.helm.config.v1+json");
        assert_eq!(manifest["layers"][0]["digest"], layer::digest(&packed));
    }

    #[test]
    fn placeholders_of_the_owner_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for file in [super::FILE, "MAINTAINERS.md"] {
            std::fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(file), "home: https://a.example\n").unwrap();
        }
        assert_eq!(placeholders(dir.path()).unwrap(), []);
        let yaml = "home: https://cloud-controllers.invalid\n";
        std::fs::write(dir.path().join(super::FILE), yaml).unwrap();
        assert_eq!(placeholders(dir.path()).unwrap(), [(super::FILE, "cloud-controllers.invalid")]);
        assert_eq!(value("a: 1\nhome: \"x\"\n", "home"), Some("x"));
        assert_eq!(value("a:\n  home: x\n", "home"), None);
    }
}
