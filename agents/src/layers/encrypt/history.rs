//! Conversations with encrypted messages.
//!
//! A thread's size is the sum of its messages' sizes, as counted by the inner store, so an encrypted message
//! must have the size of the plain one. The author of a message does not count toward the size. The
//! ciphertext therefore starts in the author's two ids, 384 bytes in each. The rest is in the text, which is
//! padded with blanks.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::limits::ID_BYTES_MAX;
use larder_kernel::storage::history::{
    check_append, check_remove, check_replace, check_tail_matching, check_update,
};
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, Appended, Author, Capabilities, ChatMessage, ErrorKind, FencingToken,
    Forked, HistoryEvent, HistoryEventKind, HistoryEvents, HistoryProvider, IdempotencyKey, MessageFilter,
    MessageUpdate, Namespace, Outcome, Page, PageRequest, Removal, RemovalTarget, Removed, Replaced,
    Replacement, Result, Role, RunId, Seq, Store, StoredMessage, Thread, ThreadInfo, Timestamp, Ttl, Updated,
};

use super::ring::{KeyRing, Nonce, Place, corrupt};
use super::text::{base64, bytes_in, from_base64, pack, packed_in, read, unpack, written};
use super::{Sealed, shared};
use crate::internal::offload;

shared!(
    HistoryProvider,
    [
        AppendIdempotencyKey,
        AppendTtl,
        AppendIfLast,
        RemoveIfLast,
        RemoveIdempotencyKey,
        UpdateIfLast,
        UpdateIdempotencyKey,
        Fence,
        MessagesOfAgents,
        MessagesOfRoles
    ]
);

/// The size of the ciphertext's length, in bytes.
const LENGTH_BYTES: usize = 4;
/// The first character of a text in base64, and of one with 7 bits per character.
const BASE64: char = 'b';
const PACKED: char = 'p';
/// The number of messages to examine in the first step and in later ones, if this layer evaluates a filter.
/// Decryption costs more than reading, and the newest messages often match.
const STEP_MIN: usize = 16;
const STEP_MAX: usize = 256;
/// The cost of a message, and of compressing one byte of it, in the steps of [`offload`].
const STEPS: usize = 4 * 1024;
const STEPS_A_BYTE: usize = 16;

fn place(namespace: &Namespace, run: Option<&RunId>) -> Place {
    let place = Place::new("history", namespace.as_str());
    run.map_or(place.clone(), |run| place.at(run.as_str()))
}

/// Encrypts a message into one of the same size, with the key of the given index.
fn sealed(
    ring: &KeyRing,
    operation: &'static str,
    number: usize,
    namespace: &Namespace,
    mut message: ChatMessage,
    nonce: Nonce<'_>,
) -> Result<ChatMessage> {
    let (measure, run, created_at) = (message.size_bytes(), message.run.take(), message.created_at);
    // A retry may set a new time of writing, which stays unencrypted.
    message.created_at = Timestamp::default();
    let place = place(namespace, run.as_ref());
    let plain = written(operation, &message)?;
    let author_room = 2 * bytes_in(ID_BYTES_MAX);
    let room = author_room + packed_in(measure.saturating_sub(1)) - LENGTH_BYTES;
    let body = ring.seal(operation, number, &place, &plain, nonce, room)?;
    let length = u32::try_from(body.len()).map_err(|_| corrupt(operation))?;
    let whole = [&length.to_be_bytes()[..], &body].concat();

    let (first, rest) = whole.split_at(whole.len().min(bytes_in(ID_BYTES_MAX)));
    let (second, rest) = rest.split_at(rest.len().min(bytes_in(ID_BYTES_MAX)));
    let mut text = String::with_capacity(measure);
    if !rest.is_empty() {
        let fits = rest.len() <= bytes_in(measure.saturating_sub(1));
        text.push(if fits { BASE64 } else { PACKED });
        text.push_str(&if fits { base64(rest) } else { pack(rest) });
    }
    text.extend(std::iter::repeat_n(' ', measure.saturating_sub(text.len())));
    let role = if second.is_empty() { None } else { Some(AgentRole::new(base64(second))?) };
    let mut sealed = ChatMessage::new(Role::User, text).with_created_at(created_at);
    sealed.author = Some(Author::new(AgentId::new(base64(first))?).with_role(role));
    sealed.run = run;
    Ok(sealed)
}

