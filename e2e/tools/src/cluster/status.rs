//! The state of the cluster's servers.

use std::fmt::Write as _;

use crate::cluster::layout::Layout;
use crate::cluster::process::{known, running};

/// The observed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// One line per server.
    pub text: String,
    /// Whether a cluster exists.
    pub any: bool,
    /// Whether all servers that were started are running.
    pub all: bool,
}

/// Checks each server.
pub fn status(layout: &Layout) -> Status {
    let servers: Vec<_> = known(layout).into_iter().map(|name| (running(layout, &name), name)).collect();
    let mut text = String::new();
    for (id, name) in &servers {
        let state = id.map_or_else(|| "ended".to_owned(), |id| id.to_string());
        // Writing to a String cannot fail.
        writeln!(text, "{name:<32} {state:<8} {}", layout.log(name).display()).ok();
    }
    Status { text, any: !servers.is_empty(), all: servers.iter().all(|(id, _)| id.is_some()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn ended_server_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { home: dir.path().to_path_buf() };
        assert!(!status(&layout).any);
        fs::create_dir(layout.pids()).unwrap();
        fs::write(layout.pid("etcd"), "1 0").unwrap();
        let seen = status(&layout);
        assert!(seen.any && !seen.all && seen.text.contains("ended"), "{seen:?}");
    }
}
