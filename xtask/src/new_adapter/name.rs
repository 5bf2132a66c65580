//! The name of a cloud, in the three forms that a crate needs.

use std::fmt;

/// Maximum length, for readable file names and flags.
const MAX: usize = 30;

/// Lower-case words joined with dashes, such as `acme-cloud`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let right = "expected a name such as `acme` or `acme-cloud`";
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !text.split('-').all(is_word) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Err(format!(
                "has other characters than lower case letters, digits and single dashes: {right}"
            ));
        }
        if text.len() > MAX {
            return Err(format!("is longer than {MAX} letters: {right}"));
        }
        if let Some(rest) = text.strip_prefix("adapter-") {
            return Err(format!(
                "omit the prefix adapter-, which is added automatically: `{rest}` is enough"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The form of the name in folders, flags and provider IDs.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn package(&self) -> String {
        format!("adapter-{self}")
    }

    pub(super) fn rename(&self, text: &str) -> String {
        text.replace("adapter_skeleton", &self.package().replace('-', "_"))
            .replace("Skeleton", &self.camel())
            .replace("skeleton", &self.0)
    }

    /// The form of the name in type names: `AcmeCloud`.
    fn camel(&self) -> String {
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
        };
        self.0.split('-').map(capital).collect()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_lower_case_words_with_dashes() {
        for good in ["acme", "acme-cloud", "a1", "cloud9-eu"] {
            assert_eq!(Name::read(good).expect(good).as_str(), good);
        }
        let long = "a".repeat(MAX + 1);
        for (bad, named) in [
            ("", "acme"),
            ("Acme", "acme"),
            ("acme_cloud", "acme-cloud"),
            ("acme--cloud", "dashes"),
            ("-acme", "dashes"),
            ("acme-", "dashes"),
            ("9acme", "letters"),
            ("../acme", "letters"),
            ("acmé", "letters"),
            (&long, "30"),
            ("adapter-acme", "`acme` is enough"),
        ] {
            let said = Name::read(bad).expect_err(bad);
            assert!(said.contains(named), "{bad:?}: {said}");
        }
    }

    #[test]
    fn all_spellings_are_renamed() {
        let name = Name::read("acme-cloud").expect("a name");
        let text = "use adapter_skeleton::SkeletonDriver; // adapter-skeleton: skeleton://";
        let wanted = "use adapter_acme_cloud::AcmeCloudDriver; // adapter-acme-cloud: acme-cloud://";
        assert_eq!(name.rename(text), wanted);
    }
}
