//! The rows of docs/reference/events.md.

use std::collections::BTreeMap;

/// An Event that a process may emit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The Event's reason, such as `Synced`.
    pub reason: &'static str,
    /// The Event's type: `Normal` or `Warning`.
    pub kind: &'static str,
    /// An example of the Event's message.
    pub words: String,
}

/// Returns one line for each reason and type, sorted by reason. If there are several messages, the line shows the first one.
pub(crate) fn rows(events: &[Event]) -> Vec<String> {
    let mut first: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for Event { reason, kind, words } in events {
        first.entry((reason, kind)).or_insert(words);
    }
    let row = |((reason, kind), words): ((&str, &str), &str)| {
        format!(
            "| [`{reason}`](../troubleshoot.md#events) | {kind} | {} |",
            words.replace('|', "\\|").replace('<', "&lt;")
        )
    };
    first.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{Event, rows};

    #[test]
    fn a_row_says_how_an_event_reads() {
        let event = |reason, kind, words: &str| Event { reason, kind, words: words.to_owned() };
        let events =
            [event("B", "Normal", "b | <c>"), event("A", "Warning", "one"), event("A", "Warning", "two")];
        assert_eq!(
            rows(&events),
            [
                "| [`A`](../troubleshoot.md#events) | Warning | one |",
                "| [`B`](../troubleshoot.md#events) | Normal | b \\| &lt;c> |"
            ]
        );
    }
}
