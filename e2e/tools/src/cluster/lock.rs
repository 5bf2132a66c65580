//! Lets only one process at a time start or stop the cluster.

use std::fs::{self, File};

use anyhow::{Context, bail};

use crate::cluster::layout::Layout;

/// Locks the cluster until the returned file is dropped. The locked file is the folder that contains the cluster's folder, so no lock file
/// is left behind.
pub fn lock(layout: &Layout) -> anyhow::Result<File> {
    let folder = layout.home.parent().context("the cluster's folder has no parent")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    if file.try_lock().is_err() {
        bail!(
            "another `cargo xtask cluster` is starting or stopping the cluster; wait for it, or end it with Ctrl-C"
        );
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::below(dir.path());
        let first = lock(&layout).unwrap();
        assert!(lock(&layout).is_err());
        drop(first);
        lock(&layout).unwrap();
    }
}
