//! Packs the chart of a release, and turns it into an artifact for registries. Reads the values of Chart.yaml that other files of the
//! release contain.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value};

use super::packed;
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

/// Packs the chart like `helm package`, but reproducibly: without times, without owners, and without files that git ignores. The packed
/// chart takes the images from `registry` by default, and the links of its README lead to the pages of this version.
pub(super) fn package(root: &Path, registry: &str, version: &str) -> anyhow::Result<Vec<u8>> {
    let pages = format!("{}/blob/v{version}", home(root)?);
    let listed = git::output(["ls-files", "--cached", "--others", "--exclude-standard", "--", CHART])?;
    let mut files = Vec::new();
    for path in listed.lines().filter(|path| root.join(path).exists()) {
        let content = match path.strip_prefix(CHART) {
            Some("/values.yaml") => packed::values(&read(root, path)?, registry)?.into_bytes(),
            Some("/README.md") => {
                packed::readme(&read(root, path)?, registry, &pages, &format!("{pages}/{CHART}"))?
                    .into_bytes()
            }
            _ => fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?,
        };
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::{CHART, artifact, home, package, placeholders, value};
    use crate::cargo;
    use crate::images::layer;

    fn unpacked(package: &[u8]) -> BTreeMap<String, String> {
        let mut archive = tar::Archive::new(GzDecoder::new(package));
        let file = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, text)
        };
        archive.entries().unwrap().map(file).collect()
    }

    #[test]
    fn packed_chart_works_outside_the_repository() {
        let root = cargo::root();
        let [plain, changed] = ["", "registry.example/team"]
            .map(|registry| unpacked(&package(&root, registry, "0.2.0").unwrap()));
        let differing: Vec<_> = plain.iter().filter(|(path, text)| changed[*path] != **text).collect();
        let names: Vec<_> = differing.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["cloud-controllers/README.md", "cloud-controllers/values.yaml"]);
        for (path, before) in differing {
            let lines = before.lines().zip(changed[path].lines()).filter(|(a, b)| a != b);
            let lines: Vec<_> = lines.map(|(_, line)| line).collect();
            assert!(lines.len() == 1 && lines[0].contains("registry.example/team"), "{path}: {lines:?}");
        }

        let pages = format!("{}/blob/v0.2.0/", home(&root).unwrap());
        let mut targets = plain["cloud-controllers/README.md"].split("](").skip(1);
        let inside =
            targets.by_ref().filter_map(|rest| rest.split(')').next()).filter(|it| !it.starts_with('#'));
        let files: Vec<_> = inside.filter_map(|link| link.strip_prefix(&pages)).collect();
        assert!(files.iter().any(|file| file.starts_with(CHART)), "{files:?}");
        for file in files {
            let file = file.split('#').next().unwrap();
            assert!(root.join(file).exists(), "{file}");
        }
        let readme = std::fs::read_to_string(root.join(CHART).join("README.md")).unwrap();
        assert!(readme.contains("](../../") && !plain["cloud-controllers/README.md"].contains("](../"));
    }

    #[test]
    fn chart_is_packed_completely_and_reproducibly() {
        let packed = package(&cargo::root(), "", "0.1.0").unwrap();
        assert_eq!(packed, package(&cargo::root(), "", "0.1.0").unwrap());
        let paths: BTreeSet<_> = unpacked(&packed).into_keys().collect();
        for path in
            ["Chart.yaml", "values.yaml", "values.schema.json", "templates/_pod.tpl", "files/alerts.yaml"]
        {
            assert!(paths.contains(&format!("cloud-controllers/{path}")), "{path}: {paths:?}");
        }
        assert!(paths.iter().all(|path| path.starts_with("cloud-controllers/")), "{paths:?}");
    }

    #[test]
    fn artifact_has_the_package_as_its_only_layer() {
        let packed = package(&cargo::root(), "", "0.1.0").unwrap();
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
