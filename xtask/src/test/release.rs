//! `cargo xtask test release`: a rehearsal, in which two releases are built but not published, in a clean clone. The newer one is built from
//! this commit with another version. The older one is built from the tag of the last release, or, before the first release, from this commit
//! as well. Both are verified, and changed files must be refused. The scenario then installs, upgrades and rolls back from a registry, on
//! nodes that run pods.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use e2e_tools::Environment;

use super::programs;
use crate::images;
use crate::images::arch::Arch;
use crate::step::say;
use crate::tool::{Tool, run_captured};
use crate::{cargo, cluster, git};

/// The name of the scenario, which `cargo xtask test cluster` skips.
pub(super) const SCENARIO: &str = "release::";
/// The address of the registry in the scenario, which is part of the manifests.
const REGISTRY: &str = e2e_tools::cluster::layout::REGISTRY;
/// The password of the rehearsal's keys, which sign nothing else.
const PASSWORD: (&str, &str) = ("COSIGN_PASSWORD", "rehearsal");

/// Runs the rehearsal. `args` contains arguments for `cargo xtask release build`.
pub(super) fn run(args: &[String]) -> anyhow::Result<()> {
    // These checks come first, because the build takes long.
    e2e_tools::cluster::root()?;
    let status = e2e_tools::cluster::status(&cluster::layout()?);
    ensure!(
        !(status.any && status.all),
        "a cluster is running, and the scenario would stop it; stop it first: `cargo xtask cluster down`"
    );
    if !git::output(["status", "--porcelain"])?.is_empty() {
        say("note: uncommitted changes are not part of the rehearsal");
    }
    // The scenario has no access to other networks, so it cannot build this program.
    Tool::Crane.get()?;
    // The folder is outside the repository, because checks of the repository would read the clone.
    let folder = Environment::of_this_process()?.cache.with_file_name("release-rehearsal");
    let work = Work {
        clone: folder.join("clone"),
        target: folder.join("target"),
        keys: folder.join("keys"),
        dist: folder.join("dist"),
    };
    work.begin()?;
    let (old, second) = match work.last_release()? {
        Some(last) => (work.rebuild(&last, args)?, work.unreleased()?),
        None => {
            let first = work.unreleased()?;
            say("note: there is no release yet, so both releases of the rehearsal have the same code");
            work.prepare(&first)?;
            (work.build(&first, args)?, next(&first)?)
        }
    };
    let fragment = work.clone.join("changelog.d/rehearsal.fixed.md");
    fs::write(&fragment, "The version changes.\n")
        .with_context(|| format!("cannot write {}", fragment.display()))?;
    work.git(&["add", "changelog.d"])?;
    work.commit("fix: change the version")?;
    work.prepare(&second)?;
    let new = work.build(&second, args)?;
    for folder in [&old, &new] {
        work.verified(folder)?;
    }
    work.scenario(&old, &new)
}

struct Work {
    clone: PathBuf,
    target: PathBuf,
    keys: PathBuf,
    dist: PathBuf,
}

impl Work {
    /// Clones the commit and creates the keys. The folder with compiled code is kept, to save time.
    fn begin(&self) -> anyhow::Result<()> {
        for folder in [&self.clone, &self.keys, &self.dist] {
            match fs::remove_dir_all(folder) {
                Err(error) if folder.exists() => {
                    return Err(error).with_context(|| format!("cannot remove {}", folder.display()));
                }
                Ok(()) | Err(_) => (),
            }
        }
        fs::create_dir_all(&self.keys).with_context(|| format!("cannot make {}", self.keys.display()))?;
        say("==> a clean clone, and keys");
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(cargo::root()).arg(&self.clone);
        run_captured(&mut clone, "free disk space, or repair the repository (`git fsck`)")?;
        self.git(&["config", "user.name", "rehearsal"])?;
        self.git(&["config", "user.email", "rehearsal@localhost"])?;
        for name in ["other", "cosign"] {
            let mut pair = Command::new(Tool::Cosign.get()?);
            pair.args(["generate-key-pair", "--output-key-prefix", name])
                .current_dir(&self.keys)
                .env(PASSWORD.0, PASSWORD.1);
            run_captured(&mut pair, "see the message of cosign above")?;
        }
        Ok(())
    }

