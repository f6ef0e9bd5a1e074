//! Conversion of messages to and from the server's form.

use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{AgentRole, ChatMessage, Result, Revision, Seq, StoredMessage};
use redis::Value;

use super::super::decode;
use super::super::failure::corrupt;
use super::super::script::Call;
use crate::verify::message::Columns;

const OPERATION: &str = "history.read";
/// The first byte of a body that begins with its author. JSON never begins with it.
const AUTHOR: u8 = 1;

/// Messages in the form that scripts take: size, run and body of each.
pub(super) struct Batch(Vec<(usize, Bytes, Bytes)>);

impl Batch {
    pub(super) fn new(operation: &'static str, messages: &[ChatMessage]) -> Result<Self> {
        let encoded = messages.iter().map(|message| {
            let run = message
                .run
                .as_ref()
                .map_or_else(Bytes::new, |run| Bytes::copy_from_slice(run.as_str().as_bytes()));
            Ok((message.size_bytes(), run, encode(operation, message)?))
        });
        encoded.collect::<Result<_>>().map(Self)
    }

    /// Returns the size and body of the only message, if it belongs to no run.
    pub(super) fn without_run(&self) -> Option<(usize, &Bytes)> {
        match self.0.as_slice() {
            [(size, run, body)] if run.is_empty() => Some((*size, body)),
            _ => None,
        }
    }

    /// Adds the messages to the arguments.
    pub(super) fn into_call(self, call: Call) -> Call {
        self.0.into_iter().fold(call, |call, (size, run, body)| call.number(size).bytes(run).bytes(body))
    }
}

/// Returns the message's body, preceded by its author and the author's role, which are empty if the message
/// names none. By these the server filters messages without parsing JSON. Neither contains NUL.
fn encode(operation: &'static str, message: &ChatMessage) -> Result<Bytes> {
    let author = message.author.as_ref();
    let role = author.and_then(|author| author.role.as_ref()).map_or("", AgentRole::as_str);
    let agent = author.map_or("", |author| author.agent.as_str());
    let message = crate::message::encode(operation, message)?;
    let mut body = Vec::with_capacity(3 + agent.len() + role.len() + message.len());
    body.push(AUTHOR);
    for name in [agent, role] {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    body.extend_from_slice(&message);
    Ok(body.into())
}

/// A stored message with unparsed parts.
pub(super) struct Entry {
    pub(super) seq: i64,
    /// The size of the message, as the contract measures it.
    pub(super) bytes: u64,
    /// The thread's size after it was written.
    pub(super) thread_bytes: u64,
    /// The number of the write that gave the message its content.
    revision: i64,
    stored: Vec<u8>,
    run_at: usize,
    body_at: usize,
}

impl Entry {
    pub(super) fn parse(answer: Value) -> Result<Self> {
        let stored = decode::bytes(answer)?;
        Self::read(stored).ok_or_else(|| corrupt(OPERATION))
    }

    fn read(stored: Vec<u8>) -> Option<Self> {
        let mut rest = stored.as_slice();
        let (seq, bytes) = (number(&mut rest)?, number(&mut rest)?);
        let thread_bytes = number(&mut rest)?;
        let (placed_by, updated_by) = writes(&mut rest)?;
        let revision = [updated_by, placed_by].into_iter().find(|number| *number != 0).unwrap_or(seq);
        let run_at = stored.len() - rest.len();
        let body_at = run_at + rest.iter().position(|byte| *byte == 0)? + 1;
        let (bytes, thread_bytes) = (u64::try_from(bytes).ok()?, u64::try_from(thread_bytes).ok()?);
        Some(Self { seq, bytes, thread_bytes, revision, run_at, body_at, stored })
    }

    pub(super) fn run(&self) -> &[u8] {
        self.stored.get(self.run_at..self.body_at - 1).unwrap_or_default()
    }

    pub(super) fn body(&self) -> &[u8] {
        self.stored.get(self.body_at..).unwrap_or_default()
    }

    /// Returns the position at which the message begins.
    fn message_at(&self) -> Option<usize> {
        let named = self.body().strip_prefix(&[AUTHOR])?;
        let message = named.splitn(3, |byte| *byte == 0).nth(2)?;
        Some(self.stored.len() - message.len())
    }

    /// Checks the stored message against its size, run and author.
    pub(super) fn check(&self) -> std::result::Result<Arc<ChatMessage>, String> {
        const DAMAGED: &str = "its body is damaged";
        let named = self.body().strip_prefix(&[AUTHOR]).ok_or(DAMAGED)?;
        let mut parts = named.splitn(3, |byte| *byte == 0);
        let mut part = || parts.next().ok_or_else(|| DAMAGED.to_owned());
        let (author, role, body) = (part()?, part()?, part()?);
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| DAMAGED.to_owned());
        let run = text(self.run())?;
        let (author, role) = (text(author)?, text(role)?);
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        Columns { body, bytes, run: (!run.is_empty()).then_some(run), author, role }.check()
    }

    pub(super) fn into_stored(self) -> Result<StoredMessage> {
        let (seq, revision) = (Seq::new(self.seq), Revision::at(Seq::new(self.revision)));
        Ok(StoredMessage::new(seq, self.into_message()?).with_revision(revision))
    }

    pub(super) fn into_message(self) -> Result<Arc<ChatMessage>> {
        let message = self.message_at().and_then(|at| crate::message::decode_end(self.stored, at));
        message.ok_or_else(|| corrupt(OPERATION))
    }
}

