//! Tests of `cargo xtask release build`. The real programs take minutes to build, so tiny programs replace them here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The only value that the chart needs.
const NEEDED: &str = "adapter.kind=openstack";

#[test]
fn a_release_is_complete_and_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let first = built(&dir.path().join("first"));
    let second = built(&dir.path().join("second"));
    let files = files(&first);
    assert_eq!(files, self::files(&second));
    let version = first.file_name().unwrap().to_str().unwrap().strip_prefix("cloud-controllers-").unwrap();
    let chart = format!("cloud-controllers-{version}.tgz");
    let names =
        ["NOTES.md", "SHA256SUMS", "provenance.json", "manifests/openstack.yaml", "manifests/sim.yaml"];
    for name in names.into_iter().chain(["charts/cloud-controllers.tar", &chart]) {
        assert!(files.contains_key(Path::new(name)), "{name}: {:?}", files.keys());
    }

    let sums =
        || Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&first).output();
    let checked = sums().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(String::from_utf8(checked.stdout).unwrap().lines().count(), files.len() - 1);
    fs::write(first.join("NOTES.md"), "something else").unwrap();
    assert!(!sums().unwrap().status.success());

    // The packed chart renders the same as the folder from which it was packed.
    let packed = rendered(&first.join(&chart));
    assert_eq!(packed, rendered(&root().join("helm/cloud-controllers")));
    assert!(packed.contains(&format!("helm.sh/chart: cloud-controllers-{version}\n")), "{packed}");
    assert!(packed.contains(&format!("image: \"node-controller:{version}\"")), "{packed}");
}

/// A complete release of programs that a fake cargo builds. A program that is too large stops the release.
#[test]
fn a_release_has_images_and_programs_below_the_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (program, output) = (dir.path().join("program"), dir.path().join("dist"));
    fs::write(dir.path().join("main.c"), "int main(void) { return 0; }").unwrap();
    let mut cc = Command::new("cc");
    let done = cc.args(["-static", "main.c", "-o"]).arg(&program).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    let cargo = stand_in(dir.path());
    let build = || {
        let mut command = xtask();
        command.args(["release", "build", "--draft", "--output"]).arg(&output).env("CARGO", &cargo);
        command.env_remove("COSIGN_KEY").env("CARGO_TARGET_DIR", dir.path().join("target")).output().unwrap()
    };

    let done = build();
    assert!(done.status.success(), "{}", text(&done));
    let folder = fs::read_dir(&output).unwrap().next().unwrap().unwrap().path();
    let names: Vec<_> = files(&folder).into_keys().map(|path| path.display().to_string()).collect();
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    // Seven images and the chart; two programs.
    assert_eq!((count(".tar"), count(".spdx.json"), count(".tar.gz")), (8, 9, 2), "{names:?}");
    // The SBOM of each program has the checksum of the program; the provenance has the checksums of its archive and of the images.
    let json =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap() };
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let provenance = json("provenance.json").to_string();
    for name in names.iter().filter_map(|name| name.strip_suffix(".tar.gz")) {
        let sbom = json(&format!("{name}.spdx.json"));
        let checksum = sbom["packages"][0]["checksums"][0]["checksumValue"].as_str().unwrap();
        assert_eq!(checksum, checksum_in(&folder.join(format!("{name}.tar.gz"))), "{name}");
        let line = sums.lines().find(|line| line.ends_with(&format!("  {name}.tar.gz"))).unwrap();
        assert!(provenance.contains(line.split(' ').next().unwrap()), "{line}: {provenance}");
    }
    assert!(
        provenance.contains("\"oci:charts/cloud-controllers\"") && provenance.contains("\"oci:simcloud\"")
    );
    let archive =
        names.iter().find(|name| name.starts_with("cloudctl-") && name.ends_with(".tar.gz")).unwrap();
    let krew = fs::read_to_string(folder.join("cloudctl.krew.yaml")).unwrap();
    let named =
        krew.lines().find(|line| line.contains("sha256: ")).unwrap().trim().trim_start_matches("sha256: ");
    assert!(sums.contains(&format!("{named}  {archive}\n")), "{krew}");

    fs::OpenOptions::new().write(true).open(&program).unwrap().set_len(25_000_000).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let refused = build();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused).contains("above the limit of 25.0 MB"), "{}", text(&refused));
    assert_eq!(fs::read_dir(&output).unwrap().count(), 0);
}