/// Decrypts such a message.
fn opened(
    ring: &KeyRing,
    operation: &'static str,
    namespace: &Namespace,
    sealed: &ChatMessage,
) -> Result<ChatMessage> {
    let author = sealed.author.as_ref().ok_or_else(|| corrupt(operation))?;
    let mut whole = from_base64(author.agent.as_str()).ok_or_else(|| corrupt(operation))?;
    if let Some(role) = &author.role {
        whole.extend(from_base64(role.as_str()).ok_or_else(|| corrupt(operation))?);
    }
    let (length, mut body) = match whole.split_first_chunk::<LENGTH_BYTES>() {
        Some((length, body)) => (u32::from_be_bytes(*length), body.to_vec()),
        None => return Err(corrupt(operation)),
    };
    let length = usize::try_from(length).map_err(|_| corrupt(operation))?;
    if length > body.len() {
        let missing = length - body.len();
        let rest = if let Some(text) = sealed.text.strip_prefix(BASE64) {
            from_base64(text.trim_end_matches(' '))
        } else {
            // A packed blank and a padding blank look alike; the length distinguishes them.
            let packed = (missing * 8).div_ceil(7);
            sealed.text.strip_prefix(PACKED).and_then(|text| text.get(..packed)).and_then(unpack)
        };
        body.extend(rest.ok_or_else(|| corrupt(operation))?);
    }
    body.truncate(length);
    let plain = ring.open(operation, &place(namespace, sealed.run.as_ref()), &body)?;
    let mut message: ChatMessage = read(operation, &plain)?;
    message.run.clone_from(&sealed.run);
    message.created_at = sealed.created_at;
    Ok(message)
}

/// Encrypts messages in order. Messages of an append with an idempotency key are encrypted the same way each
/// time.
fn sealed_all(
    ring: &KeyRing,
    operation: &'static str,
    number: usize,
    namespace: &Namespace,
    messages: Vec<ChatMessage>,
    once: Option<&IdempotencyKey>,
) -> Result<Vec<ChatMessage>> {
    let seal = |(index, message)| match once {
        None => sealed(ring, operation, number, namespace, message, Nonce::Random),
        Some(key) => {
            let context = format!("{index} {key}");
            sealed(ring, operation, number, namespace, message, Nonce::Derived(context.as_bytes()))
        }
    };
    messages.into_iter().enumerate().map(seal).collect()
}

fn opened_stored(
    ring: &KeyRing,
    operation: &'static str,
    namespace: &Namespace,
    stored: &StoredMessage,
) -> Result<StoredMessage> {
    let message = opened(ring, operation, namespace, &stored.message)?;
    Ok(StoredMessage::new(stored.seq, Arc::new(message)).with_revision(stored.revision))
}

impl Sealed<dyn HistoryProvider> {
    async fn open(&self, operation: &'static str, stored: Vec<StoredMessage>) -> Result<Vec<StoredMessage>> {
        let (ring, namespace) = (self.ring.clone(), self.namespace().clone());
        let steps = stored.iter().map(|stored| STEPS + stored.message.size_bytes()).sum();
        let open =
            move || stored.iter().map(|stored| opened_stored(&ring, operation, &namespace, stored)).collect();
        offload::run(operation, steps, open).await
    }

