//! `cargo xtask release`: `prepare` writes the version and the changelog, a person commits and tags, `build` makes what is given away.
//! It publishes nothing.

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
    about = "Prepares a release, and makes all of its files",
    long_about = "Prepares a release, and makes all of its files: images, the chart, plain manifests, programs, what they are made of, \
                  and the sums of all. It commits, tags and publishes nothing; CONTRIBUTING.md tells the way of a release.",
    after_help = "Examples:\n  \
                  cargo xtask release prepare 0.2.0            writes the version and the changelog\n  \
                  cargo xtask release build                    makes dist/cloud-controllers-0.2.0\n  \
                  cargo xtask release build --draft --without-images\n  \
                  \x20                                            a first look, from any tree, in seconds\n\n\
                  Exit codes:\n  \
                  0    done\n  \
                  1    not done, the last line says why; nothing is left behind\n  \
                  2    the command line is wrong\n  \
                  130  ended before it was done; nothing is left behind"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Writes the version wherever it stands, and makes the fragments of changelog.d a section of CHANGELOG.md
    Prepare {
        /// Such as 0.2.0, or 0.2.0-rc.1 for a candidate
        version: Version,
    },
    /// Makes the folder of a release from the commit that is prepared
    Build(BuildArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct BuildArgs {
    /// Not to be given away: from any tree, also one that is changed or not prepared
    #[arg(long)]
    draft: bool,
    /// The chart, the manifests and the notes alone, which take seconds
    #[arg(long)]
    without_images: bool,
    /// What stands before the images' names, as the chart's image.registry
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    registry: String,
    /// For which architectures images and programs are [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_enum)]
    arch: Vec<Arch>,
    /// Where the release's folder is put, in place of one of that name
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Prepare { version } => prepare::run(version).map(|()| ExitCode::SUCCESS),
        What::Build(args) => build::run(args),
    }
}
