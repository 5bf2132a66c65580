//! Makes control and bidirectional characters visible, because names of objects and contents of pages must not control the terminal.

use std::collections::BTreeSet;

/// Replaces each control or bidirectional character of the text by a visible character of the same width.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(|it| if is_hidden(it) { stand_in(it) } else { it }).collect()
}

/// Escapes control and bidirectional characters in JSON. Except for line ends, they only occur in strings.
pub(super) fn escaped(json: String) -> String {
    let hidden: BTreeSet<char> = json.chars().filter(|it| is_hidden(*it) && *it != '\n').collect();
    hidden.into_iter().fold(json, |text, it| text.replace(it, &format!("\\u{:04x}", u32::from(it))))
}

/// Whether this is a control character, a line end, or a character that changes the direction of text. Source: Unicode, UAX #9.
fn is_hidden(it: char) -> bool {
    let turns =
        matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    it.is_control() || turns || matches!(it, '\u{2028}' | '\u{2029}')
}

/// Returns Unicode's picture of the character, or the replacement character.
fn stand_in(it: char) -> char {
    match u32::from(it) {
        low @ 0..=0x1f => char::from_u32(0x2400 + low),
        0x7f => Some('\u{2421}'),
        _ => None,
    }
    .unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_made_visible() {
        let text = "größer \u{1b}[2J\r\n\t\u{7f}\u{9b}\u{202e}\u{2067}\u{2028}";
        assert_eq!(visible(text), "größer ␛[2J␍␊␉␡����");
        assert_eq!(visible(text).chars().count(), text.chars().count());
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let text = "a\u{7f}\u{9b}2J\u{202e}";
        let json = escaped(serde_json::to_string_pretty(&[text]).expect("written"));
        assert_eq!(json, "[\n  \"a\\u007f\\u009b2J\\u202e\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).expect("read"), [text]);
    }
}
