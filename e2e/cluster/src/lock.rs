//! Who starts or ends the cluster does so alone.

use std::fs::{self, File};

use anyhow::{Context, bail};

use crate::layout::Layout;

/// Nobody else has it until the file is dropped. It is the folder that the cluster's own is in: nothing is left behind.
///
/// # Errors
/// When somebody else has it.
pub fn lock(layout: &Layout) -> anyhow::Result<File> {
    let folder = layout.home.parent().context("the cluster has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    if file.try_lock().is_err() {
        bail!("another `cargo xtask cluster` starts or ends the cluster; wait for it, or end it with Ctrl-C");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::below(dir.path());
        let first = lock(&layout).unwrap();
        assert!(lock(&layout).is_err());
        drop(first);
        lock(&layout).unwrap();
    }
}
