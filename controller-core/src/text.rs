//! Shortens texts for users, and compares them.

/// The API server's limit for notes.
const NOTE_MAX: usize = 1024;

/// Returns the gist of a text: the text without words that contain a digit, since delays, counts, addresses and request IDs differ between
/// attempts. Two texts with the same reason but different gists describe two problems.
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

/// Shortens a note to [`NOTE_MAX`] bytes, at a character boundary.
pub(crate) fn cut(note: &str) -> String {
    if note.len() <= NOTE_MAX {
        return note.to_owned();
    }
    let end = (0..=NOTE_MAX - '…'.len_utf8()).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
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
    fn the_gist_has_no_word_with_a_digit() {
        assert_eq!(gist("429, wait 3 s (request req-7f)"), gist("429, wait 15 s (request req-81)"));
        assert_ne!(gist("no quota for load balancers"), gist("no quota for floating IPs"));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let note = cut(&"ü".repeat(NOTE_MAX));
        assert!(note.len() <= NOTE_MAX && note.ends_with("ü…"), "{note}");
        assert_eq!(cut("short"), "short");
    }
}
