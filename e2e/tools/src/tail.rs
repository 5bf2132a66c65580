//! Quotes log files in error messages.

use std::fs;
use std::path::Path;

const TAIL_LINES: usize = 15;

/// The name of a log file and its last lines, for error messages.
pub fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
    format!("the end of {}:\n  {}", log.display(), last.join("\n  "))
}
