//! Builds test programs and finds them in cargo's messages. This is for tiers that nextest cannot run, because one process sets up and
//! cleans up the computer for all scenarios of such a tier.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::cargo;

/// A line of cargo's messages. Source: The Cargo Book, External tools, JSON messages.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all programs and tests of the workspace, and returns the path of the test program with this name.
pub(super) fn build(name: &str) -> anyhow::Result<PathBuf> {
    let built = Command::new(cargo::program())
        .args(cargo::build_all())
        .arg("--message-format=json-render-diagnostics")
        .current_dir(cargo::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the workspace does not build: fix what cargo reports above");
    }
    program(&built.stdout, name)?.with_context(|| format!("cargo built no test program named {name}"))
}

fn program(messages: &[u8], wanted: &str) -> anyhow::Result<Option<PathBuf>> {
    for message in serde_json::Deserializer::from_slice(messages).into_iter() {
        match message.context("cannot read the messages of cargo")? {
            Message::CompilerArtifact { target, profile: Profile { test: true }, executable: Some(path) }
                if target.name == wanted =>
            {
                return Ok(Some(path));
            }
            Message::CompilerArtifact { .. } | Message::Other => (),
        }
    }
    Ok(None)
}

/// Returns the command that runs a test program of the package in `folder`, as cargo does.
pub(super) fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .envs([("CARGO", cargo::program()), ("CARGO_MANIFEST_DIR", OsString::from(folder))]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_among_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"e2e"},"profile":{"test":false},"executable":null}
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","target":{"name":"tool"},"profile":{"test":false},"executable":"/t/tool"}
{"reason":"compiler-artifact","target":{"name":"demo"},"profile":{"test":true},"executable":"/t/demo-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(program(messages, "demo").unwrap(), Some(PathBuf::from("/t/demo-1")));
        assert_eq!(program(messages, "tool").unwrap(), None);
        assert!(program(b"{", "demo").is_err());
    }
}
