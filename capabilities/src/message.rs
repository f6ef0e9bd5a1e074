//! The stored format of messages: a tag, a line of JSON with every field but the text, and the raw text.
//!
//! The text is most of a message. Outside the JSON it needs neither escaping nor a search for escapes, so
//! reading a message costs little more than copying it. JSON in one line contains no line break, so the first
//! line break ends it. The rest after the tag is compressed if that saves space; see `codec.rs`.

mod codec;

use std::borrow::Cow;
use std::sync::Arc;

use larder_agents::internal::offload;
use larder_agents::layers::is_sealed;
use larder_kernel::storage::history::append_digest;
use larder_kernel::{
    Author, BlobRef, ChatMessage, Error, ErrorKind, IdempotencyKey, MessageUpdate, Metadata, Outcome, Result,
    Role, RunId, Timestamp, ToolCall, ToolResult,
};
use serde::{Deserialize, Serialize};

/// The JSON before the text, for writing.
#[derive(Serialize)]
struct EncodedHead<'m> {
    role: Role,
    created_at_us: i64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'m [ToolCall],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_results: &'m [ToolResult],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    blobs: &'m [BlobRef],
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'m Author>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'m RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'m Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_count: Option<u32>,
}

/// The JSON before the text, for reading.
#[derive(Deserialize)]
struct DecodedHead {
    role: Role,
    created_at_us: i64,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    tool_results: Vec<ToolResult>,
    #[serde(default)]
    blobs: Vec<BlobRef>,
    author: Option<Author>,
    run: Option<RunId>,
    #[serde(default)]
    metadata: Metadata,
    token_count: Option<u32>,
}

/// Encoded messages, with the key and the digest that identify a repeated append.
pub(crate) type Prepared<T> = (T, Option<(IdempotencyKey, [u8; 32])>);

/// Encodes an append. Long messages use a thread that may block, since encoding and hashing many MiB takes
/// tens of milliseconds.
///
/// # Errors
/// `Unexpected` if a message cannot be written as JSON.
pub(crate) async fn prepare<T: Send + 'static>(
    operation: &'static str,
    messages: Vec<ChatMessage>,
    key: Option<IdempotencyKey>,
    encode_all: impl FnOnce(&[ChatMessage]) -> Result<T> + Send + 'static,
) -> Result<Prepared<T>> {
    let bytes = messages.iter().map(ChatMessage::size_bytes).sum();
    offload::run(operation, bytes, move || {
        let key = key.map(|key| append_digest(&messages).map(|digest| (key, digest))).transpose()?;
        Ok((encode_all(&messages)?, key))
    })
    .await
}

/// Encodes the message of an update, and returns it with the digest of an update with an idempotency key.
///
/// # Errors
/// As [`prepare`].
pub(crate) async fn prepare_update<T: Send + 'static>(
    operation: &'static str,
    update: MessageUpdate,
    encode: impl FnOnce(&ChatMessage) -> Result<T> + Send + 'static,
) -> Result<(MessageUpdate, T, Option<[u8; 32]>)> {
    offload::run(operation, update.message.size_bytes(), move || {
        let digest = update.idempotency_key.as_ref().map(|_| update.digest()).transpose()?;
        let message = encode(&update.message)?;
        Ok((update, message, digest))
    })
    .await
}

/// Encodes a message as a body.
///
/// # Errors
/// `Unexpected` if the message cannot be written as JSON.
pub(crate) fn encode(operation: &'static str, message: &ChatMessage) -> Result<Vec<u8>> {
    // Names all fields. A test compares them with the fields of the kernel's type.
    let ChatMessage {
        role,
        text,
        tool_calls,
        tool_results,
        blobs,
        author,
        run,
        created_at,
        metadata,
        token_count,
        ..
    } = message;
    let written = EncodedHead {
        role: *role,
        created_at_us: created_at.as_micros(),
        tool_calls,
        tool_results,
        blobs,
        author: author.as_ref(),
        run: run.as_ref(),
        metadata: (!metadata.is_empty()).then_some(metadata),
        token_count: *token_count,
    };
    let mut body = Vec::with_capacity(128 + text.len());
    body.push(codec::RAW);
    serde_json::to_writer(&mut body, &written).map_err(|_| {
        Error::new(ErrorKind::Unexpected, operation, "the message cannot be written as JSON")
            .with_outcome(Outcome::NotApplied)
    })?;
    body.reserve_exact(1 + text.len());
    body.push(b'\n');
    body.extend_from_slice(text.as_bytes());
    Ok(if is_sealed(message) { body } else { codec::compress(body) })
}

