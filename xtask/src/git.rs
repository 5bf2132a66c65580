//! Calls git in the root of the repository.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

/// Returns the trimmed output of git.
pub(crate) fn output<'a>(args: impl IntoIterator<Item = &'a str>) -> anyhow::Result<String> {
    let args: Vec<&str> = args.into_iter().collect();
    let answer = Command::new("git").args(&args).current_dir(cargo::root()).output();
    let answer = answer.context("cannot start git; install it, and work in a clone")?;
    if !answer.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&answer.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

/// Returns the paths of files that match these patterns, with their texts. Includes files that are not committed yet.
pub(crate) fn texts(patterns: &[&str]) -> anyhow::Result<Vec<(String, String)>> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard", "--"];
    let listed = output(args.into_iter().chain(patterns.iter().copied()))?;
    // Files that are deleted but not committed are still listed.
    let text = |path: &str| Some((path.to_owned(), fs::read_to_string(cargo::root().join(path)).ok()?));
    Ok(listed.lines().filter_map(text).collect())
}
