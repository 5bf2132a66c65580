//! A new adapter compiles and starts. The test builds the adapter in a separate workspace, with crates of this workspace as dependencies.

mod guide;

use std::process::Command;

use tempfile::TempDir;

use super::*;

fn name(text: &str) -> Name {
    Name::read(text).expect("a name")
}

#[test]
fn existing_adapter_is_not_overwritten() {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("Cargo.toml");
    fs::write(&file, "mine").expect("a written file");
    let error =
        write(&cargo::root().join(SKELETON), dir.path(), &name("acme")).expect_err("the folder exists");
    assert!(error.to_string().contains("choose another name"), "{error:#}");
    assert_eq!(fs::read_to_string(&file).expect("still exists"), "mine");
    assert_eq!(files(dir.path()).expect("a folder").len(), 1);
}

#[test]
fn no_name_of_the_skeleton_is_left() {
    let dir = TempDir::new().expect("a folder");
    let new = dir.path().join("acme-cloud");
    write(&cargo::root().join(SKELETON), &new, &name("acme-cloud")).expect("is written");
    for file in files(&new).expect("a folder") {
        let text = fs::read_to_string(new.join(&file)).expect("text");
        assert!(!text.to_lowercase().contains("skeleton"), "{}", file.display());
    }
}

#[test]
fn new_adapter_compiles_and_starts() {
    let root = cargo::root();
    let dir = workspace(&root);
    let (acme, new) = (name("acme-cloud"), dir.path().join("adapters/acme-cloud"));
    write(&root.join(SKELETON), &new, &acme).expect("is written");
    let said = tested(dir.path(), "adapter-acme-cloud");
    assert!(said.contains("it_says_what_is_not_written_yet ... ok"), "{said}");
}

/// Creates a separate workspace. It is inside the repository, so that the cargo configuration of the repository applies.
fn workspace(root: &Path) -> TempDir {
    let dir = TempDir::new_in(root.join("target")).expect("a folder");
    fs::write(dir.path().join("Cargo.toml"), alone(root)).expect("a written file");
    fs::copy(root.join("Cargo.lock"), dir.path().join("Cargo.lock")).expect("a written file");
    dir
}

/// Runs the tests of a package in the workspace, and returns their output. Panics if a test fails.
fn tested(workspace: &Path, package: &str) -> String {
    let tested = Command::new(cargo::program())
        .args(["test", "--offline", "--package", package, "--target-dir"])
        .arg(cargo::root().join("target"))
        .current_dir(workspace)
        // With this variable, cargo would not print the names of tests.
        .env_remove("CARGO_TERM_QUIET")
        .output()
        .expect("cargo is there");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    String::from_utf8_lossy(&tested.stdout).into_owned()
}

/// Returns the manifest for the separate workspace. It is the manifest of this workspace, with other members and with absolute paths to the
/// crates.
fn alone(root: &Path) -> String {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("text");
    let (_members, rest) = manifest.split_once("\n[workspace.package]").expect("the members come first");
    let rest = rest.replace("path = \"", &format!("path = \"{}/", root.display()));
    format!("[workspace]\nresolver = \"3\"\nmembers = [\"adapters/*\"]\n\n[workspace.package]{rest}")
}