/// Decodes a body; returns `None` if it is malformed.
pub(crate) fn decode(body: &[u8]) -> Option<Arc<ChatMessage>> {
    match codec::decompress(body)? {
        Cow::Borrowed(body) => parse(body),
        Cow::Owned(body) => parse_end(body, 0),
    }
}

/// Decodes a body at the end of an owned value. If the body is not compressed, the bytes of the value become
/// the text, without a copy.
#[cfg(any(feature = "redis", test))]
pub(crate) fn decode_end(value: Vec<u8>, body_at: usize) -> Option<Arc<ChatMessage>> {
    match codec::decompress(value.get(body_at..)?)? {
        Cow::Borrowed(_) => parse_end(value, body_at + 1),
        Cow::Owned(body) => parse_end(body, 0),
    }
}

/// Parses a body without its tag.
fn parse(body: &[u8]) -> Option<Arc<ChatMessage>> {
    let (head, text) = std::str::from_utf8(body).ok()?.split_once('\n')?;
    if let Some((role, created_at)) = parse_simple_head(head) {
        return Some(simple_message(role, text.to_owned(), created_at));
    }
    let read: DecodedHead = serde_json::from_str(head).ok()?;
    let created_at = Timestamp::from_micros(read.created_at_us).ok()?;
    let mut message = ChatMessage::new_at(read.role, text, created_at);
    message.tool_calls = read.tool_calls;
    message.tool_results = read.tool_results;
    message.blobs = read.blobs;
    message.author = read.author;
    message.run = read.run;
    message.metadata = read.metadata;
    message.token_count = read.token_count;
    Some(Arc::new(message))
}

/// Parses a body without its tag at the end of an owned value, whose bytes become the text.
fn parse_end(mut value: Vec<u8>, body_at: usize) -> Option<Arc<ChatMessage>> {
    let body = value.get(body_at..)?;
    let end = body.iter().position(|byte| *byte == b'\n');
    let head = end.and_then(|end| std::str::from_utf8(body.get(..end)?).ok());
    let Some(((role, created_at), end)) = head.and_then(parse_simple_head).zip(end) else {
        return parse(body);
    };
    value.drain(..=body_at + end);
    Some(simple_message(role, String::from_utf8(value).ok()?, created_at))
}

/// Creates a message that has only a role, a text and a time. It does not read the clock: for a page of 50
/// messages, clock reads are measurable.
fn simple_message(role: Role, text: String, created_at: Timestamp) -> Arc<ChatMessage> {
    Arc::new(ChatMessage::new_at(role, text, created_at))
}

