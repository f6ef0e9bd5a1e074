//! Listing in pages.

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Result;
use crate::limits::PAGE_ITEMS_MAX;

/// Which part of an ordered listing to return.
///
/// Listings are ordered by key, so an item that is there from the first page to the last is returned exactly once,
/// whatever is written in between. A limit of 0 returns nothing.
///
/// ```
/// use larder_kernel::{Key, PageRequest};
///
/// let first = PageRequest::<Key>::first(100);
/// assert_eq!(first.limit, 100);
/// assert!(first.after.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRequest<K> {
    /// Return what comes after this key; `None` starts at the beginning. The key itself need not exist.
    pub after: Option<K>,
    /// Most items to return: 0 to 10,000.
    pub limit: usize,
}

impl<K> PageRequest<K> {
    /// The first page of at most `limit` items.
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The page of at most `limit` items that follows `key`.
    #[must_use]
    pub fn after(key: K, limit: usize) -> Self {
        Self { after: Some(key), limit }
    }

    /// Checks the limit for `operation`.
    ///
    /// # Errors
    /// `InvalidInput` naming `limit` where it is over 10,000.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        check::at_most(operation, "limit", self.limit, PAGE_ITEMS_MAX)
    }
}

impl<K> Default for PageRequest<K> {
    fn default() -> Self {
        Self::first(PAGE_ITEMS_MAX)
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T, K> {
    /// The items, in the listing's order.
    pub items: Vec<T>,
    /// Where the next page begins, given as [`PageRequest::after`]; `None` when nothing followed at the time.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// A page with nothing on it and nothing after it.
    #[must_use]
    pub fn empty() -> Self {
        Self { items: Vec::new(), next: None }
    }

    /// Builds a page from up to `limit + 1` items: the surplus one tells that another page follows.
    ///
    /// With a limit of 0 the page is empty and claims no successor.
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
