//! Calls other programs to build an image: cargo builds the program and lists its crates, rustc and the C compiler report their versions.
//! Separate functions choose the flags that make the program static and reproducible.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::about::{IMAGES, Image};
use super::arch::Arch;
use super::sbom::Toolchain;
use crate::cargo;

/// Returns what the user must install if the program cannot be built for this architecture, and otherwise `None`.
pub(crate) fn missing(arch: Arch) -> Option<String> {
    let libraries = output(rustc().args(["--print", "target-libdir", "--target", arch.target()]));
    let target = libraries.is_some_and(|path| Path::new(&path).exists());
    let linker = output(Command::new(linker(arch)).arg("--version")).is_some();
    repair(arch, target, linker).or_else(|| old(glibc(arch).as_deref()?))
}

/// Returns the reason why images cannot be built with this glibc, if there is one. Before 2.34, a static program loads the DNS resolver
/// from the file system, and the image does not contain it. Before 2.35, a program asks DNS before `/etc/hosts` if the image has no
/// `nsswitch.conf`. Source: glibc's NEWS of these versions.
fn old(glibc: &str) -> Option<String> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let mut parts = glibc.split('.');
    let version = (number(parts.next()), number(parts.next()));
    (version < (2, 35)).then(|| {
        format!(
            "glibc {glibc} cannot resolve names in a static program: build on a system with glibc \
            2.35 or newer, such as Debian 12"
        )
    })
}

fn repair(arch: Arch, target: bool, linker: bool) -> Option<String> {
    let rustup = format!("rustup target add {}", arch.target());
    let compiler = format!("gcc-{0} libc6-dev-{1}-cross", arch.gnu().replace('_', "-"), arch.name());
    match (target, linker) {
        (true, true) => None,
        (false, true) => Some(format!("install it: `{rustup}`")),
        (true, false) => Some(format!("install its C compiler, in Debian {compiler}")),
        (false, false) => Some(format!("install it: `{rustup}`, and its C compiler, in Debian {compiler}")),
    }
}

/// The C compiler, which is also the linker.
fn linker(arch: Arch) -> String {
    match Arch::of_this_machine() {
        Ok(here) if here == arch => "cc".to_owned(),
        _ => format!("{}-gcc", arch.gnu()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// For users: the programs must be small.
    Release,
    /// For tests: build time matters more than size.
    Tests,
}

impl Use {
    pub(crate) fn profile(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Tests => "test-images",
        }
    }
}

/// Returns the programs that one call of cargo builds. For users, each program is built separately, because otherwise it would get features of
/// crates that only another program needs. For tests, one call builds the programs of all images, and compiles each crate once.
fn together(image: &Image, what_for: Use) -> Vec<&Image> {
    let all = what_for == Use::Tests && IMAGES.iter().any(|other| other.name == image.name);
    if all { IMAGES.iter().collect() } else { vec![image] }
}

/// Builds the program and returns its path.
pub(crate) fn binary(image: &Image, arch: Arch, what_for: Use) -> anyhow::Result<PathBuf> {
    let target = target();
    let root = cargo::root();
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("cannot find the home directory; set CARGO_HOME")?;
    let (std, std_name) = std_source()?;
    let places = [
        (root.as_path(), "/src"),
        (home.as_path(), "/cargo"),
        (target.as_path(), "/target"),
        (std.as_path(), std_name.as_str()),
    ];
    let mut command = Command::new(cargo::program());
    // Settings of the user's shell must not influence programs that are published.
    for (name, _) in env::vars_os().filter(|(name, _)| changes_what_is_built(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    let status = command
        .args(["build", "--profile", what_for.profile(), "--locked"])
        .args(together(image, what_for).iter().flat_map(|it| ["--package", it.package, "--bin", it.name]))
        .args(["--target", arch.target(), "--target-dir"])
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&places))
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        .envs(compilers(&c_flags(&places)))
        .current_dir(&root)
        // Standard output must contain only the table.
        .stdout(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("{} does not build for {arch}: {status}; fix what cargo reports above", image.name);
    }
    Ok(target.join(arch.target()).join(what_for.profile()).join(image.name))
}

/// Returns the variables that name the linker and the flags for C code of each architecture. They do not depend on the architecture that is
/// built: build scripts run on this host, and cargo compiles them, and all that depends on them, again when the host's linker changes.
fn compilers(c_flags: &str) -> impl Iterator<Item = (String, String)> {
    Arch::ALL.into_iter().flat_map(move |arch| {
        let name = arch.target().replace('-', "_");
        [
            (format!("CFLAGS_{name}"), c_flags.to_owned()),
            (format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), linker(arch)),
        ]
    })
}

