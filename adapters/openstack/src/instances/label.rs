//! Converts names of the cloud to Kubernetes label values.

/// Maximum length of a label value in bytes. Source: Kubernetes, "Labels and Selectors".
const LABEL_MAX: usize = 63;
/// The characters other than letters and digits that are allowed inside a label value, but not at its ends.
const INSIDE: [char; 3] = ['-', '_', '.'];

/// Converts a word to a label value. Each sequence of invalid characters becomes one dash. The former cloud controller manager does the
/// same, so a migration does not change labels.
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
    fn every_word_becomes_a_valid_label_value() {
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
