//! Reads and writes registries. `cargo xtask release push` copies the images and the chart of a release to a registry, and signs them.
//! crane copies them without a change, so that they keep the digests that the release's provenance names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::cosign::{Signer, output};
use super::refusal::explained;
use super::{PushArgs, chart, provenance};
use crate::images::about::IMAGES;
use crate::step::say;
use crate::tool::Tool;

#[derive(Debug)]
pub(super) struct Registry {
    name: String,
    crane: PathBuf,
    pub(super) http: bool,
}

impl Registry {
    pub(super) fn new(name: &str, http: bool) -> anyhow::Result<Self> {
        ensure!(
            !name.contains("://"),
            "invalid --registry {name:?}: expected HOST[:PORT][/PATH], without https://"
        );
        Ok(Self { name: name.trim_end_matches('/').to_owned(), crane: Tool::Crane.get()?, http })
    }

    pub(super) fn artifacts() -> impl Iterator<Item = &'static str> {
        IMAGES.iter().map(|image| image.name).chain([chart::REPOSITORY])
    }

    pub(super) fn by_digest(&self, artifact: &str, digest: &str) -> String {
        format!("{}/{artifact}@{digest}", self.name)
    }

    pub(super) fn digest(&self, artifact: &str, tag: &str) -> anyhow::Result<String> {
        let name = format!("{}/{artifact}:{tag}", self.name);
        let digest = explained(output(self.crane("digest").arg(&name)), &format!("cannot find {name}"))?;
        Ok(String::from_utf8_lossy(&digest).trim().to_owned())
    }

    fn push(&self, layout: &Path, artifact: &str, tag: &str) -> anyhow::Result<()> {
        let name = format!("{}/{artifact}:{tag}", self.name);
        let mut push = self.crane("push");
        explained(output(push.arg(layout).arg(&name)).map(drop), &format!("cannot push {name}"))
    }

    fn crane(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.crane);
        command.arg(verb);
        if self.http {
            command.arg("--insecure");
        }
        command
    }
}

/// Copies and signs the artifacts. If the command is repeated, each artifact gets another signature, and nothing else changes.
pub(super) fn push(args: &PushArgs) -> anyhow::Result<()> {
    let registry = Registry::new(&args.registry, args.http)?;
    let signer = Signer::new(&args.key)?;
    let read = |name: &str| {
        let path = args.folder.join(name);
        fs::read(&path)
            .with_context(|| format!("cannot read {}; make it: `cargo xtask release build`", path.display()))
    };
    let statement: Value =
        serde_json::from_slice(&read(provenance::FILE)?).context("the provenance is invalid")?;
    let subjects = provenance::subjects(&statement)?;
    let version = statement.pointer("/predicate/buildDefinition/externalParameters/version");
    let version = version.and_then(Value::as_str).context("the provenance has no version")?;
    let work = tempfile::tempdir().context("cannot make a temporary folder")?;
    let predicate = work.path().join("predicate.json");
    let content = statement.get("predicate").context("the provenance has no predicate")?;
    fs::write(&predicate, content.to_string()).context("cannot write a temporary file")?;
    for artifact in Registry::artifacts() {
        let wanted = subjects.get(&format!("oci:{artifact}"));
        let wanted = wanted.with_context(|| format!("the provenance does not name {artifact}"))?;
        let layout = work.path().join("layout");
        unpack(&args.folder.join(archive(artifact)), &layout)?;
        registry.push(&layout, artifact, version)?;
        fs::remove_dir_all(&layout).context("cannot remove a temporary folder")?;
        let digest = registry.digest(artifact, version)?;
        ensure!(
            &digest == wanted,
            "{artifact} has the digest {digest}, but the provenance names {wanted}; build it again"
        );
        let whole = registry.by_digest(artifact, &digest);
        explained(signer.artifact(&whole, args.http), &format!("cannot sign {whole}"))?;
        let attached = signer.provenance(&whole, &predicate, args.http);
        explained(attached, &format!("cannot attach the provenance to {whole}"))?;
        say(&format!("pushed and signed {whole}"));
    }
    Ok(())
}

/// The path of an artifact's layout in the folder of a release.
pub(super) fn archive(artifact: &str) -> String {
    if artifact == chart::REPOSITORY { format!("{artifact}.tar") } else { format!("images/{artifact}.tar") }
}

fn unpack(archive: &Path, to: &Path) -> anyhow::Result<()> {
    let file = File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
    tar::Archive::new(file).unpack(to).with_context(|| format!("cannot unpack {}", archive.display()))
}