/// Parses the role and time of a message that has no other field but its text. Most messages have this form,
/// and this takes a fraction of the time of a full JSON parse.
fn parse_simple_head(head: &str) -> Option<(Role, Timestamp)> {
    // Splits at a single character: a search for a longer pattern costs more than all the rest.
    let (role, rest) = head.strip_prefix("{\"role\":\"")?.split_once('"')?;
    let rest = rest.strip_prefix(",\"created_at_us\":")?;
    let role = match role {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "tool" => Role::Tool,
        _ => return None,
    };
    let created_at_us = rest.strip_suffix('}')?.parse().ok()?;
    Some((role, Timestamp::from_micros(created_at_us).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> ChatMessage {
        serde_json::from_str(
            r#"{"role": "assistant", "text": "first\nsecond \u0000 \"third\"\n",
                "tool_calls": [{"id": "c1", "name": "look\nup", "arguments": "{}\n"}],
                "tool_results": [{"call_id": "c0", "content": "a\nb", "is_error": true}],
                "blobs": [{"key": "a/b", "content_type": "image/png", "size_bytes": 7}],
                "author": {"agent": "writer\n", "role": "critic"}, "run": "run\n1",
                "created_at": "-001234-02-03T04:05:06.000007Z",
                "metadata": {"a\n": [1.0, 1, true, null, "\n"]},
                "token_count": 4294967295}"#,
        )
        .unwrap()
    }

    /// Reads the names of the fields that a type's derived `Deserialize` asks for.
    struct Names(Vec<&'static str>);

    impl<'de> serde::Deserializer<'de> for &mut Names {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only the fields of a struct are read"))
        }

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            self.0 = fields.to_vec();
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    #[test]
    fn the_format_has_every_field_of_a_message() {
        let mut names = Names(Vec::new());
        ChatMessage::deserialize(&mut names).unwrap_err();
        let stored = ["role", "text", "tool_calls", "tool_results", "blobs", "author", "run", "created_at"];
        assert_eq!(names.0, [&stored[..], &["metadata", "token_count"]].concat());
    }

    #[test]
    fn every_field_reads_back() {
        let mut plain = ChatMessage::user("");
        for message in [full(), plain.clone()] {
            let body = encode("test", &message).unwrap();
            assert_eq!(*decode(&body).unwrap(), message);
            assert_eq!(*decode_end([b"x\ny", &body[..]].concat(), 3).unwrap(), message);
        }
        plain.text = "\n".to_owned();
        assert_eq!(*decode(&encode("test", &plain).unwrap()).unwrap(), plain);
    }

    /// Returns the line of JSON of a body that is not compressed.
    fn head(body: &[u8]) -> String {
        assert_eq!(body[0], codec::RAW);
        let end = body.iter().position(|byte| *byte == b'\n').unwrap();
        String::from_utf8(body[1..end].to_vec()).unwrap()
    }

    #[test]
    fn a_long_message_is_compressed_with_all_its_fields() {
        let mut message = full();
        message.tool_results[0].content = "{\"city\":\"Oslo\",\"celsius\":7},".repeat(300);
        let body = encode("test", &message).unwrap();
        assert!(body.len() * 10 < message.size_bytes(), "{}", body.len());
        assert_eq!(*decode(&body).unwrap(), message);
        assert_eq!(*decode_end([b"x\ny", &body[..]].concat(), 3).unwrap(), message);
        let plain = ChatMessage::user("a long line\n".repeat(300));
        let body = encode("test", &plain).unwrap();
        assert_eq!(*decode(&body).unwrap(), plain);
    }

    /// The encryption layer pads its messages with blanks, whose number must stay hidden.
    #[test]
    fn an_encrypted_message_is_stored_at_its_padded_size() {
        let sealed = format!("AAAAZ{}", "q+/7".repeat(24));
        let padded = ChatMessage::user(" ".repeat(9_000))
            .with_author(larder_kernel::AgentId::new(sealed).unwrap(), None);
        assert!(encode("test", &padded).unwrap().len() > 9_000);
        let plain = ChatMessage::user(" ".repeat(9_000));
        assert!(encode("test", &plain).unwrap().len() < 200);
    }

    #[test]
    fn a_plain_message_is_read_without_a_search_for_fields() {
        for role in [Role::System, Role::User, Role::Assistant, Role::Tool] {
            for text in ["", "a text", "{}\n"] {
                let message = ChatMessage::new(role, text);
                let body = encode("test", &message).unwrap();
                assert_eq!(parse_simple_head(&head(&body)), Some((role, message.created_at)));
                assert_eq!(*decode(&body).unwrap(), message);
            }
        }
        let counted = encode("test", &ChatMessage::user("x").with_token_count(3)).unwrap();
        assert_eq!(parse_simple_head(&head(&counted)), None);
        assert_eq!(decode(&counted).unwrap().token_count, Some(3));
    }

    #[test]
    fn the_text_follows_the_first_line_unchanged() {
        let body = encode("test", &full()).unwrap();
        assert!(body.ends_with(b"}\nfirst\nsecond \0 \"third\"\n"), "{body:?}");
    }

    #[test]
    fn an_invalid_message_is_refused() {
        let far = format!("{{\"role\":\"user\",\"created_at_us\":{}}}\nx", i64::MAX);
        let whole = serde_json::to_vec(&full()).unwrap();
        for body in [&b""[..], b"\n", b"{}\ntext", b"{\"role\":\"user\"}\n", b"\xff", far.as_bytes(), &whole]
        {
            for tagged in [body.to_vec(), [&[codec::RAW], body].concat()] {
                assert!(decode(&tagged).is_none(), "{tagged:?}");
                assert!(decode_end(tagged, 0).is_none(), "{body:?}");
            }
        }
    }
}