/// Returns a separate target folder. With a shared folder, cargo would rebuild everything whenever the flags change.
pub(crate) fn target() -> PathBuf {
    cargo::target().join("images")
}

/// Joins the flags with cargo's separator, because folders may contain spaces. If several prefixes match a path, the last one applies.
fn rust_flags(places: &[(&Path, &str)]) -> String {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    flags.extend(places.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())));
    flags.join("\u{1f}")
}

/// Replaces paths in C code of crates, too. Quotes each flag for the shell, because folders may contain spaces.
fn c_flags(places: &[(&Path, &str)]) -> String {
    let flag = |(from, to): &(&Path, &str)| format!("-ffile-prefix-map={}={to}", from.display());
    let quoted = |flag: String| format!("'{}'", flag.replace('\'', "'\\''"));
    places.iter().map(|place| quoted(flag(place))).collect::<Vec<_>>().join(" ")
}

/// The folder of the standard library's sources if they are installed, and otherwise the name that rustc uses.
fn std_source() -> anyhow::Result<(PathBuf, String)> {
    let sysroot = output(rustc().args(["--print", "sysroot"])).context("rustc does not print its sysroot")?;
    let version = output(rustc().arg("-vV")).context("rustc does not print its version")?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let name = format!("/rustc/{}", commit.context("rustc does not print its commit")?);
    Ok((Path::new(&sysroot).join("lib/rustlib/src/rust"), name))
}

/// Returns whether an environment variable configures compilers: it is a setting of cargo's profiles, or a flag for crates with C code.
fn changes_what_is_built(variable: &str) -> bool {
    const NAMES: [&str; 10] = [
        "CFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "HOST_CFLAGS",
        "TARGET_CFLAGS",
        "CC",
        "RUSTFLAGS",
        "CRATE_CC_NO_DEFAULTS",
        "LIBRARY_PATH",
        "CPATH",
    ];
    const BEGINNINGS: [&str; 4] = ["CARGO_PROFILE_", "CFLAGS_", "CC_", "AWS_LC_SYS_"];
    NAMES.contains(&variable) || BEGINNINGS.iter().any(|begin| variable.starts_with(begin))
}

/// The crates that are linked into the program, from `cargo tree`, which resolves features like a build of that package.
pub(crate) fn tree(image: &Image, arch: Arch) -> anyhow::Result<String> {
    let output = Command::new(cargo::program())
        .args(["tree", "--locked", "--package", image.package, "--target", arch.target()])
        .args(["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", super::sbom::FORMAT])
        .current_dir(cargo::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo tree --package {}: {}; fix what cargo reports above", image.package, output.status);
    }
    String::from_utf8(output.stdout).context("cargo tree prints invalid UTF-8")
}

/// Returns the versions of linked code that is not a crate. They are unknown for programs that were built elsewhere.
pub(crate) fn toolchain(arch: Arch, ours: bool) -> Toolchain {
    if !ours {
        return Toolchain::default();
    }
    let rust = output(rustc().arg("--version"));
    let gcc = ["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"];
    Toolchain {
        std: rust.and_then(|line| line.split(' ').nth(1).map(str::to_owned)),
        glibc: glibc(arch),
        gcc: macros(arch).and_then(|macros| version(&macros, &gcc)),
    }
}

fn glibc(arch: Arch) -> Option<String> {
    version(&macros(arch)?, &["__GLIBC__", "__GLIBC_MINOR__"])
}

/// The macros that the C compiler and its library define.
fn macros(arch: Arch) -> Option<String> {
    output(Command::new(linker(arch)).args(["-E", "-dM", "-include", "features.h", "-xc", "/dev/null"]))
}

