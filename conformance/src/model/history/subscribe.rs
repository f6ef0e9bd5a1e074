//! Subscription: the surviving events of a thread after a `Seq`.

use larder_kernel::{HistoryEvent, HistoryEventKind, HistoryProvider, Seq, StoredMessage, Thread};

use super::names::{At, thread as shown};
use super::{Event, Held, History, Kind, Message};
use crate::model::compare::{Checked, answered, holds};
use crate::model::recorder::Recorder;
use crate::model::shared::{Streamed, backlog};

const SURVIVES: &str = "HIST-085";
const LOST: &str = "HIST-104";

impl History {
    pub(super) async fn subscribe(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, after): (&Thread, At),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let after = held.seq(after);
        let mut expected = held.backlog(after);
        let lost = after.check_resume("history.subscribe", "after", Seq::new(held.last));
        let lost = lost.map_err(Into::into);
        let call = format!("§a.subscribe({}, Seq::new({after})).await", shown(thread));
        let clause = if lost.is_ok() { SURVIVES } else { LOST };
        match lost {
            Ok(()) => recorder.stream(clause, expected.len(), |_| format!("{call}.unwrap()")),
            Err(_) => recorder.statement(clause, |_| format!("let {{s}} = {call}.map(drop);")),
        }
        let got = store.subscribe(thread, after).await.map(Streamed);
        let Some(Streamed(events)) = answered(recorder, clause, got, &lost)? else { return Ok(()) };
        let told = backlog(events, expected.len(), SURVIVES, recorder).await?;
        for (expected, told) in expected.iter_mut().zip(&told) {
            forget_size(held, expected, told);
        }
        let assertion = || {
            let json = serde_json::to_string(&expected).unwrap_or_default();
            format!("assert_eq!({}, of::<Vec<HistoryEvent>>({json:?}));", recorder.answer())
        };
        holds(SURVIVES, told == expected, || format!("{expected:?}"), &told, assertion)
    }
}

/// Ignores the size in the event of a message that a replacement wrote; the contract does not define it.
fn forget_size(held: &Held, expected: &mut HistoryEvent, told: &HistoryEvent) {
    let placed = held
        .messages
        .iter()
        .any(|message| Seq::new(message.seq) == expected.seq && message.thread_bytes.is_none());
    if let (
        HistoryEventKind::Appended { thread_bytes, .. },
        HistoryEventKind::Appended { thread_bytes: told, .. },
    ) = (&mut expected.kind, &told.kind)
        && placed
    {
        *thread_bytes = *told;
    }
}

impl Held {
    /// Returns the events that a subscriber from `after` receives, in order.
    fn backlog(&self, after: Seq) -> Vec<HistoryEvent> {
        let messages = self.messages.iter().map(Message::event);
        let events = self.events.iter().filter_map(|event| self.shown(event));
        let mut all: Vec<HistoryEvent> = messages.chain(events).filter(|event| event.seq > after).collect();
        all.sort_by_key(|event| event.seq);
        all
    }

    /// Returns an event; `None` for an update that is no longer the message's last.
    fn shown(&self, event: &Event) -> Option<HistoryEvent> {
        let kind = match &event.kind {
            Kind::RunCleared { run, removed } => {
                HistoryEventKind::RunCleared { run: run.clone(), removed: *removed }
            }
            Kind::Cleared { removed } => HistoryEventKind::Cleared { removed: *removed },
            Kind::Removed { seqs } => {
                HistoryEventKind::Removed { seqs: seqs.iter().copied().map(Seq::new).collect() }
            }
            Kind::Rewound { after, removed } => {
                HistoryEventKind::Rewound { after: Seq::new(*after), removed: *removed }
            }
            Kind::Updated { of, thread_bytes } => {
                let is_last = |held: &&Message| held.seq == *of && held.revision == event.seq;
                let updated = self.messages.iter().find(is_last)?;
                HistoryEventKind::Updated {
                    of: Seq::new(*of),
                    message: std::sync::Arc::clone(&updated.message),
                    thread_bytes: *thread_bytes,
                }
            }
            Kind::Replaced { first, up_to, removed, thread_bytes } => {
                let left = self.messages.iter().filter(|held| (*first..=*up_to).contains(&held.seq));
                let messages: Vec<StoredMessage> = left.map(Message::stored).collect();
                HistoryEventKind::Replaced {
                    up_to: Seq::new(*up_to),
                    removed: *removed,
                    messages,
                    thread_bytes: *thread_bytes,
                }
            }
        };
        Some(HistoryEvent::new(Seq::new(event.seq), kind))
    }
}

impl Message {
    fn event(&self) -> HistoryEvent {
        let kind = HistoryEventKind::Appended {
            message: std::sync::Arc::clone(&self.message),
            thread_bytes: self.thread_bytes.unwrap_or(0),
        };
        HistoryEvent::new(Seq::new(self.seq), kind)
    }
}
