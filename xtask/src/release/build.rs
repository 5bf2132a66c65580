//! `cargo xtask release build`: creates the folder of a release, part by part.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::folder::Unfinished;
use super::state::{State, read};
use super::version::Version;
use super::{BuildArgs, changelog, prepare};
use crate::images::Program;
use crate::images::layer::{self, File};
use crate::step::say;
use crate::{cargo, git, images, manifests};

const CHART: &str = "helm/cloud-controllers";
/// The name of the chart, which Helm expects as the archive's folder.
const NAME: &str = "cloud-controllers";

/// Returns when the release is complete or a signal arrives. After a signal, the unfinished folder is removed.
pub(super) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let root = cargo::root();
    let state = State::of(&root)?;
    let version = state.version()?;
    match state.refusal(&version) {
        Some(refusal) if !args.draft => bail!(refusal),
        Some(refusal) => say(&format!("note: this is a draft, not for publication: {refusal}")),
        None => (),
    }
    let release = Unfinished::begin(&args.output, &format!("{NAME}-{version}"))?;
    let unfinished = release.path().to_path_buf();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        let (args, version) = (args.clone(), version.clone());
        let mut work =
            tokio::task::spawn_blocking(move || parts(&args, &state, &version, &release).map(|()| release));
        tokio::select! {
            done = &mut work => done.context("the build of the release panicked")?.map(Some),
            _ = interrupt.recv() => Ok(None),
            _ = terminate.recv() => Ok(None),
        }
    });
    // The build may wait for a program that Ctrl-C also ends; its thread is not joined.
    runtime.shutdown_background();
    let Some(release) = ended? else {
        fs::remove_dir_all(&unfinished).ok();
        say("Interrupted; unfinished files were removed");
        return Ok(ExitCode::from(130));
    };
    let whole = release.finish()?;
    say(&format!("\nmade {}", whole.display()));
    Ok(ExitCode::SUCCESS)
}

/// Creates the parts, the fastest first, so that errors appear early.
fn parts(args: &BuildArgs, state: &State, version: &Version, release: &Unfinished) -> anyhow::Result<()> {
    let root = cargo::root();
    part("notes", || release.write("NOTES.md", notes(&root, state, version)?.as_bytes()))?;
    part("chart", || release.write(&format!("{NAME}-{version}.tgz"), &chart(&root)?))?;
    part("manifests", || {
        for path in manifests::write(&args.registry, &[], &release.path().join("manifests"))? {
            say(&format!("wrote {}", release.inside(&path).display()));
        }
        Ok(())
    })?;
    if args.without_images {
        return Ok(());
    }
    let tag = version.to_string();
    part("images", || images::for_release(&args.registry, &tag, &args.arch, &release.path().join("images")))?;
    part("programs", || {
        for Program { name, arch, path, sbom } in images::programs(&tag, &args.arch)? {
            let file = format!("{name}-{version}-linux-{arch}");
            let to = release.path().join(&file);
            fs::copy(&path, &to).with_context(|| format!("cannot copy {}", path.display()))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
            release.write(&format!("{file}.spdx.json"), &sbom)?;
        }
        Ok(())
    })
}

/// Prints which part is complete and how long it took.
fn part(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    say(&format!("\n==> {name}"));
    let begun = Instant::now();
    work().with_context(|| name.to_owned())?;
    say(&format!("    {name}: {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// The notes of a draft: the unreleased changes.
fn notes(root: &Path, state: &State, version: &Version) -> anyhow::Result<String> {
    let (version, changelog) = (version.to_string(), read(root, "CHANGELOG.md")?);
    let changes = match changelog::section(&changelog, &version) {
        Some(section) if state.told => section.to_owned(),
        Some(_) | None => changelog::changes(&prepare::fragments(root)?)?,
    };
    Ok(changelog::notes(&version, &changes))
}

/// Packs the chart like `helm package`, but reproducibly: without times, without owners, and without files that git ignores.
fn chart(root: &Path) -> anyhow::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flate2::read::GzDecoder;

    use super::chart;
    use crate::cargo;

    #[test]
    fn chart_is_packed_completely_and_reproducibly() {
        let packed = chart(&cargo::root()).unwrap();
        assert_eq!(packed, chart(&cargo::root()).unwrap());
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
}
