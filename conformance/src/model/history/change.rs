//! The operations that change a thread.

use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::storage::history::{append_digest, check_append, check_if_last, check_replace, check_ttl};
use larder_kernel::{
    AppendOptions, ChatMessage, Error, ErrorKind, Forked, HistoryProvider, Replaced, Replacement, RunId, Seq,
    Thread, Ttl,
};

use super::fence::{self, Fence};
use super::names::{At, thread as shown};
use super::operation::life;
use super::{Held, History, Kind, Message};
use crate::model::compare::{Checked, Expected, Mismatch, Refusal, same};
use crate::model::recorder::{Recorder, id, json, json_text, optional, typed_id, with};

/// The thread, the messages, how often they are repeated, the options, the last number of the condition, and
/// the token.
type Append<'a> = (&'a Thread, &'a [ChatMessage], usize, &'a AppendOptions, Option<At>, Fence);

impl History {
    pub(super) async fn append(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, once, times, options, if_last, fence): Append<'_>,
        recorder: &mut Recorder,
    ) -> Checked {
        let messages = vec![once.to_vec(); times].concat();
        let held = self.held(thread);
        let token = held.token(fence);
        let options = options.clone().with_if_last(if_last.map(|at| held.seq(at))).with_fence(token);
        let fenced_off = held.fenced_off("history.append_many", token);
        let lost = check_if_last("history.append_many", options.if_last, Seq::new(held.last)).err();
        let digest = append_digest(&messages).map_err(|error| Mismatch::trouble(&error))?;
        let known = options.idempotency_key.as_ref().and_then(|key| held.keys.get(key));
        let refused = check_append(&messages, &options).err().map(Refusal::from);
        let (clause, expected) = match (refused, known, lost) {
            (Some(refusal), ..) => ("STORE-010", Some(Err(refusal))),
            (None, Some((first, answer)), _) if *first == digest => ("HIST-007", Some(Ok(*answer))),
            (None, Some(_), _) => ("HIST-008", Some(Err(ErrorKind::Conflict.into()))),
            (None, None, _) if fenced_off.is_some() => ("HIST-128", fenced_off.map(Err)),
            (None, None, Some(lost)) => ("HIST-106", Some(Err(lost.into()))),
            (None, None, None) => ("HIST-002", None),
        };
        recorder.call(clause, |_| {
            let key = with("idempotency_key", options.idempotency_key.as_ref(), |key| {
                typed_id("IdempotencyKey", key)
            });
            let ttl = with("ttl", options.ttl, life);
            let if_last = with("if_last", options.if_last, |last| format!("Seq::new({last})"));
            let fence = fence::set(token);
            let options = format!("AppendOptions::default(){key}{ttl}{if_last}{fence}");
            let messages = match times {
                1 => json(&once),
                _ => format!("vec![of::<Vec<ChatMessage>>({}); {times}].concat()", json_text(&once)),
            };
            format!("append_many({}, {messages}, {options})", shown(thread))
        });
        let got = store.append_many(thread, messages.clone(), options.clone()).await;
        if let Some(expected) = expected {
            if expected.is_ok() {
                self.held_mut(thread).raise(token);
            }
            return same(recorder, clause, &got, &expected);
        }
        // A failed append must not leave a thread in the model.
        let answer = self.held_mut(thread).append(messages.into_iter().map(Arc::new));
        self.held_mut(thread).raise(token);
        same(recorder, clause, &got, &Ok(answer))?;
        if let Some(key) = &options.idempotency_key {
            self.held_mut(thread).keys.insert(key.clone(), (digest, answer));
        }
        Ok(())
    }

    pub(super) async fn clear(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, fence): (&Thread, Fence),
        recorder: &mut Recorder,
    ) -> Checked {
        let (held, token) = (self.held(thread), self.held(thread).token(fence));
        let removed = size(held.messages.len());
        let (clause, expected) = match held.fenced_off("history.clear", token) {
            Some(refusal) => ("HIST-130", Err(refusal)),
            None => ("HIST-034", Ok(removed)),
        };
        recorder.call(clause, |_| format!("clear({}, {})", shown(thread), fence::argument(token)));
        same(recorder, clause, &store.clear(thread, token).await, &expected)?;
        if expected.is_err() {
            return Ok(());
        }
        if let Some(held) = self.threads.get_mut(thread) {
            held.forget_popped();
            held.raise(token);
        }
        if removed > 0 {
            let held = self.held_mut(thread);
            held.messages.clear();
            held.events.clear();
            held.log(Kind::Cleared { removed });
        }
        Ok(())
    }

    pub(super) async fn clear_run(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, run, fence): (&Thread, &RunId, Fence),
        recorder: &mut Recorder,
    ) -> Checked {
        let token = self.held(thread).token(fence);
        let of_run = |held: &Message| held.message.run.as_ref() == Some(run);
        let removed = size(self.held(thread).messages.iter().filter(|held| of_run(held)).count());
        let (clause, expected) = match self.held(thread).fenced_off("history.clear_run", token) {
            Some(refusal) => ("HIST-130", Err(refusal)),
            None => ("HIST-038", Ok(removed)),
        };
        recorder.call(clause, |_| {
            format!("clear_run({}, {}, {})", shown(thread), id(run), fence::argument(token))
        });
        same(recorder, clause, &store.clear_run(thread, run, token).await, &expected)?;
        if expected.is_err() {
            return Ok(());
        }
        if let Some(held) = self.threads.get_mut(thread) {
            held.raise(token);
        }
        if removed > 0 {
            let held = self.held_mut(thread);
            held.messages.retain(|held| !of_run(held));
            held.log(Kind::RunCleared { run: run.clone(), removed });
        }
        Ok(())
    }

    pub(super) async fn fork(
        &mut self,
        store: &dyn HistoryProvider,
        (source, target, up_to, fence): (&Thread, &Thread, Option<At>, Fence),
        recorder: &mut Recorder,
    ) -> Checked {
        let from = self.held(source);
        let up_to = up_to.map(|at| from.seq(at));
        let copied: Vec<_> = from
            .messages
            .iter()
            .filter(|held| up_to.is_none_or(|up_to| held.seq <= up_to.get()))
            .map(|held| Arc::clone(&held.message))
            .collect();
        let taken = source == target || !self.held(target).messages.is_empty();
        let (clause, mut expected): (_, Expected<Forked>) = match (taken, copied.is_empty()) {
            (true, _) => ("HIST-041", Err(ErrorKind::AlreadyExists.into())),
            (false, true) => ("HIST-042", Err(ErrorKind::NotFound.into())),
            (false, false) => {
                let last = Seq::new(self.held(target).last + i64::try_from(copied.len()).unwrap_or(0));
                ("HIST-044", Ok(Forked::new(size(copied.len()), last)))
            }
        };
        let token = self.held(target).token(fence);
        let fenced_off = self.held(target).fenced_off("history.fork", token).filter(|_| source != target);
        let (clause, fenced) = (if fenced_off.is_some() { "HIST-130" } else { clause }, fenced_off.is_some());
        if let Some(refusal) = fenced_off {
            expected = Err(refusal);
        }
        recorder.call(clause, |_| {
            let up_to = optional(up_to, |seq| format!("Seq::new({seq})"));
            format!("fork({}, {}, {up_to}, {})", shown(source), shown(target), fence::argument(token))
        });
        let got = store.fork(source, target, up_to, token).await;
        let missing = got.as_ref().err().map(Error::kind) == Some(ErrorKind::NotFound);
        if !fenced && taken && copied.is_empty() && missing {
            // Both errors apply, and the contract does not define which is returned.
            expected = Err(ErrorKind::NotFound.into());
        }
        same(recorder, clause, &got, &expected)?;
        if expected.is_ok() {
            self.held_mut(target).append(copied);
            self.held_mut(target).raise(token);
        }
        Ok(())
    }

    pub(super) async fn replace(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, up_to, seen, messages, fence): (&Thread, At, At, &[ChatMessage], Fence),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let token = held.token(fence);
        let replacement = Replacement::new(held.seq(up_to), messages.to_vec()).with_seen(held.seq(seen));
        let replacement = replacement.with_fence(token);
        let (up_to, seen) = (replacement.up_to.get(), replacement.seen.get());
        let removed = size(held.messages.iter().filter(|held| held.seq <= up_to).count());
        let (clause, expected) = if let Err(refusal) = check_replace(&replacement) {
            ("STORE-010", Err(refusal.into()))
        } else if let Some(refusal) = held.fenced_off("history.replace", token) {
            ("HIST-130", Err(refusal))
        } else if seen > held.last {
            ("HIST-056", Err(ErrorKind::Conflict.into()))
        } else if held.cut > seen {
            ("HIST-051", Err(ErrorKind::Conflict.into()))
        } else {
            ("HIST-050", Ok(Replaced::new(removed, Seq::new(held.last + 1))))
        };
        recorder.call(clause, |_| {
            let replacement = format!(
                "Replacement::new(Seq::new({up_to}), {}).with_seen(Seq::new({seen})){}",
                json(&messages),
                fence::set(token)
            );
            format!("replace({}, {replacement})", shown(thread))
        });
        same(recorder, clause, &store.replace(thread, replacement).await, &expected)?;
        if expected.is_ok() {
            self.held_mut(thread).replace(up_to, removed, messages);
            self.held_mut(thread).raise(token);
        }
        Ok(())
    }

    pub(super) async fn set_ttl(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, ttl, fence): (&Thread, Option<Ttl>, Fence),
        recorder: &mut Recorder,
    ) -> Checked {
        let (held, token) = (self.held(thread), self.held(thread).token(fence));
        let (clause, expected) = if let Err(refusal) = check_ttl(ttl, token) {
            ("HIST-069", Err(refusal.into()))
        } else if let Some(refusal) = held.fenced_off("history.set_ttl", token) {
            ("HIST-130", Err(refusal))
        } else if held.messages.is_empty() {
            ("HIST-069", Err(ErrorKind::NotFound.into()))
        } else {
            ("HIST-069", Ok(()))
        };
        recorder.call(clause, |_| {
            format!("set_ttl({}, {}, {})", shown(thread), optional(ttl, life), fence::argument(token))
        });
        same(recorder, clause, &store.set_ttl(thread, ttl, token).await, &expected)?;
        if expected.is_ok() {
            self.held_mut(thread).raise(token);
        }
        Ok(())
    }

    pub(super) async fn erase(&mut self, store: &dyn HistoryProvider, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        same(recorder, "STORE-006", &store.erase().await, &Ok(()))?;
        self.threads.clear();
        Ok(())
    }
}

impl Held {
    /// Replaces everything up to `up_to` by messages.
    fn replace(&mut self, up_to: i64, removed: u64, messages: &[ChatMessage]) {
        let later = self.messages.iter().filter(|held| held.seq > up_to).cloned();
        let first = up_to + 1 - i64::try_from(messages.len()).unwrap_or(0);
        let revision = self.last + 1;
        let placed = (first..).zip(messages).map(|(seq, message)| Message {
            seq,
            revision,
            message: Arc::new(message.clone()),
            thread_bytes: None,
        });
        self.messages = placed.chain(later).collect();
        self.events.retain(|event| match event.kind {
            // The replacements that this one covers, and the events that it spans.
            Kind::Replaced { up_to: earlier, .. } => earlier > up_to,
            _ => event.seq > up_to,
        });
        for event in &mut self.events {
            if let Kind::Replaced { first, .. } = &mut event.kind {
                *first = (*first).max(up_to + 1);
            }
        }
        let thread_bytes = self.bytes();
        self.log(Kind::Replaced { first, up_to, removed, thread_bytes });
    }
}
