//! `cargo xtask release build`: creates the folder of a release, part by part.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::chart::NAME;
use super::cosign::Signer;
use super::folder::{self, PROVENANCE_BUNDLE, SUMS, SUMS_BUNDLE, Unfinished};
use super::krew::{self, Archive};
use super::provenance::{self, Build};
use super::state::State;
use super::tree::read;
use super::version::Version;
use super::{BuildArgs, Rehearsal, changelog, chart, cosign, prepare, registry};
use crate::images::arch::Arch;
use crate::images::build::Use;
use crate::images::layer::{self, File};
use crate::images::{Program, Request};
use crate::step::say;
use crate::{cargo, git, images, manifests};

/// Returns when the release is complete or a signal arrives. After a signal, the unfinished folder is removed.
pub(super) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let root = cargo::root();
    let mut state = State::of(&root)?;
    let version = state.version()?;
    if args.rehearsal.is_some() {
        state.placeholders.clear();
    }
    match state.refusal(&version).or_else(|| incomplete(args)) {
        Some(refusal) if !args.draft => bail!(refusal),
        Some(refusal) => say(&format!("note: this is a draft, not for publication: {refusal}")),
        None if args.rehearsal.is_some() => say("note: this is a rehearsal, not for publication"),
        None => (),
    }
    // A wrong password or an architecture that cannot be built here is reported before the build, which takes long.
    let signer = args.key.as_deref().map(Signer::new).transpose()?;
    if !args.without_images {
        images::every(&arches(args)?)?;
    }
    let release = Unfinished::begin(&args.output, &format!("{NAME}-{version}"))?;
    let unfinished = release.path().to_path_buf();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        let (args, version) = (args.clone(), version.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            parts(&args, &state, &version, &release, signer.as_ref()).map(|()| release)
        });
        tokio::select! {
            done = &mut work => done.context("the build of the release panicked")?.map(Some),
            _ = interrupt.recv() => Ok(None),
            _ = terminate.recv() => Ok(None),
        }
    });
    // The build may still wait for a program, which Ctrl-C also ends. Therefore the build thread is not joined.
    runtime.shutdown_background();
    let Some(release) = ended? else {
        fs::remove_dir_all(&unfinished).ok();
        say("Interrupted; unfinished files were removed");
        return Ok(ExitCode::from(130));
    };
    let whole = release.finish()?;
    say(&format!("\nmade {}\n\n{}", whole.display(), next(args, &whole)));
    Ok(ExitCode::SUCCESS)
}

/// Returns what is missing for a publication, or `None` if the release is complete.
fn incomplete(args: &BuildArgs) -> Option<String> {
    let lacks = |arch: &Arch| !args.arch.is_empty() && !args.arch.contains(arch);
    if args.key.is_none() {
        Some("a release is signed; name the private key: --key FILE or COSIGN_KEY, or add --draft".to_owned())
    } else if args.without_images {
        Some("a release has images; omit --without-images, or add --draft".to_owned())
    } else if args.rehearsal.is_none() && Arch::ALL.iter().any(lacks) {
        Some("a release is for amd64 and arm64; omit --arch, or add --rehearsal".to_owned())
    } else {
        None
    }
}

/// The architectures given with `--arch`. If none are given: for a draft this host's, otherwise all.
fn arches(args: &BuildArgs) -> anyhow::Result<Vec<Arch>> {
    Ok(if !args.arch.is_empty() {
        args.arch.clone()
    } else if args.draft {
        vec![Arch::of_this_machine()?]
    } else {
        Arch::ALL.to_vec()
    })
}

fn what_for(args: &BuildArgs) -> Use {
    if args.rehearsal == Some(Rehearsal::Quick) { Use::Tests } else { Use::Release }
}

fn next(args: &BuildArgs, whole: &Path) -> String {
    let whole = whole.display();
    if args.key.is_none() {
        return "The release is not signed.".to_owned();
    }
    let registry = if args.registry.is_empty() { "registry.example" } else { &args.registry };
    format!(
        "Next:\n  cargo xtask release verify {whole} --key cosign.pub\n  \
         cargo xtask release push {whole} --registry {registry} --key COSIGN_KEY"
    )
}