/// Parses the number at the start of the text and the space after it, and removes both.
fn number(text: &mut &[u8]) -> Option<i64> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    let (digits, rest) = text.split_at_checked(end)?;
    *text = rest.get(1..)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses the numbers of the replacement and of the last update that wrote a message; 0 if none did.
fn writes(text: &mut &[u8]) -> Option<(i64, i64)> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    let (numbers, rest) = text.split_at_checked(end)?;
    *text = rest.get(1..)?;
    let numbers = std::str::from_utf8(numbers).ok()?;
    let (placed_by, updated_by) = numbers.split_once('/').unwrap_or((numbers, "0"));
    Some((placed_by.parse().ok()?, updated_by.parse().ok()?))
}

/// Returns the message of a reply.
pub(super) fn stored(answer: Value) -> Result<StoredMessage> {
    Entry::parse(answer)?.into_stored()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stored: &[u8]) -> Option<Entry> {
        Entry::read(stored.to_vec())
    }

    #[test]
    fn a_stored_message_is_split_at_its_boundaries() {
        let entry = read(b"-3 5 17 9 a run \xc3\xa9\0{\"x\": 1}").unwrap();
        assert_eq!((entry.seq, entry.bytes, entry.thread_bytes), (-3, 5, 17));
        assert_eq!((entry.run(), entry.body()), ("a run é".as_bytes(), &b"{\"x\": 1}"[..]));
        assert_eq!(entry.revision, 9);
        let updated = read(b"3 5 17 0/12 run\0x").unwrap();
        assert_eq!((updated.revision, updated.run(), updated.body()), (12, &b"run"[..], &b"x"[..]));
        assert_eq!(
            (read(b"3 5 17 9/12 \0x").unwrap().revision, read(b"3 5 17 0 \0x").unwrap().revision),
            (12, 3)
        );
        let entry = read(b"1 0 0 0 \0").unwrap();
        assert_eq!((entry.run(), entry.body()), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_body_has_its_author_in_front() {
        let agent = larder_kernel::AgentId::new("an é\u{1}").unwrap();
        let role = AgentRole::new("r").unwrap();
        let bare = ChatMessage::user("x\0y");
        for (message, front) in [
            (bare.clone().with_author(agent.clone(), Some(role)), "\u{1}an é\u{1}\0r\0\0{"),
            (bare.clone().with_author(agent, None), "\u{1}an é\u{1}\0\0\0{"),
            (bare.clone(), "\u{1}\0\0\0{"),
            (ChatMessage::user("long ".repeat(500)), "\u{1}\0\0\u{1}"),
        ] {
            let body = encode("test", &message).unwrap();
            assert!(body.starts_with(front.as_bytes()));
            let entry = read(&[b"1 2 3 0 run\0", &body[..]].concat()).unwrap();
            assert_eq!(*entry.into_message().unwrap(), message);
        }
        let foreign = serde_json::to_vec(&bare).unwrap();
        let entry = read(&[b"1 2 3 0 run\0", &foreign[..]].concat()).unwrap();
        assert_eq!(entry.into_message().unwrap_err().kind(), larder_kernel::ErrorKind::Corrupt);
    }

    #[test]
    fn an_invalid_stored_message_is_refused() {
        for foreign in [
            "",
            "1",
            "1 2 3 4",
            "1 2 3 4 run",
            "a 2 3 4 \0",
            "1 -2 3 4 \0",
            "1 2 3  \0",
            "1 2 3 0/ \0",
            "1 2 3 0/a \0",
        ] {
            assert!(read(foreign.as_bytes()).is_none(), "{foreign:?}");
        }
    }
}
