//! One listing of a collection, page by page. It can be interrupted, and continued by another reader.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use crate::{
    driver::{Collection, Cursor, Fault, Item, Page, VendorError},
    vendor::Session,
};

/// Maximum number of pages: more are due to a defect, such as a cursor that never ends.
const PAGES_MAX: usize = 10_000;
/// Number of restarts of a listing whose pages shift, before it fails.
const RESTARTS_MAX: u32 = 3;

/// The progress of a listing.
#[derive(Debug)]
pub(super) struct Listing<T> {
    /// When its first page was requested.
    pub(super) began: Instant,
    /// Duplicates are removed: the later page wins.
    pub(super) items: BTreeMap<String, Arc<T>>,
    /// Number of pages, restarts included: the cost of the listing.
    pub(super) pages: usize,
    cursor: Option<Cursor>,
    total: Option<u64>,
    restarts: u32,
}

/// The result of a page.
enum Read {
    More,
    Complete,
    /// Items moved between pages during the listing.
    Shifted,
}

impl<T: Item> Listing<T> {
    pub(super) fn begin() -> Self {
        let (items, began) = (BTreeMap::new(), Instant::now());
        Self { began, items, pages: 0, cursor: None, total: None, restarts: 0 }
    }

    /// Reads the remaining pages. Dropping the future keeps the pages read. `share` reuses equal cached items.
    ///
    /// # Errors
    /// The errors of the pages, and [`Fault::Unavailable`] if pages shift at each try. A failed listing cannot be continued.
    pub(super) async fn complete(
        &mut self,
        source: &impl Collection<T>,
        session: &Session,
        page_size: Option<u32>,
        share: &(impl Fn(T) -> Arc<T> + Sync),
    ) -> Result<(), VendorError> {
        loop {
            let page = source.list_page(session, self.cursor.as_ref(), page_size).await?;
            match self.read(page, share)? {
                Read::More => (),
                Read::Complete => return Ok(()),
                Read::Shifted if self.restarts < RESTARTS_MAX => {
                    *self = Self { pages: self.pages, restarts: self.restarts + 1, ..Self::begin() };
                }
                Read::Shifted => {
                    let text = format!("the {} change faster than they can be listed", T::COLLECTION);
                    return Err(VendorError::new(Fault::Unavailable, text));
                }
            }
        }
    }

    fn read(&mut self, page: Page<T>, share: impl Fn(T) -> Arc<T>) -> Result<Read, VendorError> {
        let first = self.cursor.is_none();
        self.pages += 1;
        self.items.extend(page.items.into_iter().map(|item| (item.key().to_owned(), share(item))));
        if !first && page.total != self.total {
            return Ok(Read::Shifted);
        }
        self.total = page.total;
        match page.next {
            None => Ok(self.end()),
            next if next == self.cursor => Err(VendorError::nonsense("the listing repeats its cursor")),
            _ if self.pages >= PAGES_MAX => Err(VendorError::nonsense("the listing does not end")),
            next => {
                self.cursor = next;
                Ok(Read::More)
            }
        }
    }

    /// Compares counts, because an added and a removed item leave the total unchanged, while an item was read twice or not at all.
    fn end(&self) -> Read {
        let read = u64::try_from(self.items.len()).unwrap_or(u64::MAX);
        if self.total.is_none_or(|total| total == read) { Read::Complete } else { Read::Shifted }
    }
}
