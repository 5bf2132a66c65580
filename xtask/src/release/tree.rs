//! Reads the files of the repository.

use std::fs;
use std::path::Path;

use anyhow::Context;

pub(super) fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}