/// Returns the values of these macros, joined with dots, if all of them are defined.
fn version(macros: &str, names: &[&str]) -> Option<String> {
    let value = |name: &str| {
        let mut words = macros.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words.find_map(|words| match words.as_slice() {
            ["#define", key, value] if *key == name => Some((*value).to_owned()),
            _ => None,
        })
    };
    let numbers: Option<Vec<_>> = names.iter().map(|name| value(name)).collect();
    Some(numbers?.join("."))
}

fn rustc() -> Command {
    let mut command = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.current_dir(cargo::root());
    command
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::about::PROGRAMS;
    use super::{
        Arch, IMAGES, Use, c_flags, changes_what_is_built, compilers, old, repair, rust_flags, std_source,
        together, version,
    };

    #[test]
    fn compilers_are_set_for_all_architectures() {
        let names: Vec<_> = compilers("-g0").map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "CFLAGS_x86_64_unknown_linux_gnu",
                "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
                "CFLAGS_aarch64_unknown_linux_gnu",
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            ]
        );
    }

    #[test]
    fn only_tests_build_several_programs_at_once() {
        let count = |image, what_for| together(image, what_for).len();
        assert_eq!(count(&IMAGES[0], Use::Release), 1);
        assert_eq!(count(&IMAGES[0], Use::Tests), IMAGES.len());
        let conformance = PROGRAMS.iter().find(|it| it.name == "adapter-conformance").unwrap();
        assert_eq!(count(conformance, Use::Tests), 1, "it has no image");
    }

    #[test]
    fn folders_of_this_host_are_not_in_the_program() {
        let places =
            [(Path::new("/home/me/my src"), "/src"), (Path::new("/home/me/my src/target"), "/target")];
        assert_eq!(
            rust_flags(&places).split('\u{1f}').collect::<Vec<_>>(),
            [
                "-Ctarget-feature=+crt-static",
                "--remap-path-prefix=/home/me/my src=/src",
                "--remap-path-prefix=/home/me/my src/target=/target",
            ]
        );
        assert_eq!(c_flags(&places[..1]), "'-ffile-prefix-map=/home/me/my src=/src'");
        assert_eq!(c_flags(&[(Path::new("/it's"), "/src")]), "'-ffile-prefix-map=/it'\\''s=/src'");
    }

    #[test]
    fn compiler_settings_of_the_shell_are_ignored() {
        for name in
            ["CFLAGS", "CFLAGS_x86_64-unknown-linux-gnu", "CARGO_PROFILE_RELEASE_LTO", "AWS_LC_SYS_CFLAGS"]
        {
            assert!(changes_what_is_built(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "CARGO_TARGET_DIR", "CCACHE_DIR"] {
            assert!(!changes_what_is_built(name), "{name}");
        }
    }

    #[test]
    fn path_of_the_standard_library_is_normalised() {
        let (folder, name) = std_source().unwrap();
        assert!(folder.ends_with("lib/rustlib/src/rust"), "{}", folder.display());
        assert!(name.starts_with("/rustc/") && name.len() == "/rustc/".len() + 40, "{name}");
    }

    #[test]
    fn missing_packages_are_reported() {
        assert_eq!(repair(Arch::Arm64, true, true), None);
        let hint = repair(Arch::Arm64, false, false).unwrap();
        for words in
            ["rustup target add aarch64-unknown-linux-gnu", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]
        {
            assert!(hint.contains(words), "{hint}");
        }
        assert!(repair(Arch::Amd64, true, false).unwrap().contains("gcc-x86-64-linux-gnu"));
        assert!(old("2.31").unwrap().contains("2.35"));
        assert_eq!((old("2.35"), old("2.36"), old("3.0")), (None, None, None));
    }

    #[test]
    fn c_library_version_is_read_from_macros() {
        let macros = "#define __GLIBC__ 2\n#define __GLIBC_PREREQ(maj, min) 1\n#define __GLIBC_MINOR__ 36\n";
        let names = ["__GLIBC__", "__GLIBC_MINOR__"];
        assert_eq!(version(macros, &names).unwrap(), "2.36");
        assert_eq!(version("#define __GLIBC__ 2\n", &names), None);
    }
}