    /// Returns the version of the last release before this commit, if any.
    fn last_release(&self) -> anyhow::Result<Option<String>> {
        let before = ["--merged", "HEAD", "--no-contains", "HEAD"];
        let tags = self.git(&[&["tag", "--list", "v*"], &before[..]].concat())?;
        Ok(last(&tags).map(|version| version.to_string()))
    }

    /// Builds a release again, from its tag.
    fn rebuild(&self, version: &str, args: &[String]) -> anyhow::Result<PathBuf> {
        self.git(&["checkout", "--quiet", &format!("v{version}")])?;
        let built = self.build(version, args)?;
        self.git(&["checkout", "--quiet", "-"])?;
        Ok(built)
    }

    /// Returns the version in Cargo.toml, or the next version if a tag for that version exists.
    fn unreleased(&self) -> anyhow::Result<String> {
        let toml = fs::read_to_string(self.clone.join("Cargo.toml")).context("cannot read Cargo.toml")?;
        let version = toml.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
        let version = version.context("Cargo.toml has no version")?;
        if self.git(&["tag", "--list", &format!("v{version}")])?.is_empty() {
            Ok(version.to_owned())
        } else {
            next(version)
        }
    }

    /// Writes the version, commits and tags, as docs/development.md says.
    fn prepare(&self, version: &str) -> anyhow::Result<()> {
        say(&format!("\n==> prepare {version}"));
        self.xtask(&["release", "prepare", version], "fix what `release prepare` reports above")?;
        self.commit(&format!("chore: release {version}"))?;
        self.git(&["tag", "--annotate", &format!("v{version}"), "--message", version]).map(drop)
    }

    fn build(&self, version: &str, args: &[String]) -> anyhow::Result<PathBuf> {
        say(&format!("\n==> build {version}"));
        let (key, dist) =
            (self.keys.join("cosign.key").display().to_string(), self.dist.display().to_string());
        let mut words = vec!["release", "build", "--registry", REGISTRY, "--key", &key, "--output", &dist];
        if !args.iter().any(|arg| arg.starts_with("--rehearsal")) {
            words.push("--rehearsal=quick");
        }
        // An architecture that cannot be built here is left out, with a note.
        let arches =
            images::buildable(&Arch::ALL)?.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(",");
        if !args.iter().any(|arg| arg.starts_with("--arch")) {
            words.extend(["--arch", &arches]);
        }
        words.extend(args.iter().map(String::as_str));
        self.xtask(
            &words,
            "fix what `release build` reports above, commit, and run `cargo xtask test release` again",
        )?;
        Ok(self.dist.join(format!("cloud-controllers-{version}")))
    }

    /// Checks that the release is verified, and that the verification fails with another key, or if a file is changed or added.
    fn verified(&self, release: &Path) -> anyhow::Result<()> {
        say(&format!("\n==> verify {}", release.display()));
        let verify = |folder: &Path, key: &str| {
            let mut command = Command::new(cargo::built("xtask"));
            command.args(["release", "verify"]).arg(folder).arg("--key").arg(self.keys.join(key));
            command.output().context("cannot start xtask")
        };
        let done = verify(release, "cosign.pub")?;
        ensure!(
            done.status.success(),
            "the release is not verified: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        let refused = |folder: &Path, key: &str, why: &str| {
            let done = verify(folder, key)?;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let right = !done.status.success() && said.contains(why);
            ensure!(
                right,
                "expected that `release verify` fails with {why:?}; repair xtask/src/release/verify.rs; it said: {said}"
            );
            say(&format!("refused: {why}"));
            Ok(())
        };
        refused(release, "other.pub", "SHA256SUMS is not signed by this key")?;
        let copy = tempfile::tempdir_in(&self.dist).context("cannot make a temporary folder")?;
        let tampered = |name: &str| {
            let folder = copy.path().join(format!("tampered-{name}"));
            let mut copied = Command::new("cp");
            copied.arg("-r").arg(release).arg(&folder);
            run_captured(&mut copied, "free disk space")?;
            anyhow::Ok(folder)
        };
        let folder = tampered("file")?;
        append(&folder.join("images/node-controller.tar"))?;
        refused(&folder, "cosign.pub", "images/node-controller.tar was changed")?;
        let folder = tampered("sums")?;
        append(&folder.join("SHA256SUMS"))?;
        refused(&folder, "cosign.pub", "SHA256SUMS is not signed by this key")?;
        let folder = tampered("more")?;
        append(&folder.join("more.tar.gz"))?;
        refused(&folder, "cosign.pub", "more.tar.gz is not in SHA256SUMS")
    }

