//! A listing of a collection, page by page. If a listing is interrupted, another reader can continue it.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use crate::{
    driver::{Collection, Cursor, Fault, Item, Page, VendorError},
    vendor::Session,
};

/// Maximum number of pages. A listing with more pages is defective; for example, its cursors never end.
const PAGES_MAX: usize = 10_000;
/// Maximum number of restarts of a listing whose pages shift. After these restarts the listing fails.
const RESTARTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Listing<T> {
    /// The time at which the first page was requested.
    pub(super) began: Instant,
    /// The items by key. If an item was read twice, the item of the later page is kept.
    pub(super) items: BTreeMap<String, Arc<T>>,
    /// The number of pages, including the pages before restarts. This is the cost of the listing.
    pub(super) pages: usize,
    cursor: Option<Cursor>,
    total: Option<u64>,
    restarts: u32,
}

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

    /// Reads the remaining pages. If the future is dropped, the pages already read are kept. `share` returns the cached item for an item
    /// that equals it.
    ///
    /// Returns the errors of the pages, or [`Fault::Unavailable`] if pages shift at each attempt. A failed listing cannot be continued.
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
            next if next == self.cursor => {
                Err(VendorError::nonsense("the listing returned the same cursor twice"))
            }
            _ if self.pages >= PAGES_MAX => Err(VendorError::nonsense("the listing does not end")),
            next => {
                self.cursor = next;
                Ok(Read::More)
            }
        }
    }

    /// Detects shifted pages by comparing the number of different items with the total. If an item is added and another item is removed,
    /// the total is unchanged. But some item was read twice or not at all, so the number of items differs.
    fn end(&self) -> Read {
        let read = u64::try_from(self.items.len()).unwrap_or(u64::MAX);
        if self.total.is_none_or(|total| total == read) { Read::Complete } else { Read::Shifted }
    }
}
