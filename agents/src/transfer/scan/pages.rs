//! A paged listing as one sequence.

use std::vec::IntoIter;

use futures_util::future::BoxFuture;
use larder_kernel::{Contract, Page, PageRequest, Result};

use crate::transfer::missing::Skips;

type Fetch<T, K> = Box<dyn Fn(PageRequest<K>) -> BoxFuture<'static, Result<Page<T, K>>> + Send>;
/// A function of a position.
type After<K, R> = Box<dyn Fn(Option<&K>) -> R + Send>;

/// The items of a listing, with one page in memory at a time.
pub(super) struct Pages<T, K> {
    fetch: Fetch<T, K>,
    limit: usize,
    items: IntoIter<T>,
    after: Option<K>,
    ended: bool,
    damage: Option<Damage<K>>,
}

/// The treatment of a page that cannot be read because an item of it is damaged.
struct Damage<K> {
    skips: Skips,
    contract: Contract,
    /// Returns the name of the item after a position.
    place: After<K, String>,
    /// Returns the next position after a position; `None` at the end. Without it, a damaged item ends the
    /// listing.
    step: Option<After<K, Option<K>>>,
    /// The number of pages to read with one item each, to find the damaged item.
    single_pages: usize,
    /// True if the item before was damaged too; both are listed as one.
    skipping: bool,
}

impl<T, K: Clone> Pages<T, K> {
    pub(super) fn new(
        limit: usize,
        fetch: impl Fn(PageRequest<K>) -> BoxFuture<'static, Result<Page<T, K>>> + Send + 'static,
    ) -> Self {
        let items = Vec::new().into_iter();
        Self { fetch: Box::new(fetch), limit, items, after: None, ended: false, damage: None }
    }

    /// Sets the treatment of damaged items. `place` names the item after a position.
    pub(super) fn skipping(
        mut self,
        skips: &Skips,
        contract: Contract,
        place: impl Fn(Option<&K>) -> String + Send + 'static,
    ) -> Self {
        let (skips, place) = (skips.clone(), Box::new(place));
        self.damage = Some(Damage { skips, contract, place, step: None, single_pages: 0, skipping: false });
        self
    }

    /// Continues after a damaged item at the position that `step` returns.
    pub(super) fn stepping(mut self, step: impl Fn(Option<&K>) -> Option<K> + Send + 'static) -> Self {
        if let Some(damage) = &mut self.damage {
            damage.step = Some(Box::new(step));
        }
        self
    }

    pub(super) async fn next(&mut self) -> Result<Option<T>> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            if self.ended {
                return Ok(None);
            }
            let after = self.after.take();
            let single = self.damage.as_ref().is_some_and(|damage| damage.single_pages > 0);
            let limit = if single { 1 } else { self.limit };
            match (self.fetch)(PageRequest::first(limit).with_after(after.clone())).await {
                Ok(page) => {
                    if let Some(damage) = &mut self.damage {
                        damage.single_pages = damage.single_pages.saturating_sub(1);
                        damage.skipping = false;
                    }
                    self.items = page.items.into_iter();
                    self.ended = page.next.is_none();
                    self.after = page.next;
                }
                Err(error) => match &mut self.damage {
                    Some(damage) if damage.skips.covers(&error) && limit > 1 => {
                        damage.single_pages = self.limit;
                        self.after = after;
                    }
                    Some(damage) => {
                        self.after = damage.pass(after.as_ref(), error)?;
                        self.ended = self.after.is_none();
                    }
                    None => return Err(error),
                },
            }
        }
    }
}

impl<K> Damage<K> {
    /// Lists the damaged item after a position, and returns the position to continue at.
    fn pass(&mut self, after: Option<&K>, error: larder_kernel::Error) -> Result<Option<K>> {
        if !self.skipping {
            self.skips.skip(self.contract, || (self.place)(after), error)?;
            self.skipping = true;
        }
        Ok(self.step.as_ref().and_then(|step| step(after)))
    }
}