    /// Replaces this process with the scenario by `exec`, so that signals reach the scenario, which then cleans up.
    fn scenario(&self, old: &Path, new: &Path) -> anyhow::Result<()> {
        say("\n==> install, upgrade and roll back from a registry, on nodes that run pods");
        let program = programs::build("cluster")?;
        let error = programs::command(&program, &cargo::root().join("e2e"))
            .args(["--test-threads=1", SCENARIO])
            .env("CLUSTER_IMAGES", &self.dist)
            .env("CLUSTER_XTASK", cargo::built("xtask"))
            .env("RELEASE_OLD", old)
            .env("RELEASE_NEW", new)
            .env("RELEASE_KEYS", &self.keys)
            .env(PASSWORD.0, PASSWORD.1)
            .exec();
        Err(error).context("cannot start the scenario")
    }

    fn commit(&self, subject: &str) -> anyhow::Result<()> {
        self.git(&["commit", "--quiet", "--all", "--message", subject]).map(drop)
    }

    fn git(&self, words: &[&str]) -> anyhow::Result<String> {
        let done =
            Command::new("git").args(words).current_dir(&self.clone).output().context("cannot start git")?;
        ensure!(
            done.status.success(),
            "git {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// Runs `cargo xtask` of the clone.
    fn xtask(&self, words: &[&str], repair: &str) -> anyhow::Result<()> {
        let mut command = Command::new(cargo::program());
        command
            .args(["run", "--quiet", "--locked", "--package", "xtask", "--"])
            .args(words)
            .current_dir(&self.clone);
        command.env("CARGO_TARGET_DIR", &self.target).env(PASSWORD.0, PASSWORD.1);
        let status = command.status().context("cannot start cargo")?;
        if !status.success() {
            bail!("`cargo xtask {}` in {}: {status}; {repair}", words.join(" "), self.clone.display());
        }
        Ok(())
    }
}

/// Returns the newest version in a list of tags. Candidates are left out, because upgrades begin at a release.
fn last(tags: &str) -> Option<semver::Version> {
    let versions = tags.lines().filter_map(|tag| semver::Version::parse(tag.strip_prefix('v')?).ok());
    versions.filter(|version| version.pre.is_empty()).max()
}

/// Returns the patch version that follows `version`.
fn next(version: &str) -> anyhow::Result<String> {
    let mut version =
        semver::Version::parse(version).with_context(|| format!("invalid version {version:?}"))?;
    version.patch += 1;
    version.pre = semver::Prerelease::EMPTY;
    Ok(version.to_string())
}

/// Appends a newline to the file, which is created if it is missing.
fn append(file: &Path) -> anyhow::Result<()> {
    let mut content = fs::read(file).unwrap_or_default();
    content.push(b'\n');
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::{Work, next};

    #[test]
    fn older_release_is_the_last_one_before_this_commit() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| dir.path().join(name);
        let work = Work {
            clone: dir.path().to_path_buf(),
            target: folder("target"),
            keys: folder("keys"),
            dist: folder("dist"),
        };
        let commit = |tags: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"];
            // Commits of the same second differ only in their messages.
            let words = ["commit", "--quiet", "--allow-empty", "--message", &tags.join(" ")];
            work.git(&[&who[..], &words].concat()).unwrap();
            for tag in tags {
                work.git(&["tag", tag]).unwrap();
            }
        };
        work.git(&["init", "--quiet", "--initial-branch", "a"]).unwrap();
        commit(&["v", "vendor", "0.5.0"]);
        assert_eq!(work.last_release().unwrap(), None);
        commit(&["v0.9.0"]);
        commit(&["v0.10.0"]);
        work.git(&["checkout", "--quiet", "-b", "other"]).unwrap();
        commit(&["v0.11.0"]);
        work.git(&["checkout", "--quiet", "a"]).unwrap();
        commit(&["v0.12.0-rc.1"]);
        assert_eq!(work.last_release().unwrap().as_deref(), Some("0.10.0"));
        // This commit is the candidate to test, even if it has a tag already.
        commit(&["v0.12.0"]);
        assert_eq!(work.last_release().unwrap().as_deref(), Some("0.10.0"));
    }

    #[test]
    fn second_release_is_a_patch_of_the_first() {
        assert_eq!(next("0.1.0").unwrap(), "0.1.1");
        assert_eq!(next("0.2.9-rc.1").unwrap(), "0.2.10");
        assert!(next("next").is_err());
    }
}
