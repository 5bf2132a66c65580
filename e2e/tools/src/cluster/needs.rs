//! Prerequisites, which are checked before any server starts: the right to create namespaces, and programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::cluster::run::run;
use crate::cluster::wait::say;

const PLUGIN_DIRS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const PLUGINS: [&str; 4] = ["host-local", "loopback", "portmap", "ptp"];

/// Programs, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 11] = [
    ("cc", "gcc libc6-dev"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
    ("runc", "runc"),
    ("setsid", "util-linux"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
];

/// Returns an error if the caller is not root.
pub fn root() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the cluster requires root, for namespaces, mounts and containers; run the command as root (`sudo -E`)"
    );
    Ok(())
}

/// Installs missing packages. Returns the folder of the CNI plugins.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    let missing = missing();
    if missing.is_empty() {
        return plugins().context("cannot find the CNI plugins");
    }
    let named = missing.join(" ");
    ensure!(in_path("apt-get"), "these packages (Debian names) are missing: {named}; install them");
    say(&format!("Installing {named}"));
    let apt = |words: &[&str], packages: &[&str]| {
        run(Command::new("apt-get").args(words).args(packages).env("DEBIAN_FRONTEND", "noninteractive"))
            .with_context(|| format!("install {named} by hand"))
    };
    apt(&["update"], &[])?;
    apt(&["install", "--yes", "--no-install-recommends"], &missing)?;
    let still = self::missing();
    if !still.is_empty() {
        bail!(
            "cannot find the programs of {} although these packages are installed: check PATH",
            still.join(" ")
        );
    }
    plugins().context("cannot find the CNI plugins")
}

fn missing() -> Vec<&'static str> {
    let mut packages: Vec<_> = PROGRAMS
        .iter()
        .filter(|(program, _)| !in_path(program))
        .flat_map(|(_, packages)| packages.split(' '))
        .collect();
    if plugins().is_none() {
        packages.push("containernetworking-plugins");
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn plugins() -> Option<PathBuf> {
    let complete = |dir: &&Path| PLUGINS.iter().all(|plugin| dir.join(plugin).is_file());
    PLUGIN_DIRS.iter().map(Path::new).find(complete).map(Path::to_path_buf)
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
