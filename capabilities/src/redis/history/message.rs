//! Messages on their way to the server and back.

use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{ChatMessage, Result, Seq, StoredMessage};
use redis::Value;

use super::super::failure::corrupt;
use super::super::script::Call;
use super::super::value;

const OPERATION: &str = "history.read";

/// Messages as scripts take them: size, run and body of each.
pub(super) struct Batch(Vec<(usize, Bytes, Bytes)>);

impl Batch {
    pub(super) fn new(operation: &'static str, messages: &[ChatMessage]) -> Result<Self> {
        let encoded = messages.iter().map(|message| {
            let run = message
                .run
                .as_ref()
                .map_or_else(Bytes::new, |run| Bytes::copy_from_slice(run.as_str().as_bytes()));
            Ok((message.size_bytes(), run, Bytes::from(crate::message::encode(operation, message)?)))
        });
        encoded.collect::<Result<_>>().map(Self)
    }

    /// Adds the messages to the arguments.
    pub(super) fn into_call(self, call: Call) -> Call {
        self.0.into_iter().fold(call, |call, (size, run, body)| call.number(size).bytes(run).bytes(body))
    }
}

/// A stored message, its parts not yet looked into.
pub(super) struct Entry {
    pub(super) seq: i64,
    /// Its size as the contract measures it.
    pub(super) bytes: u64,
    /// The thread's size after it was written.
    pub(super) thread_bytes: u64,
    stored: Vec<u8>,
    run_at: usize,
    body_at: usize,
}

impl Entry {
    pub(super) fn parse(answer: Value) -> Result<Self> {
        let stored = value::bytes(answer)?;
        Self::read(stored).ok_or_else(|| corrupt(OPERATION))
    }

    fn read(stored: Vec<u8>) -> Option<Self> {
        let mut fields = stored.splitn(5, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<i64>().ok();
        let (seq, bytes, thread_bytes) = (number()?, number()?, number()?);
        number()?;
        let rest = fields.next()?;
        let body_at = stored.len() - rest.len() + rest.iter().position(|byte| *byte == 0)? + 1;
        let run_at = stored.len() - rest.len();
        let (bytes, thread_bytes) = (u64::try_from(bytes).ok()?, u64::try_from(thread_bytes).ok()?);
        Some(Self { seq, bytes, thread_bytes, run_at, body_at, stored })
    }

    pub(super) fn run(&self) -> &[u8] {
        self.stored.get(self.run_at..self.body_at - 1).unwrap_or_default()
    }

    pub(super) fn body(&self) -> &[u8] {
        self.stored.get(self.body_at..).unwrap_or_default()
    }

    pub(super) fn message(&self) -> Result<Arc<ChatMessage>> {
        crate::message::decode(self.body()).ok_or_else(|| corrupt(OPERATION))
    }
}

/// The message of an answer.
pub(super) fn stored(answer: Value) -> Result<StoredMessage> {
    let entry = Entry::parse(answer)?;
    Ok(StoredMessage { seq: Seq::new(entry.seq), message: entry.message()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stored: &[u8]) -> Option<Entry> {
        Entry::read(stored.to_vec())
    }

    #[test]
    fn a_stored_message_is_taken_apart_at_its_borders() {
        let entry = read(b"-3 5 17 9 a run \xc3\xa9\0{\"x\": 1}").unwrap();
        assert_eq!((entry.seq, entry.bytes, entry.thread_bytes), (-3, 5, 17));
        assert_eq!((entry.run(), entry.body()), ("a run é".as_bytes(), &b"{\"x\": 1}"[..]));
        let entry = read(b"1 0 0 0 \0").unwrap();
        assert_eq!((entry.run(), entry.body()), (&b""[..], &b""[..]));
    }

    #[test]
    fn what_is_no_stored_message_is_refused() {
        for foreign in ["", "1", "1 2 3 4", "1 2 3 4 run", "a 2 3 4 \0", "1 -2 3 4 \0", "1 2 3  \0"] {
            assert!(read(foreign.as_bytes()).is_none(), "{foreign:?}");
        }
    }
}
