//! Selects the tests that a change can affect: tests of the changed packages and of all packages that depend on them. Also selects tests
//! that start programs or read files of the changed packages. If in doubt, selects all tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::Deserialize;

use crate::{cargo, git};

/// Packages whose programs are started by tests of packages that do not depend on them.
const STARTS: [(&str, &str); 5] = [
    ("adapter-openstack", "e2e"),
    ("node-controller", "e2e"),
    ("route-controller", "e2e"),
    ("service-controller", "e2e"),
    ("xtask", "e2e"),
];
/// Folders outside of packages, and folders whose files other packages read. Each folder has the list of packages whose tests read its
/// files.
const READS: [(&str, &[&str]); 7] = [
    ("docs/", &["adapter-openstack", "cloud-adapter", "cloudctl", "e2e", "service-controller", "xtask"]),
    ("helm/", &["adapter-sim", "cloud-adapter", "cloudctl", "e2e", "xtask"]),
    ("adapters/sim/README.md", &["adapter-sim"]),
    ("examples/", &["e2e", "xtask"]),
    ("adapters/skeleton/", &["xtask"]),
    ("cloud-api-proto/proto/", &["xtask"]),
    ("service-controller/src/plan/annotations/", &["e2e"]),
];
/// Files that no test reads.
const UNREAD: [&str; 6] =
    ["changelog.d/", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", "typos.toml"];
/// The controllers, each with the prefix of the scenarios that concern only this controller.
const SUBJECTS: [(&str, &str); 3] =
    [("node-controller", "node_"), ("route-controller", "route_"), ("service-controller", "service_")];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// All tests, because this file changed.
    All(String),
    /// The tests that a nextest expression selects.
    Some(String),
    Nothing,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
}

/// A package and its folder relative to the root, with a trailing slash.
type Folder = (String, String);

/// Returns the tests that changes since the branch left `revision` can affect, whether the changes are committed or not.
pub(super) fn affected(revision: &str) -> anyhow::Result<Affected> {
    let base = git::output(["merge-base", revision, "HEAD"])
        .with_context(|| format!("--since {revision}: unknown revision; name a branch, a tag or a commit"))?;
    let changed = git::output(["diff", "--name-only", &base])?;
    let new = git::output(["ls-files", "--others", "--exclude-standard"])?;
    let files: Vec<&str> = changed.lines().chain(new.lines()).collect();
    Ok(choose(&files, &folders()?))
}

fn folders() -> anyhow::Result<Vec<Folder>> {
    let root = cargo::root();
    let listed = Command::new(cargo::program())
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(&root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let Metadata { packages } =
        serde_json::from_slice(&listed.stdout).context("cannot read cargo metadata")?;
    let folder = |package: Package| {
        let folder = Path::new(&package.manifest_path).parent()?.strip_prefix(&root).ok()?;
        Some((package.name, format!("{}/", folder.display())))
    };
    Ok(packages.into_iter().filter_map(folder).collect())
}

fn choose(files: &[&str], folders: &[Folder]) -> Affected {
    let mut changed = BTreeSet::new();
    let mut readers = BTreeSet::new();
    for file in files {
        let reads = READS.iter().filter(|(folder, _)| file.starts_with(folder));
        let of_file: Vec<&str> = reads.flat_map(|(_, packages)| packages.iter().copied()).collect();
        let owner = folders.iter().filter(|(_, folder)| file.starts_with(folder.as_str()));
        let owner = owner.max_by_key(|(_, folder)| folder.len()).map(|(name, _)| name.as_str());
        let unread =
            UNREAD.iter().any(|name| file.starts_with(name)) || (owner.is_none() && file.ends_with(".md"));
        if owner.is_none() && of_file.is_empty() && !unread {
            return Affected::All((*file).to_owned());
        }
        // A README of a package is read by the step `check`, but not by the tests of that package.
        changed.extend(owner.filter(|_| !file.ends_with(".md")));
        readers.extend(of_file);
    }
    let started = STARTS.iter().filter(|(program, _)| changed.contains(program)).map(|(_, by)| *by);
    let mut terms: Vec<String> = changed.iter().map(|name| format!("rdeps(={name})")).collect();
    terms.extend(readers.iter().map(|name| format!("package(={name})")));
    terms
        .extend(started.collect::<BTreeSet<_>>().into_iter().map(|name| scenarios(name, &changed, &readers)));
    if terms.is_empty() { Affected::Nothing } else { Affected::Some(terms.join(" | ")) }
}

/// Returns the scenarios that start programs of the changed packages. If only controllers have changed, scenarios about other controllers
/// are left out.
fn scenarios(package: &str, changed: &BTreeSet<&str>, readers: &BTreeSet<&str>) -> String {
    let only_controllers =
        changed.iter().all(|name| SUBJECTS.iter().any(|(controller, _)| controller == name));
    let others = SUBJECTS.iter().filter(|(controller, _)| !changed.contains(controller));
    let others: Vec<&str> = others.map(|(_, subject)| *subject).collect();
    if !only_controllers || others.is_empty() || readers.contains(package) {
        return format!("package(={package})");
    }
    format!("(package(={package}) & not test(/^({})/))", others.join("|"))
}

#[cfg(test)]
mod tests {
    use super::{Affected, READS, STARTS, SUBJECTS, choose, folders};

    fn chosen(files: &[&str]) -> String {
        match choose(files, &folders().unwrap()) {
            Affected::All(file) => format!("all: {file}"),
            Affected::Some(filter) => filter,
            Affected::Nothing => String::new(),
        }
    }

    #[test]
    fn a_change_runs_its_package_and_what_depends_on_it() {
        assert_eq!(chosen(&["lease/src/lib.rs"]), "rdeps(=cloud-lease)");
        assert_eq!(chosen(&["cloud-adapter/budget/src/lib.rs"]), "rdeps(=cloud-budget)");
        assert_eq!(chosen(&["e2e/tools/src/cluster/wait.rs"]), "rdeps(=e2e-tools)");
    }

    #[test]
    fn change_of_one_controller_skips_scenarios_of_the_others() {
        let node = "rdeps(=node-controller) | (package(=e2e) & not test(/^(route_|service_)/))";
        assert_eq!(chosen(&["node-controller/src/plan.rs"]), node);
        let with_chart = chosen(&["node-controller/src/plan.rs", "helm/cloud-controllers/values.yaml"]);
        assert!(with_chart.ends_with("| package(=e2e)"), "{with_chart}");
        let with_core = chosen(&["node-controller/src/plan.rs", "controller-core/src/lib.rs"]);
        assert!(with_core.ends_with("| package(=e2e)"), "{with_core}");
    }

    #[test]
    fn files_of_no_package_select_their_readers_or_all() {
        assert_eq!(chosen(&["CHANGELOG.md", "changelog.d/x.fixed.md", "node-controller/README.md"]), "");
        assert!(chosen(&["docs/scale.md"]).contains("package(=e2e)"));
        assert_eq!(chosen(&["docs/scale.md", "Cargo.lock"]), "all: Cargo.lock");
        assert_eq!(chosen(&[".config/nextest.toml"]), "all: .config/nextest.toml");
        assert_eq!(chosen(&[]), "");
    }

    #[test]
    fn packages_of_the_tables_exist() {
        let folders = folders().unwrap();
        let readers = READS.iter().flat_map(|(_, packages)| packages.iter().copied());
        let started = STARTS.iter().flat_map(|(program, by)| [*program, *by]);
        for name in readers.chain(started).chain(SUBJECTS.iter().map(|(name, _)| *name)) {
            assert!(folders.iter().any(|(package, _)| package == name), "unknown package {name}");
        }
    }
}
