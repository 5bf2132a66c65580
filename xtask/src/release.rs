//! `cargo xtask release`: `prepare` writes the version and the changelog, the maintainer commits and tags, `build` creates and signs the files
//! to publish, `push` copies images and chart to a registry, and `verify` verifies both.

mod artifacthub;
mod build;
mod changelog;
mod chart;
mod cosign;
mod folder;
mod krew;
mod packed;
mod prepare;
mod provenance;
mod refusal;
mod registry;
mod state;
mod tree;
mod verify;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use self::version::Version;
use crate::images::arch::Arch;

#[derive(Debug, clap::Args)]
#[command(
    about = "Prepares a release, creates and signs all of its files, and verifies it",
    long_about = "Prepares a release, and creates all of its files: images, the chart, plain \
    manifests, programs, SBOMs, checksums, provenance and signatures. This command does not commit or tag; \
    only `push` publishes. docs/development.md describes the steps of a release.",
    after_help = "Examples:\n  \
                  cargo xtask release prepare 0.2.0            write the version and the changelog\n  \
                  cargo xtask release build --key cosign.key   make dist/cloud-controllers-0.2.0\n  \
                  cargo xtask release push dist/cloud-controllers-0.2.0 --registry registry.example --key cosign.key\n  \
                  cargo xtask release verify dist/cloud-controllers-0.2.0 --key cosign.pub\n  \
                  cargo xtask release verify --registry registry.example --version 0.2.0 --key cosign.pub\n  \
                  cargo xtask release build --draft --without-images\n  \
                  \x20                                            make a preview, from any tree, in seconds\n\n\
                  Environment:\n  \
                  COSIGN_PASSWORD  password of the private key\n\n\
                  Exit codes:\n  \
                  0    success\n  \
                  1    failure, see the last line; unfinished files were removed\n  \
                  2    invalid command line\n  \
                  130  interrupted; unfinished files were removed"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Writes the version to all files that contain it, moves the fragments of changelog.d into a new section of CHANGELOG.md, and lists them
    /// in Chart.yaml
    Prepare {
        /// Version, such as 0.2.0, or 0.2.0-rc.1 for a candidate
        version: Version,
    },
    /// Creates the folder of a release from the prepared commit, and signs it
    Build(BuildArgs),
    /// Copies the images and the chart of a release to a registry, and signs them there
    Push(PushArgs),
    /// Verifies signatures, checksums and provenance of a release's folder, of a registry, or of both
    Verify(VerifyArgs),
}

/// How a rehearsal, the practice of a release, compiles the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rehearsal {
    /// Compile like a release
    Full,
    /// Compile like the images of tests
    Quick,
}

#[derive(Clone, Debug, clap::Args)]
struct BuildArgs {
    /// Create a draft, which is not for publication, from any tree, even with uncommitted changes or without `prepare`
    #[arg(long)]
    draft: bool,
    /// Practise a release: accept a single architecture, and the placeholders that the owner replaces before the first publication. `quick`
    /// compiles like the images of tests, which gives larger programs in less time
    #[arg(long, conflicts_with = "draft", value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "full")]
    rehearsal: Option<Rehearsal>,
    /// Private key that signs the release, as a file or another reference of cosign
    #[arg(long, value_name = "KEY", env = "COSIGN_KEY", hide_env_values = true)]
    key: Option<String>,
    /// URL of the folder with the archives, for the manifest of krew [default: HOME/releases/download/vVERSION, with the values of
    /// Chart.yaml]
    #[arg(long, value_name = "URL")]
    downloads: Option<String>,
    /// Create only the chart, the manifests and the notes, which takes seconds
    #[arg(long)]
    without_images: bool,
    /// Prefix of the images' names, and the default of image.registry in the packed chart
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    registry: String,
    /// Architectures of images and programs [default: amd64,arm64; with --draft this host's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_enum)]
    arch: Vec<Arch>,
    /// Parent folder of the release's folder; replaces an older folder of the same name
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    output: PathBuf,
}

#[derive(Clone, Debug, clap::Args)]
struct PushArgs {
    /// Folder of the release
    folder: PathBuf,
    /// Registry and path of the images; the chart is pushed to `charts/cloud-controllers` below it
    #[arg(long, value_name = "NAME")]
    registry: String,
    /// Private key that signs the artifacts, as a file or another reference of cosign
    #[arg(long, value_name = "KEY", env = "COSIGN_KEY", hide_env_values = true)]
    key: String,
    /// Use a registry without TLS
    #[arg(long)]
    http: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct VerifyArgs {
    /// Folder of the release
    folder: Option<PathBuf>,
    /// Registry and path of the images
    #[arg(long, value_name = "NAME")]
    registry: Option<String>,
    /// Version in the registry [default: the version of the folder]
    #[arg(long)]
    version: Option<Version>,
    /// Public key of the maintainers. It must not come from the same place as the release
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Use a registry without TLS
    #[arg(long)]
    http: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Prepare { version } => prepare::run(version).map(|()| ExitCode::SUCCESS),
        What::Build(args) => build::run(args),
        What::Push(args) => registry::push(args).map(|()| ExitCode::SUCCESS),
        What::Verify(args) => verify::run(args).map(|()| ExitCode::SUCCESS),
    }
}