fn checksum_in(archive: &Path) -> String {
    let name = archive.file_name().unwrap().to_str().unwrap();
    let program = ["cloudctl", "adapter-conformance"].into_iter().find(|it| name.starts_with(it)).unwrap();
    let script =
        format!("tar --extract --gzip --to-stdout --file '{}' {program} | sha256sum", archive.display());
    let done = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(done.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// An unfinished project must not be published by mistake.
#[test]
fn unsigned_and_incomplete_releases_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut release = xtask();
    let done =
        release.args(["release", "build", "--output"]).arg(dir.path()).env_remove("COSIGN_KEY").output();
    let done = done.unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(text(&done).contains("--draft") || text(&done).contains("--rehearsal"), "{}", text(&done));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let said = text(&cheap().arg("--output").arg(dir.path()).output().unwrap());
    assert!(
        said.contains("note: this is a draft, not for publication") && said.contains("not signed"),
        "{said}"
    );
}

/// A fake cargo: it always builds the same program, and passes all other commands to the real cargo.
fn stand_in(dir: &Path) -> PathBuf {
    let path = dir.join("cargo");
    let script = format!(
        r#"#!/bin/sh
set -e
[ "$1" = build ] || exec '{}' "$@"
while [ $# -gt 0 ]; do
  case $1 in --bin) name=$2 ;; --target) target=$2 ;; --target-dir) folder=$2 ;; esac
  shift
done
mkdir -p "$folder/$target/release"
cp '{}/program' "$folder/$target/release/$name"
"#,
        env!("CARGO"),
        dir.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// One failure occurs before the start of the release, the other in the middle.
#[test]
fn a_failed_release_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, output) = (dir.path().join("file"), dir.path().join("dist"));
    fs::write(&file, "").unwrap();
    for (output, registry, said) in
        [(&file, "", "choose another --output"), (&output, "a b", "image.registry")]
    {
        let failed = cheap().arg("--output").arg(output).args(["--registry", registry]).output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        assert!(text(&failed).contains(said), "{}", text(&failed));
    }
    assert_eq!(fs::read_dir(output).unwrap().count(), 0);
}

/// Without the value image.registry, kubelets would look for the images on Docker Hub.
#[test]
fn a_released_chart_takes_its_images_from_the_registry_of_the_release() {
    let dir = tempfile::tempdir().unwrap();
    let folder = built_for("registry.example:5000/team", dir.path());
    let charts = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let chart = charts.into_iter().find(|path| path.extension().is_some_and(|it| it == "tgz")).unwrap();
    let images = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        lines.map(|image| image.trim_matches('"').to_owned()).collect()
    };
    let packed = images(&rendered(&chart));
    assert!(packed.iter().any(|it| it.starts_with("registry.example:5000/team/cloudctl:")), "{packed:?}");
    assert!(packed.iter().all(|it| it.starts_with("registry.example:5000/team/")), "{packed:?}");
    let folder = images(&rendered(&root().join("helm/cloud-controllers")));
    assert_eq!(
        packed.iter().map(|it| it.replace("registry.example:5000/team/", "")).collect::<Vec<_>>(),
        folder
    );
}

fn built(output: &Path) -> PathBuf {
    built_for("", output)
}

fn built_for(registry: &str, output: &Path) -> PathBuf {
    let done = cheap().args(["--registry", registry]).arg("--output").arg(output).output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    let mut made = fs::read_dir(output).unwrap();
    let folder = made.next().unwrap().unwrap().path();
    assert!(made.next().is_none(), "nothing else is left");
    folder
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_path_buf(), fs::read(path).unwrap());
            }
        }
    }
    files
}

fn rendered(chart: &Path) -> String {
    let mut helm = Command::new(e2e::tools().unwrap().helm.path);
    let done = helm.args(["template", "a", "--set", NEEDED]).arg(chart).env("KUBECONFIG", "none").output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", text(&done));
    String::from_utf8(done.stdout).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn cheap() -> Command {
    let mut command = xtask();
    command.args(["release", "build", "--draft", "--without-images"]).env_remove("COSIGN_KEY");
    command
}

/// `cargo xtask test` has built xtask already.
fn xtask() -> Command {
    let program = e2e::binaries().unwrap().join("xtask");
    assert!(program.exists(), "{} does not exist; build it: cargo build --package xtask", program.display());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}
