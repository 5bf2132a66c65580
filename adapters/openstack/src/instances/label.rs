//! Words of the cloud as Kubernetes labels.

/// Bytes of a label's value. Source: Kubernetes, "Labels and Selectors".
const LABEL_MAX: usize = 63;
/// What may stand inside a label's value beside letters and digits, and not at its ends.
const INSIDE: [char; 3] = ['-', '_', '.'];

/// The same word, as far as it may stand in a label: what may not becomes one dash. As the Go cloud controller manager does it, so
/// that labels stay as they are.
pub(super) fn label(word: &str) -> String {
    let mut label = String::with_capacity(word.len());
    let mut replaced = false;
    for one in word.chars() {
        let fits = one.is_ascii_alphanumeric() || INSIDE.contains(&one);
        if fits {
            label.push(one);
        } else if !replaced {
            label.push('-');
        }
        replaced = !fits;
    }
    let label: String = label.trim_matches(INSIDE).chars().take(LABEL_MAX).collect();
    label.trim_end_matches(INSIDE).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_becomes_a_legal_label() {
        let long = "a".repeat(62);
        for (word, wanted) in [
            ("m1.small", "m1.small"),
            ("GPU 1x (A100) / 40GB", "GPU-1x-A100-40GB"),
            ("_gold.", "gold"),
            ("größe", "gr-e"),
            ("", ""),
            ("***", ""),
            (&format!("{long}--b"), &long),
        ] {
            assert_eq!(label(word), wanted, "{word}");
        }
    }
}
