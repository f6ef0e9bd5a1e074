//! Numbers that are assigned before the commit, like a serial column's: a reader sees the later number first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_kernel::{AppendOptions, Appended, ChatMessage, HistoryProvider, Namespace, Result, Seq, Thread};

use super::super::serve::lock;
use super::Wrong;

/// The time that a transaction stays open after it took its numbers.
const OPEN: Duration = Duration::from_millis(5);

type Place = (Namespace, String, String);

/// The messages of transactions that are still open.
#[derive(Default)]
pub(super) struct Late {
    hidden: Mutex<BTreeMap<Place, BTreeSet<Seq>>>,
    begun: AtomicU64,
}

impl Late {
    /// Returns the numbers of a thread that are not yet visible.
    pub(super) fn hidden(&self, place: &Place) -> BTreeSet<Seq> {
        lock(&self.hidden).get(place).cloned().unwrap_or_default()
    }

    fn hide(&self, place: &Place, numbers: Appended) {
        let numbers = (numbers.first.get()..=numbers.last.get()).map(Seq::new);
        lock(&self.hidden).entry(place.clone()).or_default().extend(numbers);
    }

    fn show(&self, place: &Place, numbers: Appended) {
        if let Some(hidden) = lock(&self.hidden).get_mut(place) {
            hidden.retain(|seq| *seq < numbers.first || *seq > numbers.last);
        }
    }
}

impl Wrong {
    /// Delays the commit of every second append: it takes its numbers and becomes visible a moment later.
    pub(super) async fn append_late(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        let answer = self.inner.append_many(thread, messages, options).await?;
        if self.memory.late.begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let place = self.place_of(thread);
            self.memory.late.hide(&place, answer);
            tokio::time::sleep(OPEN).await;
            self.memory.late.show(&place, answer);
        }
        Ok(answer)
    }
}
