//! What of a cluster runs.

use std::fmt::Write as _;

use crate::layout::Layout;
use crate::process::{known, running};

/// What a look told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// A line a server.
    pub text: String,
    /// Whether there is a cluster at all.
    pub any: bool,
    /// Whether all that was started runs.
    pub all: bool,
}

/// Looks at each server.
pub fn status(layout: &Layout) -> Status {
    let servers: Vec<_> = known(layout).into_iter().map(|name| (running(layout, &name), name)).collect();
    let mut text = String::new();
    for (id, name) in &servers {
        let state = id.map_or_else(|| "ended".to_owned(), |id| id.to_string());
        // Memory is never refused.
        writeln!(text, "{name:<32} {state:<8} {}", layout.log(name).display()).ok();
    }
    Status { text, any: !servers.is_empty(), all: servers.iter().all(|(id, _)| id.is_some()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_has_ended_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { home: dir.path().to_path_buf() };
        assert!(!status(&layout).any);
        fs::create_dir(layout.pids()).unwrap();
        fs::write(layout.pid("etcd"), "1 0").unwrap();
        let seen = status(&layout);
        assert!(seen.any && !seen.all && seen.text.contains("ended"), "{seen:?}");
    }
}