    async fn seal(
        &self,
        operation: &'static str,
        number: usize,
        messages: Vec<ChatMessage>,
        once: Option<&IdempotencyKey>,
    ) -> Result<Vec<ChatMessage>> {
        let (ring, namespace, once) = (self.ring.clone(), self.namespace().clone(), once.cloned());
        let steps = messages.iter().map(|message| STEPS + STEPS_A_BYTE * message.size_bytes()).sum();
        let seal = move || sealed_all(&ring, operation, number, &namespace, messages, once.as_ref());
        offload::run(operation, steps, seal).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl HistoryProvider for Sealed<dyn HistoryProvider> {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        const OPERATION: &str = "history.append_many";
        check_append(&messages, &options)?;
        let once = options.idempotency_key.as_ref();
        // The first attempt may have used an older key, before a rotation. A conflict writes nothing.
        let older = if once.is_some() { 1..self.ring.len() } else { 0..0 };
        let kept = (!older.is_empty()).then(|| messages.clone());
        let sealed = self.seal(OPERATION, 0, messages, once).await?;
        let mut answer = self.inner.append_many(thread, sealed, options.clone()).await;
        for number in older {
            let conflict = answer.as_ref().err().filter(|error| error.kind() == ErrorKind::Conflict);
            // An append that lost against `if_last` or the fence loses with every key.
            let other_key = conflict.is_some_and(|error| !matches!(error.field(), Some("if_last" | "fence")));
            let Some(messages) = kept.clone().filter(|_| other_key) else { break };
            let sealed = self.seal(OPERATION, number, messages, once).await?;
            answer = self.inner.append_many(thread, sealed, options.clone()).await;
        }
        answer
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        self.open("history.get_messages", self.inner.get_messages(thread, offset, limit).await?).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        self.open("history.tail", self.inner.tail(thread, before, limit).await?).await
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        mut before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        const OPERATION: &str = "history.tail_matching";
        check_tail_matching(filter, limit)?;
        let mut kept = Vec::new();
        let mut step = if limit == 0 { 0 } else { limit.clamp(STEP_MIN, STEP_MAX) };
        loop {
            let page =
                self.inner.tail(thread, before, step).await.map_err(|error| error.in_operation(OPERATION))?;
            let full = step > 0 && page.len() == step;
            before = page.first().map(|stored| stored.seq);
            for stored in self.open(OPERATION, page).await?.into_iter().rev() {
                if kept.len() < limit && filter.keeps(thread, &stored.message) {
                    kept.push(stored);
                }
            }
            if !full || kept.len() >= limit {
                kept.reverse();
                return Ok(kept);
            }
            step = (2 * step).min(STEP_MAX);
        }
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        self.open("history.page_after", self.inner.page_after(thread, after, limit).await?).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        self.inner.thread_info(thread).await
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        self.inner.clear(thread, fence).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        self.inner.clear_run(thread, run, fence).await
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        const OPERATION: &str = "history.remove";
        check_remove(&removal)?;
        if let RemovalTarget::Newest(newest) = removal.target {
            // A pop of a message that no key opens would lose it, so the messages are opened first.
            let newest = self.inner.tail(thread, None, newest).await;
            self.open(OPERATION, newest.map_err(|error| error.in_operation(OPERATION))?).await?;
        }
        let mut removed = self.inner.remove(thread, removal).await?;
        let messages = self.open(OPERATION, removed.messages).await;
        removed.messages = messages.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        Ok(removed)
    }

    async fn update(&self, thread: &Thread, mut update: MessageUpdate) -> Result<Updated> {
        const OPERATION: &str = "history.update";
        check_update(&update)?;
        let (once, plain) = (update.idempotency_key.clone(), vec![update.message.clone()]);
        // The first attempt may have used an older key, before a rotation. A conflict writes nothing.
        let mut numbers = 0..if once.is_some() { self.ring.len() } else { 1 };
        loop {
            let number = numbers.next().unwrap_or(0);
            let sealed = self.seal(OPERATION, number, plain.clone(), once.as_ref()).await?;
            update.message = sealed.into_iter().next().ok_or_else(|| corrupt(OPERATION))?;
            let answer = self.inner.update(thread, update.clone()).await;
            // Only the conflict of an idempotency key names no field.
            let other_key =
                |error: &larder_kernel::Error| error.kind() == ErrorKind::Conflict && error.field().is_none();
            if numbers.is_empty() || !answer.as_ref().is_err_and(other_key) {
                return answer;
            }
        }
    }

    async fn fork(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        self.inner.fork(source, target, up_to, fence).await
    }

    async fn replace(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
        check_replace(&replacement)?;
        replacement.messages = self.seal("history.replace", 0, replacement.messages, None).await?;
        self.inner.replace(thread, replacement).await
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        self.inner.list_threads(agent, page).await
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        self.inner.set_ttl(thread, ttl, fence).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        const OPERATION: &str = "history.subscribe";
        let events = self.inner.subscribe(thread, after).await?;
        let (ring, namespace) = (self.ring.clone(), self.namespace().clone());
        let open = move |event: HistoryEvent| {
            let kind = match event.kind {
                HistoryEventKind::Appended { message, thread_bytes } => {
                    let message = Arc::new(opened(&ring, OPERATION, &namespace, &message)?);
                    HistoryEventKind::Appended { message, thread_bytes }
                }
                HistoryEventKind::Updated { of, message, thread_bytes } => {
                    let message = Arc::new(opened(&ring, OPERATION, &namespace, &message)?);
                    HistoryEventKind::Updated { of, message, thread_bytes }
                }
                HistoryEventKind::Replaced { up_to, removed, messages, thread_bytes } => {
                    let open = |stored| opened_stored(&ring, OPERATION, &namespace, stored);
                    let messages = messages.iter().map(open).collect::<Result<_>>()?;
                    HistoryEventKind::Replaced { up_to, removed, messages, thread_bytes }
                }
                other => other,
            };
            Ok(HistoryEvent::new(event.seq, kind))
        };
        Ok(events.and_then(move |event| std::future::ready(open(event))).boxed())
    }
}
