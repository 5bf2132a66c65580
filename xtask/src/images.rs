//! `cargo xtask images`: builds one image per program. The programs are static; the build needs no base image and no container daemon.
//! Submodules with pure functions decide what an image contains; `build`, `built` and this file run programs and write files.

pub(crate) mod about;
pub(crate) mod arch;
pub(crate) mod build;
mod built;
mod elf;
pub(crate) mod layer;
pub(crate) mod manifest;
mod sbom;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;

use self::about::{About, IMAGES, Image, PROGRAMS};
use self::arch::Arch;
use self::build::Use;
use self::layer::File;
use self::manifest::Built;
use self::sbom::{Form, Subject};
use crate::cargo;
use crate::step::say;

#[derive(Debug, clap::Args)]
#[command(
    about = "Builds the images that the chart runs, without a container daemon",
    long_about = "Builds the images that the chart runs, and simcloud, without a container daemon and without a base image: each has one \
                  static program, which runs as user 65532, and the public CA certificates. The same commit and toolchain give the same \
                  digests. docs/images.md describes them.\n\nEach image becomes NAME.tar, an OCI layout for all its architectures, \
                  and NAME.ARCH.spdx.json, the SBOM of each. Builds for release, which takes minutes for each image. \
                  Progress goes to standard error, the table of images to standard output.",
    after_help = concat!(
        "Examples:\n  \
         cargo xtask images                                     build all images for this host's architecture\n  \
         cargo xtask images --only node-controller              build one image\n  \
         cargo xtask images --registry registry.example         use the chart's image.registry in the names\n  \
         ctr -n k8s.io images import dist/images/simcloud.tar  load an image into containerd, for the kubelet\n  \
         skopeo copy --all oci-archive:dist/images/simcloud.tar docker://registry.example/simcloud:",
        env!("CARGO_PKG_VERSION"),
        "\n  \
         \x20                                                      copy an image to a registry\n\n\
         Environment:\n  \
         CARGO_TARGET_DIR  cargo builds in its folder `images` [default: target]\n\n\
         Exit codes:\n  \
         0  all images were built, except for architectures that were skipped with a note\n  \
         1  an image could not be built, see the last line\n  \
         2  invalid command line"
    )
)]
pub(crate) struct Args {
    /// Build only this image; may be given several times
    #[arg(long, value_name = "IMAGE", value_delimiter = ',', value_parser = PossibleValuesParser::new(IMAGES.map(|image| image.name)), help_heading = "Build")]
    only: Vec<String>,
    /// Architectures to build; those that cannot be built here are skipped with a note [default: this host's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_enum, help_heading = "Build")]
    arch: Vec<Arch>,
    /// Package the existing programs FOLDER/ARCH/IMAGE, for example from other computers, instead of building them
    #[arg(long, value_name = "FOLDER", help_heading = "Build")]
    binaries: Option<PathBuf>,
    /// Prefix of the images' names, the same as the chart's image.registry
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Names")]
    registry: String,
    /// Tag of the images, the same as the chart's image.tag
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"), help_heading = "Names")]
    tag: String,
    /// URL of the source code, for the label of the images
    #[arg(long, value_name = "URL", help_heading = "Metadata")]
    source: Option<String>,
    /// Creation time of the images, in seconds since 1970 [default: the commit's time]
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SOURCE_DATE_EPOCH",
        hide_env_values = true,
        help_heading = "Metadata"
    )]
    created: Option<i64>,
    /// Folder of the images
    #[arg(long, value_name = "FOLDER", default_value = "dist/images", help_heading = "Output")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let about = about::of(&args.registry, &args.tag, args.source.as_deref(), args.created)?;
    if about.revision.ends_with(about::DIRTY) {
        say("note: there are uncommitted changes, so these images cannot be reproduced");
    }
    let arches = arches(&asked(&args.arch)?, args.binaries.is_none())?;
    let from = args.binaries.as_deref().map_or(From::Cargo(Use::Release), From::Folder);
    let images = IMAGES.iter().filter(|image| wanted(image, &args.only));
    let rows = each(images, &about, &arches, from, &args.output)?;
    io::stdout().write_all(table(&rows).as_bytes()).context("cannot write to standard output")
}

/// The requested architectures, or the architecture of this computer if none is requested.
fn asked(arches: &[Arch]) -> anyhow::Result<Vec<Arch>> {
    Ok(if arches.is_empty() { vec![Arch::of_this_machine()?] } else { arches.to_vec() })
}

/// Builds these images into `output`, and returns one line for each image.
fn each<'a>(
    images: impl Iterator<Item = &'a Image>,
    about: &About,
    arches: &[Arch],
    from: From<'_>,
    output: &Path,
) -> anyhow::Result<Vec<Row>> {
    let output = std::path::absolute(output).with_context(|| format!("--output {}", output.display()))?;
    fs::create_dir_all(&output)
        .with_context(|| format!("cannot make {}; choose another --output", output.display()))?;
    let mut rows = Vec::new();
    for image in images {
        say(&format!("\n==> {}", image.name));
        rows.push(one(image, about, arches, from, &output)?);
    }
    Ok(rows)
}

