//! Where a listing goes on.

use std::{any::Any, fmt, sync::Arc};

/// Where the next page of a listing begins, and what earlier pages brought that only a later one can finish: where a vendor tells of an
/// object in several listings, they are read one after another and joined on the last page.
#[derive(Clone)]
pub struct Cursor {
    at: String,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Cursor {
    /// `at`: the vendor's own word, or whatever tells the driver which page is next. Two of one listing must differ.
    #[must_use]
    pub fn new(at: impl Into<String>) -> Self {
        Self { at: at.into(), kept: None }
    }

    /// The same with what earlier pages brought. The runtime keeps it as long as the listing is under way. A page may be asked for
    /// more than once, so it is lent, never given back.
    #[must_use]
    pub fn keeping<K: Send + Sync + 'static>(self, kept: K) -> Self {
        Self { kept: Some(Arc::new(kept)), ..self }
    }

    /// Where.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// What earlier pages brought. `None`: nothing of this kind.
    #[must_use]
    pub fn kept<K: 'static>(&self) -> Option<&K> {
        self.kept.as_deref()?.downcast_ref()
    }
}

/// It is about the place alone.
impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cursor").field(&self.at).finish()
    }
}

impl From<String> for Cursor {
    fn from(at: String) -> Self {
        Self::new(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_under_its_own_type_only() {
        let cursor = Cursor::new("ports:7").keeping(vec![1_u8, 2]);
        assert_eq!(cursor.kept::<Vec<u8>>(), Some(&vec![1, 2]));
        assert_eq!(cursor.kept::<String>(), None);
        assert_eq!(Cursor::new("ports:7").kept::<Vec<u8>>(), None);
    }
}
