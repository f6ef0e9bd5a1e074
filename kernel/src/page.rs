//! Paged listings.

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Result;
use crate::limits::PAGE_ITEMS_MAX;

/// The part of an ordered listing to return.
///
/// Listings are ordered by key. An item that exists from the first page to the last is therefore returned
/// exactly once, even if other items are written in between. A limit of 0 returns nothing.
///
/// ```
/// use larder_kernel::{Key, PageRequest};
///
/// let first = PageRequest::<Key>::first(100);
/// assert_eq!(first.limit, 100);
/// assert!(first.after.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PageRequest<K> {
    /// The key after which the page begins; `None` begins at the start. The key itself need not exist.
    pub after: Option<K>,
    /// The maximum number of items to return: 0 to 10,000.
    pub limit: usize,
}

impl<K> PageRequest<K> {
    /// Requests the first page, of at most `limit` items.
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// Requests the page of at most `limit` items that follows `key`.
    #[must_use]
    pub fn after(key: K, limit: usize) -> Self {
        Self { after: Some(key), limit }
    }

    /// Checks the limit for `operation`.
    ///
    /// # Errors
    /// `InvalidInput` naming `limit` if it is over 10,000.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        check::at_most(operation, "limit", self.limit, PAGE_ITEMS_MAX)
    }

    /// Sets the key after which the page begins; `None` begins at the start.
    #[must_use]
    pub fn with_after(mut self, after: impl Into<Option<K>>) -> Self {
        self.after = after.into();
        self
    }

    /// Sets the maximum number of items to return.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl<K> Default for PageRequest<K> {
    fn default() -> Self {
        Self::first(PAGE_ITEMS_MAX)
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page<T, K> {
    /// The items, in the order of the listing.
    pub items: Vec<T>,
    /// The key to pass as [`PageRequest::after`] for the next page; `None` if no items followed at the time
    /// of the call.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// Creates a page of these items; `next` is the key after which the next page begins.
    #[must_use]
    pub fn new(items: Vec<T>, next: Option<K>) -> Self {
        Self { items, next }
    }

    /// Creates a page without items and without a next page.
    #[must_use]
    pub fn empty() -> Self {
        Self { items: Vec::new(), next: None }
    }

    /// Creates a page from up to `limit + 1` items. The surplus item shows that another page follows.
    ///
    /// With a limit of 0, the page is empty and has no next page.
    #[must_use]
    pub fn from_surplus(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> K) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(key) } else { None };
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surplus_item_decides_whether_a_page_follows() {
        let page = Page::from_surplus(vec![1, 2, 3], 2, |item| *item);
        assert_eq!((page.items, page.next), (vec![1, 2], Some(2)));
        let page = Page::from_surplus(vec![1, 2], 2, |item| *item);
        assert_eq!((page.items, page.next), (vec![1, 2], None));
        let page = Page::from_surplus(vec![1], 0, |item| *item);
        assert_eq!((page.items, page.next), (Vec::<i32>::new(), None));
    }
}