#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) registry: &'a str,
    pub(crate) tag: &'a str,
    pub(crate) source: Option<&'a str>,
    pub(crate) arch: &'a [Arch],
    pub(crate) what_for: Use,
}

impl Request<'_> {
    fn about(&self, registry: &str) -> anyhow::Result<About> {
        about::of(registry, self.tag, self.source, None)
    }
}

/// Builds all images for a release, and returns the digest of each by its name. Fails unless every requested image builds.
pub(crate) fn for_release(
    request: &Request<'_>,
    output: &Path,
) -> anyhow::Result<BTreeMap<&'static str, String>> {
    let about = request.about(request.registry)?;
    let rows = each(IMAGES.iter(), &about, &every(request.arch)?, From::Cargo(request.what_for), output)?;
    say(table(&rows).trim_end());
    Ok(IMAGES.iter().map(|image| image.name).zip(rows.into_iter().map(|row| row.digest)).collect())
}

/// A program that users run directly.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) arch: Arch,
    pub(crate) binary: Vec<u8>,
    /// The program's SBOM, as JSON.
    pub(crate) sbom: Vec<u8>,
}

pub(crate) fn programs(request: &Request<'_>) -> anyhow::Result<Vec<Program>> {
    let about = request.about("")?;
    let mut programs = Vec::new();
    for arch in every(request.arch)? {
        for image in &PROGRAMS {
            let path = build::binary(image, arch, request.what_for)?;
            let binary = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            elf::check(&binary, arch).with_context(|| path.display().to_string())?;
            let digest = layer::digest(&binary);
            let subject = Subject { form: Form::Program, image, about: &about, arch, binary: &digest };
            programs.push(Program { name: image.name, arch, sbom: sbom(&subject, true)?, binary });
        }
    }
    Ok(programs)
}

/// Returns the SBOM as JSON. If `ours` is set, the program was built here and the versions of its toolchain are known.
fn sbom(subject: &Subject<'_>, ours: bool) -> anyhow::Result<Vec<u8>> {
    let tree = build::tree(subject.image, subject.arch)?;
    let lock = fs::read_to_string(cargo::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    sbom::document(subject, &sbom::parts(&tree, &lock)?, &build::toolchain(subject.arch, ours))
}

/// Fails unless all requested architectures can be built here, and says what to install.
pub(crate) fn every(arch: &[Arch]) -> anyhow::Result<Vec<Arch>> {
    let asked = asked(arch)?;
    let arches = arches(&asked, true)?;
    if asked.iter().any(|arch| !arches.contains(arch)) {
        bail!("cannot build all architectures here; the lines above say what to install");
    }
    Ok(arches)
}

/// The architectures of `asked` that can be built here. Prints a note for the others.
pub(crate) fn buildable(asked: &[Arch]) -> anyhow::Result<Vec<Arch>> {
    arches(asked, true)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// Linked like images of a release, from programs that are compiled for the images. This takes minutes.
    AsReleased,
    /// Linked from the programs that cargo has built for other tests. This takes seconds.
    AsBuilt,
}

/// Builds these images for tests on this computer. The build is quick, but the images are large. They have the names that the chart uses
/// with `image.registry: localhost`. Returns the folder of the archives.
pub(crate) fn for_tests(names: &[&str], linked: Linked) -> anyhow::Result<PathBuf> {
    let output = build::target().join("for-tests");
    let from = match linked {
        Linked::AsReleased => From::Cargo(Use::Tests),
        Linked::AsBuilt => From::Built,
    };
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let about = about::for_tests("localhost");
    let arches = arches(&[Arch::of_this_machine()?], true)?;
    for image in IMAGES.iter().filter(|image| names.contains(&image.name)) {
        one(image, &about, &arches, from, &output)?;
    }
    Ok(output)
}

#[derive(Clone, Copy)]
enum From<'a> {
    /// Built by this command.
    Cargo(Use),
    /// Built earlier for other tests.
    Built,
    /// Built elsewhere.
    Folder(&'a Path),
}

fn wanted(image: &Image, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|name| name == image.name)
}

/// Returns the architectures of `asked` that can be built here, in a fixed order, and prints a note for each of the others. Fails if none
/// can be built.
fn arches(asked: &[Arch], building: bool) -> anyhow::Result<Vec<Arch>> {
    let mut arches = Vec::new();
    for arch in Arch::ALL.into_iter().filter(|arch| asked.contains(arch)) {
        let repair = if building { build::missing(arch) } else { None };
        match repair {
            None => arches.push(arch),
            Some(repair) => say(&format!("skipped: {arch} cannot be built here; {repair}")),
        }
    }
    if arches.is_empty() {
        bail!("cannot build any of the architectures here; the lines above say what to install");
    }
    Ok(arches)
}

struct Row {
    name: String,
    arches: String,
    unpacked: u64,
    packed: u64,
    digest: String,
}

