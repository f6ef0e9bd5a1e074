//! A paged listing as one sequence.

use std::vec::IntoIter;

use futures_util::future::BoxFuture;
use larder_kernel::{Page, PageRequest, Result};

type Fetch<T, K> = Box<dyn Fn(PageRequest<K>) -> BoxFuture<'static, Result<Page<T, K>>> + Send>;

/// The items of a listing, with one page in memory at a time.
pub(super) struct Pages<T, K> {
    fetch: Fetch<T, K>,
    limit: usize,
    items: IntoIter<T>,
    after: Option<K>,
    ended: bool,
}

impl<T, K> Pages<T, K> {
    pub(super) fn new(
        limit: usize,
        fetch: impl Fn(PageRequest<K>) -> BoxFuture<'static, Result<Page<T, K>>> + Send + 'static,
    ) -> Self {
        Self { fetch: Box::new(fetch), limit, items: Vec::new().into_iter(), after: None, ended: false }
    }

    pub(super) async fn next(&mut self) -> Result<Option<T>> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            if self.ended {
                return Ok(None);
            }
            let fetching = (self.fetch)(PageRequest::first(self.limit).with_after(self.after.take()));
            let page = fetching.await?;
            self.items = page.items.into_iter();
            self.ended = page.next.is_none();
            self.after = page.next;
        }
    }
}
