//! The requests and responses of a check, printed if it fails. Their number is limited, so that an adapter with endless output cannot
//! exhaust memory.

use std::{
    fmt::{self, Debug, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of lines. If there are more, the first and the last half are kept.
const LINES_MAX: usize = 200;
const MESSAGE_MAX: usize = 600;

/// The record of one check. Clones share it.
#[derive(Clone, Debug)]
pub struct Transcript {
    started: Instant,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    first: Vec<String>,
    last: std::collections::VecDeque<String>,
    dropped: usize,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), kept: Arc::default() }
    }

    /// Adds a line, with the time since the check's start.
    pub fn note(&self, text: impl AsRef<str>) {
        let at = self.started.elapsed().as_secs_f64();
        let line = format!("{at:8.3}s {}", text.as_ref());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.first.len() < LINES_MAX {
            kept.first.push(line);
            return;
        }
        if kept.last.len() == LINES_MAX {
            kept.last.pop_front();
            kept.dropped = kept.dropped.saturating_add(1);
        }
        kept.last.push_back(line);
    }

    pub(crate) fn sent(&self, who: &str, method: &str, message: &impl Debug) {
        self.note(format!("{who} -> {method} {}", brief(message)));
    }

    pub(crate) fn came(&self, who: &str, method: &str, message: &str, took: Duration) {
        let text = shorten(message);
        self.note(format!("{who} <- {method} {text} ({} ms)", took.as_millis()));
    }

    /// All lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = (kept.dropped > 0).then(|| format!("          ... {} lines omitted ...", kept.dropped));
        kept.first.iter().cloned().chain(gap).chain(kept.last.iter().cloned()).collect()
    }
}

/// Formats a message on one shortened line. Formatting stops at the limit, because some messages hold hundreds of items.
pub(crate) fn brief(message: &impl Debug) -> String {
    let mut head = Head { text: String::new(), room: MESSAGE_MAX };
    let whole = write!(head, "{message:?}").is_ok();
    if whole { head.text } else { head.text + "..." }
}

/// A writer that returns an error after it has accepted this many characters.
struct Head {
    text: String,
    room: usize,
}

impl fmt::Write for Head {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let before = self.text.len();
        self.text.extend(more.chars().take(self.room));
        let taken = self.text.len().saturating_sub(before);
        self.room = self.room.saturating_sub(more.chars().take(self.room).count());
        if taken == more.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

fn shorten(text: &str) -> String {
    let total = text.chars().count();
    if total <= MESSAGE_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(MESSAGE_MAX).collect();
    format!("{head}... ({total} characters)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_transcript_keeps_both_ends() {
        let transcript = Transcript::new();
        for line in 0..1000 {
            transcript.note(format!("line {line}"));
        }
        let lines = transcript.lines();
        assert_eq!(lines.len(), 2 * LINES_MAX + 1);
        assert!(lines[0].ends_with("line 0") && lines[2 * LINES_MAX].ends_with("line 999"));
        assert!(lines[LINES_MAX].contains("600 lines omitted"));
    }

    #[test]
    fn long_message_is_shortened() {
        let text = brief(&vec!["xä"; MESSAGE_MAX]);
        assert!(text.chars().count() == MESSAGE_MAX + 3 && text.ends_with("..."), "{text}");
        assert_eq!(brief(&["xä"]), r#"["xä"]"#);
    }
}
