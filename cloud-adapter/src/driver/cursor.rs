//! The position at which a listing continues.

use std::{any::Any, fmt, sync::Arc};

/// The position of the next page of a listing, and data of earlier pages that a later page completes. If a vendor splits an object over
/// several listings, the driver reads the listings in sequence and joins the data on the last page.
#[derive(Clone)]
pub struct Cursor {
    at: String,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Cursor {
    /// Creates a cursor. `at` is the vendor's page token, or any text by which the driver finds the next page. Two cursors of one listing
    /// must differ.
    #[must_use]
    pub fn new(at: impl Into<String>) -> Self {
        Self { at: at.into(), kept: None }
    }

    /// Adds data of earlier pages. The runtime keeps the data until the listing ends. The data can only be borrowed, because a page may be
    /// requested more than once.
    #[must_use]
    pub fn keeping<K: Send + Sync + 'static>(self, kept: K) -> Self {
        Self { kept: Some(Arc::new(kept)), ..self }
    }

    /// Returns the position of the next page.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// Returns the data of earlier pages. `None`: there is no data of this type.
    #[must_use]
    pub fn kept<K: 'static>(&self) -> Option<&K> {
        self.kept.as_deref()?.downcast_ref()
    }
}

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
    fn cursor_data_is_found_by_its_type_only() {
        let cursor = Cursor::new("ports:7").keeping(vec![1_u8, 2]);
        assert_eq!(cursor.kept::<Vec<u8>>(), Some(&vec![1, 2]));
        assert_eq!(cursor.kept::<String>(), None);
        assert_eq!(Cursor::new("ports:7").kept::<Vec<u8>>(), None);
    }
}
