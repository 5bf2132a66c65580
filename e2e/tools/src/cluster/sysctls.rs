//! Kernel settings that a kubelet changes for the whole host, regardless of its namespace. `up` saves them, `down` restores them.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::cluster::layout::Layout;

/// The settings. Source: `setupKernelTunables` of the kubelet 1.36, `pkg/kubelet/cm/container_manager_linux.go`.
const SETTINGS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

const PROC: &str = "/proc/sys";

/// Saves the settings. Must be called before the first kubelet starts.
pub(crate) fn keep(layout: &Layout) -> anyhow::Result<()> {
    let file = layout.sysctls();
    if file.exists() {
        return Ok(());
    }
    fs::write(&file, read(Path::new(PROC))).with_context(|| format!("cannot write {}", file.display()))
}

/// Restores the settings. Must be called after the last kubelet has ended.
pub(crate) fn put_back(layout: &Layout) {
    let kept = fs::read_to_string(layout.sysctls()).unwrap_or_default();
    write(Path::new(PROC), &kept);
}

/// Formats one line per setting. A setting that cannot be read does not exist, so a kubelet does not write it either.
fn read(proc: &Path) -> String {
    let line = |name: &&str| {
        let value = fs::read_to_string(proc.join(name)).ok()?;
        Some(format!("{name} {}\n", value.trim()))
    };
    SETTINGS.iter().filter_map(line).collect()
}

fn write(proc: &Path, kept: &str) {
    for (name, value) in kept.lines().filter_map(|line| line.split_once(' ')) {
        if SETTINGS.contains(&name) {
            // If this write is forbidden, the write of the kubelet was forbidden, too.
            fs::write(proc.join(name), value).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_sysctls_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let setting = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        for folder in ["kernel", "vm"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("kernel/panic"), "3\n").unwrap();
        fs::write(dir.path().join("vm/overcommit_memory"), "0\n").unwrap();
        let kept = read(dir.path());
        fs::write(dir.path().join("kernel/panic"), "10").unwrap();
        fs::write(dir.path().join("vm/overcommit_memory"), "1").unwrap();
        write(dir.path(), &kept);
        assert_eq!((setting("kernel/panic").as_str(), setting("vm/overcommit_memory").as_str()), ("3", "0"));
        write(dir.path(), "vm/else 1\n");
        assert!(!dir.path().join("vm/else").exists());
    }
}
