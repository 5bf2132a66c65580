//! `cargo xtask release verify`: verifies the folder of a release, or its artifacts in a registry, with the public key of the maintainers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use super::cosign::Verifier;
use super::folder::{self, PROVENANCE_BUNDLE, SUMS, SUMS_BUNDLE};
use super::registry::Registry;
use super::{VerifyArgs, provenance};
use crate::step::say;

/// What a user should do with a release that fails the verification.
const REPAIR: &str = "do not use the release: get it again, and compare the key with that of the maintainers";

pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let verifier = Verifier::new(&args.key)?;
    let folder = args.folder.as_deref();
    let subjects = folder.map(|it| repaired(self::folder(it, &verifier))).transpose()?;
    let Some(registry) = &args.registry else {
        ensure!(folder.is_some(), "name the folder of a release, or --registry NAME with --version");
        return Ok(());
    };
    let version = match (&args.version, &subjects) {
        (Some(version), _) => version.to_string(),
        (None, Some(_)) => version_of(folder)?,
        (None, None) => bail!("name the version: --version 0.2.0"),
    };
    let registry = Registry::new(registry, args.http)?;
    repaired(artifacts(&registry, &version, subjects.as_ref(), &verifier))
}

fn repaired<T>(verified: anyhow::Result<T>) -> anyhow::Result<T> {
    verified.map_err(|error| anyhow!("{error:#}; {REPAIR}"))
}

fn version_of(folder: Option<&Path>) -> anyhow::Result<String> {
    let name = folder.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let version = name.strip_prefix("cloud-controllers-");
    version.map(str::to_owned).context("the folder's name has no version; add --version")
}

/// Verifies all files of a folder, and returns the subjects of its provenance.
fn folder(folder: &Path, verifier: &Verifier) -> anyhow::Result<BTreeMap<String, String>> {
    let inside = |name: &str| folder.join(name);
    verifier
        .blob(&inside(SUMS), &inside(SUMS_BUNDLE))
        .with_context(|| format!("{SUMS} is not signed by this key"))?;
    say(&format!("ok  {SUMS} is signed by this key"));
    let text = fs::read_to_string(inside(SUMS)).with_context(|| format!("cannot read {SUMS}"))?;
    let listed = folder::parsed(&text)?;
    let present = folder::digests(folder)?;
    compared(&listed, &present)?;
    say(&format!("ok  {} files have their checksums, and there are no others", listed.len()));

    let statement = fs::read(inside(provenance::FILE)).context("cannot read the provenance")?;
    let statement: Value = serde_json::from_slice(&statement).context("the provenance is invalid")?;
    let subjects = provenance::subjects(&statement)?;
    let files: Vec<_> = listed.keys().filter(|name| *name != provenance::FILE).collect();
    for name in &files {
        let named = subjects.get(*name) == listed.get(*name);
        ensure!(named, "{name}: the provenance does not name this file with its checksum");
    }
    // The statement in the signed bundle must name these files, too. So far only the statement in the separate file was compared.
    for name in files.iter().filter(|name| name.ends_with("gz") || name.ends_with(".tar")) {
        verifier
            .statement(&inside(name), &inside(PROVENANCE_BUNDLE))
            .with_context(|| format!("{name}: the provenance is not signed by this key"))?;
    }
    say(&format!("ok  the signed provenance names {} files", files.len()));
    Ok(subjects)
}

/// Fails if a file is changed, missing or not listed, and names all these files.
fn compared(listed: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let names: BTreeSet<_> = listed.keys().chain(present.keys()).collect();
    let apart = [SUMS, SUMS_BUNDLE, PROVENANCE_BUNDLE];
    let mut faults = Vec::new();
    for name in names.into_iter().filter(|name| !apart.contains(&name.as_str())) {
        match (listed.get(name), present.get(name)) {
            (Some(wanted), Some(found)) if wanted == found => (),
            (Some(_), Some(_)) => faults.push(format!("{name} was changed")),
            (Some(_), None) => faults.push(format!("{name} is missing")),
            (None, _) => faults.push(format!("{name} is not in {SUMS}")),
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

/// Verifies the artifacts of a registry. `subjects` contains the digests of a folder that was verified. The digests in the registry must be
/// the same.
fn artifacts(
    registry: &Registry,
    version: &str,
    subjects: Option<&BTreeMap<String, String>>,
    verifier: &Verifier,
) -> anyhow::Result<()> {
    for name in Registry::artifacts() {
        let digest = registry.digest(name, version)?;
        let known = subjects.map(|subjects| subjects.get(&format!("oci:{name}")));
        if let Some(wanted) = known {
            ensure!(
                wanted == Some(&digest),
                "{name}:{version} in the registry is {digest}, but the folder has {}",
                wanted.map_or("no such artifact", String::as_str)
            );
        }
        let whole = registry.by_digest(name, &digest);
        verifier
            .artifact(&whole, registry.http)
            .with_context(|| format!("{whole} is not signed by this key"))?;
        verifier
            .provenance(&whole, registry.http)
            .with_context(|| format!("{whole} has no provenance that is signed by this key"))?;
        say(&format!("ok  {whole} is signed by this key, and so is its provenance"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::compared;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect()
    }

    #[test]
    fn changed_missing_and_additional_files_are_reported() {
        let listed = files(&[("a", "sha256:1"), ("b", "sha256:2")]);
        compared(&listed, &files(&[("a", "sha256:1"), ("b", "sha256:2"), ("SHA256SUMS", "x")])).unwrap();
        let error = compared(&listed, &files(&[("a", "sha256:3"), ("c", "sha256:2")])).unwrap_err();
        assert_eq!(error.to_string(), "a was changed; b is missing; c is not in SHA256SUMS");
    }
}
