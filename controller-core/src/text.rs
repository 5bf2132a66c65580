//! Shortens texts for users, and compares them.

/// Maximum length of an Event's text, in characters.
pub const NOTE_MAX: usize = 200;
/// Maximum length of a text on the status pages, in bytes.
const TEXT_MAX: usize = 4096;

/// Returns the gist of a text, which is the text without the words that contain a digit. Such words are delays, counts, addresses or
/// request IDs, which differ between attempts. Two texts with the same reason but different gists describe two problems.
#[must_use]
pub fn gist(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains(|it: char| it.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// Shortens a text that a user wrote to at most `most` characters.
#[must_use]
pub fn bounded(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Shortens a text so that the text and `end` together fit into an Event. `end`, such as a command, is not shortened.
#[must_use]
pub fn ended(text: &str, end: &str) -> String {
    let most = NOTE_MAX.saturating_sub(end.chars().count());
    bounded(&format!("{}{end}", bounded(text, most)), NOTE_MAX)
}

/// Shortens a text for the status pages to [`TEXT_MAX`] bytes, at a character boundary.
pub(crate) fn cut(note: &str) -> String {
    if note.len() <= TEXT_MAX {
        return note.to_owned();
    }
    let end = (0..=TEXT_MAX - '…'.len_utf8()).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", note.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_users_are_bounded_by_characters() {
        assert_eq!((bounded("üüü", 3).as_str(), bounded("üüüü", 3).as_str()), ("üüü", "üü…"));
    }

    #[test]
    fn end_of_a_shortened_text_is_whole() {
        let command = " Run: kubectl get nodes";
        for length in [0, 1, 176, 177, 178, 300] {
            let (text, whole) = (ended(&"ü".repeat(length), command), length <= NOTE_MAX - command.len());
            assert!(text.ends_with(command) && text.chars().count() <= NOTE_MAX, "{text}");
            assert_eq!(text.contains('…'), !whole, "{text}");
        }
        assert_eq!(ended("a", &"ü".repeat(300)).chars().count(), NOTE_MAX, "the end alone is too long");
    }

    #[test]
    fn the_gist_has_no_word_with_a_digit() {
        assert_eq!(gist("429, wait 3 s (request req-7f)"), gist("429, wait 15 s (request req-81)"));
        assert_ne!(gist("no quota for load balancers"), gist("no quota for floating IPs"));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let note = cut(&"ü".repeat(TEXT_MAX));
        assert!(note.len() <= TEXT_MAX && note.ends_with("ü…"), "{note}");
        assert_eq!(cut("short"), "short");
    }
}