fn one(image: &Image, about: &About, arches: &[Arch], from: From<'_>, output: &Path) -> anyhow::Result<Row> {
    let mut built = Vec::new();
    for &arch in arches {
        let path = match from {
            From::Folder(folder) => folder.join(arch.name()).join(image.name),
            From::Cargo(what_for) => build::binary(image, arch, what_for)?,
            From::Built => built::program(image.name, output)?,
        };
        let binary = fs::read(&path)
            .with_context(|| format!("cannot read {}; build it, or omit --binaries", path.display()))?;
        let libraries = if matches!(from, From::Built) {
            built::libraries(&path)?
        } else {
            elf::check(&binary, arch).with_context(|| path.display().to_string())?;
            Vec::new()
        };
        // The certificates are in a separate layer that is equal in all images, so that a node stores it once.
        let roots =
            layer::layer(&[File { path: layer::ROOTS, mode: 0o644, content: layer::roots().as_bytes() }])?;
        let libraries = libraries.iter().map(|it| File { path: &it.path, mode: 0o755, content: &it.content });
        let files: Vec<File<'_>> =
            libraries.chain([File { path: image.name, mode: 0o755, content: &binary }]).collect();
        let program = layer::layer(&files)?;
        let subject = Subject { form: Form::Image, image, about, arch, binary: &layer::digest(&binary) };
        let sbom = sbom(&subject, !matches!(from, From::Folder(_)))?;
        let file = output.join(format!("{}.{arch}.spdx.json", image.name));
        fs::write(&file, &sbom).with_context(|| format!("cannot write {}", file.display()))?;
        built.push(Built { arch, layers: vec![roots, program], sbom: layer::digest(&sbom) });
    }
    let unpacked = built.iter().map(Built::unpacked).max().unwrap_or_default();
    if !matches!(from, From::Cargo(Use::Tests) | From::Built)
        && let Some(refusal) = too_large(image.name, unpacked)
    {
        bail!(refusal);
    }
    let layout = manifest::layout(image, about, &built)?;
    let archive = layer::tar(&layout.files())?;
    let file = output.join(format!("{}.tar", image.name));
    fs::write(&file, archive).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Row {
        name: about.name(image),
        arches: built.iter().map(|one| one.arch.name()).collect::<Vec<_>>().join(","),
        unpacked,
        packed: built.iter().map(Built::packed).max().unwrap_or_default(),
        digest: layout.digest,
    })
}

/// Maximum unpacked size of an image on a node.
const LARGEST: u64 = 25_000_000;

fn too_large(name: &str, unpacked: u64) -> Option<String> {
    (unpacked >= LARGEST).then(|| {
        format!(
            "{name} is {} unpacked, above the limit of {}; find out what grew: `cargo install \
            cargo-bloat`, `cargo bloat --release --crates`",
            megabytes(unpacked),
            megabytes(LARGEST)
        )
    })
}

/// Formats a size in tenths of a megabyte, rounded up, so that no image seems smaller than it is.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// Formats the rows as a table. If an image has several architectures, the table shows the largest size.
fn table(rows: &[Row]) -> String {
    let name = rows.iter().map(|row| row.name.len()).max().unwrap_or_default().max("IMAGE".len());
    let arches = rows.iter().map(|row| row.arches.len()).max().unwrap_or_default().max("ARCH".len());
    let mut text = format!("{:name$}  {:arches$}  {:>8}  {:>8}  DIGEST\n", "IMAGE", "ARCH", "SIZE", "PACKED");
    for row in rows {
        let (size, packed) = (megabytes(row.unpacked), megabytes(row.packed));
        // Writing into a String cannot fail.
        writeln!(text, "{:name$}  {:arches$}  {size:>8}  {packed:>8}  {}", row.name, row.arches, row.digest)
            .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Arch, IMAGES, Row, arches, table, too_large, wanted};

    #[test]
    fn all_images_are_built_unless_some_are_selected() {
        assert!(IMAGES.iter().all(|image| wanted(image, &[])));
        let only = ["simcloud".to_owned()];
        let names: Vec<_> =
            IMAGES.iter().filter(|image| wanted(image, &only)).map(|image| image.name).collect();
        assert_eq!(names, ["simcloud"]);
    }

    #[test]
    fn architectures_are_sorted_without_duplicates() {
        let asked = [Arch::Arm64, Arch::Amd64, Arch::Arm64];
        assert_eq!(arches(&asked, false).unwrap(), [Arch::Amd64, Arch::Arm64]);
    }

    #[test]
    fn an_image_of_25_megabytes_is_refused() {
        assert_eq!(too_large("simcloud", 24_999_999), None);
        assert!(too_large("simcloud", 25_000_000).unwrap().contains("simcloud is 25.0 MB"));
    }

    #[test]
    fn the_table_has_columns() {
        let row = |name: &str, unpacked| Row {
            name: name.to_owned(),
            arches: "amd64".to_owned(),
            unpacked,
            packed: 100_001,
            digest: "sha256:00".to_owned(),
        };
        let expected = "IMAGE        ARCH       SIZE    PACKED  DIGEST\n\
                        simcloud:1   amd64   17.0 MB    0.2 MB  sha256:00\n\
                        simcloud:10  amd64    0.1 MB    0.2 MB  sha256:00\n";
        assert_eq!(table(&[row("simcloud:1", 17_000_000), row("simcloud:10", 1)]), expected);
    }
}
