//! The executables that a cluster runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Tool;

/// The executables of [`Tool::CLUSTER`].
#[derive(Clone, Debug, Default)]
pub struct Programs(pub BTreeMap<Tool, PathBuf>);

impl Programs {
    pub(crate) fn path(&self, tool: Tool) -> anyhow::Result<&Path> {
        self.0.get(&tool).map(PathBuf::as_path).with_context(|| format!("{tool} has no path"))
    }
}