/// Creates the parts of the release. The fastest part comes first, so that errors appear early.
fn parts(
    args: &BuildArgs,
    state: &State,
    version: &Version,
    release: &Unfinished,
    signer: Option<&Signer>,
) -> anyhow::Result<()> {
    let root = cargo::root();
    let version = version.to_string();
    let package = format!("{NAME}-{version}.tgz");
    // The digests of artifacts in registries, by name.
    let mut digests = BTreeMap::new();
    part("notes", || release.write("NOTES.md", notes(&root, state, &version, args)?.as_bytes()))?;
    part("chart", || {
        let packed = chart::package(&root, args.registry.trim_end_matches('/'), &version)?;
        release.write(&package, &packed)?;
        let layout = chart::artifact(&root, &packed, &version)?;
        release.write(&registry::archive(chart::REPOSITORY), &layer::tar(&layout.files())?)?;
        digests.insert(chart::REPOSITORY, layout.digest);
        Ok(())
    })?;
    part("manifests", || {
        for path in manifests::write(&args.registry, &[], &release.path().join("manifests"))? {
            say(&format!("wrote {}", release.inside(&path).display()));
        }
        Ok(())
    })?;
    if !args.without_images {
        let (home, arch) = (chart::home(&root)?, arches(args)?);
        let what_for = what_for(args);
        let (tag, registry) = (version.as_str(), args.registry.as_str());
        let request = Request { registry, tag, source: Some(&home), arch: &arch, what_for };
        part("images", || {
            digests.extend(images::for_release(&request, &release.path().join("images"))?);
            Ok(())
        })?;
        part("programs", || programs(args, &request, &home, release))?;
    }
    if let Some(signer) = signer {
        release.write("cosign.pub", &signer.public)?;
    }
    part("provenance", || {
        let statement = serde_json::to_vec_pretty(&statement(args, &root, &version, release, &digests)?)?;
        release.write(provenance::FILE, &statement)
    })?;
    let Some(signer) = signer else { return release.sums() };
    part("signatures", || {
        release.sums()?;
        let inside = |name: &str| release.path().join(name);
        signer.blob(&inside(SUMS), &inside(SUMS_BUNDLE))?;
        signer.statement(&inside(provenance::FILE), &inside(PROVENANCE_BUNDLE))
    })
}

/// Writes the archive and the SBOM of each program, and the manifest for krew.
fn programs(args: &BuildArgs, request: &Request<'_>, home: &str, release: &Unfinished) -> anyhow::Result<()> {
    let version = request.tag;
    let licence = read(&cargo::root(), "LICENSE")?;
    let mut plugins = Vec::new();
    for Program { name, arch, binary, sbom } in images::programs(request)? {
        let file = format!("{name}-{version}-linux-{arch}");
        release.write(&format!("{file}.spdx.json"), &sbom)?;
        let file = format!("{file}.tar.gz");
        let files = [
            File { path: name, mode: 0o755, content: &binary },
            File { path: "LICENSE", mode: 0o644, content: licence.as_bytes() },
        ];
        let archive = layer::layer(&files)?.blob;
        release.write(&file, &archive)?;
        if name == krew::PROGRAM {
            let sha256 = layer::digest(&archive).trim_start_matches("sha256:").to_owned();
            plugins.push(Archive { arch, file, sha256 });
        }
    }
    let usual = format!("{home}/releases/download/v{version}");
    let downloads = args.downloads.as_deref().unwrap_or(&usual).trim_end_matches('/');
    let manifest = krew::manifest(version, home, downloads, &plugins);
    release.write(&format!("{}.krew.yaml", krew::PROGRAM), manifest.as_bytes())
}

/// The provenance of all files that exist so far, and of the artifacts in registries.
fn statement(
    args: &BuildArgs,
    root: &Path,
    version: &str,
    release: &Unfinished,
    digests: &BTreeMap<&str, String>,
) -> anyhow::Result<serde_json::Value> {
    let mut subjects = folder::digests(release.path())?;
    subjects.extend(digests.iter().map(|(name, digest)| (format!("oci:{name}"), digest.clone())));
    let lock = layer::digest(read(root, "Cargo.lock")?.as_bytes());
    let mut rustc = Command::new("rustc");
    let rustc = String::from_utf8(cosign::output(rustc.arg("--version").current_dir(root))?)?;
    let arches = arches(args)?;
    let build = Build {
        home: &chart::home(root)?,
        version,
        commit: &git::output(["rev-parse", "HEAD"])?,
        registry: &args.registry,
        arch: &arches.iter().map(|arch| arch.name()).collect::<Vec<_>>(),
        profile: what_for(args).profile(),
        published: !args.draft && args.rehearsal.is_none(),
        lock: &lock,
        rustc: rustc.trim(),
    };
    Ok(provenance::statement(&build, &subjects))
}

/// Does the work for one part of the release, and prints how long it took.
fn part(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    say(&format!("\n==> {name}"));
    let begun = Instant::now();
    work().with_context(|| name.to_owned())?;
    say(&format!("    {name}: {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Returns the notes of the release. The notes of a draft contain the unreleased changes.
fn notes(root: &Path, state: &State, version: &str, args: &BuildArgs) -> anyhow::Result<String> {
    let changelog = read(root, "CHANGELOG.md")?;
    let changes = match changelog::section(&changelog, version) {
        Some(section) if state.in_changelog => section.to_owned(),
        Some(_) | None => changelog::changes(&prepare::fragments(root)?)?,
    };
    let arches = arches(args)?.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(" and ");
    let published = !args.draft && args.rehearsal.is_none();
    Ok(changelog::notes(version, &arches, published, &changes))
}
