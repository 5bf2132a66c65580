//! Stores pairs of strings in one allocation. Thousands of nodes are cached, and even an empty map would take half a kilobyte.

use std::fmt;

/// Ordered pairs, such as labels or addresses. Immutable once built.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// All strings, concatenated.
    text: Box<str>,
    /// The byte offset in `text` at which each string ends.
    ends: Box<[u32]>,
}

impl Pairs {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut begin = 0;
        let mut next = move |end: &u32| {
            let end = usize::try_from(*end).unwrap_or(usize::MAX);
            self.text.get(std::mem::replace(&mut begin, end)..end).unwrap_or_default()
        };
        self.ends.as_chunks().0.iter().map(move |[key, value]| (next(key), next(value)))
    }

    /// Returns the value of the first pair with this key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        // A message is never large enough to exceed `u32`.
        let end = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX);
        for (key, value) in pairs {
            text.push_str(key.as_ref());
            ends.push(end(&text));
            text.push_str(value.as_ref());
            ends.push(end(&text));
        }
        Self { text: text.into(), ends: ends.into() }
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_order() {
        let all = [("b", "1"), ("", "ü\0"), ("a", ""), ("b", "2")];
        let pairs: Pairs = all.into_iter().collect();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), all);
        assert_eq!((pairs.get("b"), pairs.get("a"), pairs.get("c")), (Some("1"), Some(""), None));
        assert!(!pairs.is_empty() && Pairs::default().is_empty());
        assert_eq!(format!("{:?}", [("k", "v")].into_iter().collect::<Pairs>()), r#"{"k": "v"}"#);
    }

    #[test]
    fn pairs_with_different_boundaries_differ() {
        let pairs = |key, value| Pairs::from_iter([(key, value)]);
        assert_ne!(pairs("ab", "c"), pairs("a", "bc"));
        assert_eq!(pairs("ab", "c"), pairs("ab", "c"));
    }
}
