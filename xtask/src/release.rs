//! `cargo xtask release`: `prepare` writes the version and the changelog, the maintainer commits and tags, `build` creates the files to
//! publish. This command publishes nothing.

mod build;
mod changelog;
mod folder;
mod prepare;
mod state;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use self::version::Version;
use crate::images::arch::Arch;

#[derive(Debug, clap::Args)]
#[command(
    about = "Prepares a release, and creates all of its files",
    long_about = "Prepares a release, and creates all of its files: images, the chart, plain \
    manifests, programs, SBOMs, and checksums. This command does not commit, tag or publish; \
    docs/development.md describes the steps of a release.",
    after_help = "Examples:\n  \
                  cargo xtask release prepare 0.2.0            write the version and the changelog\n  \
                  cargo xtask release build                    make dist/cloud-controllers-0.2.0\n  \
                  cargo xtask release build --draft --without-images\n  \
                  \x20                                            make a preview, from any tree, in seconds\n\n\
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
    /// Writes the version to all files that contain it, and moves the fragments of changelog.d into a new section of CHANGELOG.md
    Prepare {
        /// Version, such as 0.2.0, or 0.2.0-rc.1 for a candidate
        version: Version,
    },
    /// Creates the folder of a release from the prepared commit
    Build(BuildArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct BuildArgs {
    /// Create a draft, not for publication: from any tree, even with changes or unprepared
    #[arg(long)]
    draft: bool,
    /// Create only the chart, the manifests and the notes, which takes seconds
    #[arg(long)]
    without_images: bool,
    /// Prefix of the images' names, the same as the chart's image.registry
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    registry: String,
    /// Architectures of images and programs [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_enum)]
    arch: Vec<Arch>,
    /// Parent folder of the release's folder; replaces an older folder of the same name
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Prepare { version } => prepare::run(version).map(|()| ExitCode::SUCCESS),
        What::Build(args) => build::run(args),
    }
}
