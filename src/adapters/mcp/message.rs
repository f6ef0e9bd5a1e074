//! The form of a client's message. rmcp does not answer a message that it cannot parse, so the client would
//! wait forever; here, each gets a JSON-RPC error.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, JsonRpcRequest};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const INVALID_PARAMS: i32 = -32_602;
/// The maximum size of a message, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const EXAMPLE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// The methods of this server.
const METHODS: [&str; 6] = [
    "initialize",
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
];
const INVALID: &str = "`params` do not fit the method; for tools/call, they are an object with a string \
    `name` and an object `arguments`, such as {\"name\":\"note_list\",\"arguments\":{}}";

/// The decision on a message.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// rmcp handles it.
    Pass,
    /// A notification that cannot be read. JSON-RPC forbids an answer.
    Drop,
    /// This JSON-RPC error is the answer.
    Refuse(String),
}

/// Decides on a message.
pub(super) fn check(bytes: &[u8]) -> Verdict {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => return Verdict::Drop,
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to() + 1;
            return refuse(None, PARSE_ERROR, &format!("the message is not UTF-8, at byte {at}"));
        }
    };
    let value = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        Err(error) => return unparsable(text, &error),
    };
    let Value::Object(message) = value else {
        let what = if value.is_array() {
            "a batch is not supported: send each request as a separate message"
        } else {
            "the message is not an object"
        };
        return refuse(None, INVALID_REQUEST, &format!("{what}, such as {EXAMPLE}"));
    };
    let is_answer =
        !message.contains_key("method") && (message.contains_key("result") || message.contains_key("error"));
    if is_answer {
        return Verdict::Pass;
    }
    let id = message.get("id").filter(|id| is_id(id));
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return refuse(id, INVALID_REQUEST, &format!("`jsonrpc` is not \"2.0\"; a request is {EXAMPLE}"));
    }
    if !message.get("method").is_some_and(Value::is_string) {
        return refuse(
            id,
            INVALID_REQUEST,
            &format!("`method` is missing or not a string; a request is {EXAMPLE}"),
        );
    }
    if message.contains_key("id") && id.is_none() {
        return refuse(None, INVALID_REQUEST, "`id` is not a string or a whole number");
    }
    match (fits(text), id) {
        (true, _) => Verdict::Pass,
        (false, Some(_)) => refuse(id, INVALID_PARAMS, INVALID),
        (false, None) => Verdict::Drop,
    }
}

/// Returns `true` if rmcp reads the message as a call of its method.
fn fits(text: &str) -> bool {
    match serde_json::from_str::<ClientJsonRpcMessage>(text) {
        // rmcp reads a request whose parameters do not fit as one of an unknown method.
        Ok(JsonRpcMessage::Request(JsonRpcRequest {
            request: ClientRequest::CustomRequest(custom), ..
        })) => !METHODS.contains(&&*custom.method),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// Returns the answer to a message over the limit.
pub(super) fn too_long() -> String {
    let limit = MESSAGE_BYTES_MAX / (1024 * 1024);
    error(None, INVALID_REQUEST, &format!("the message is longer than {limit} MiB (send it in parts)"))
}

fn unparsable(text: &str, error: &serde_json::Error) -> Verdict {
    let said = error.to_string();
    let column = error.column();
    let reason = if said.contains("surrogate") || said.contains("hex escape") {
        format!(
            "half of a surrogate pair, which is not a character, before column {column} \
             (send whole characters)"
        )
    } else if said.contains("out of range") {
        format!("number out of range before column {column}; the limit is ±1.8e308 (send it as a string)")
    } else if said.contains("recursion limit") {
        format!("nested deeper than 127 levels at column {column} (send the value as a string)")
    } else {
        format!("the message is not JSON, at column {column}; a request is {EXAMPLE}")
    };
    // The client waits for its id, which can be read around a character or number that cannot.
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let head: Option<Head<'_>> = serde_json::from_str(text).ok();
    let id: Option<Value> = head.and_then(|head| serde_json::from_str(head.id?.get()).ok());
    refuse(id.as_ref().filter(|id| is_id(id)), PARSE_ERROR, &reason)
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

fn refuse(id: Option<&Value>, code: i32, message: &str) -> Verdict {
    Verdict::Refuse(error(id, code, message))
}

fn error(id: Option<&Value>, code: i32, message: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> (Value, i64) {
        let Verdict::Refuse(answer) = check(message.as_bytes()) else { panic!("{message} is not refused") };
        assert!(!answer.contains("s3cret") && !answer.contains('\n'), "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap())
    }

    #[test]
    fn an_unparsable_message_gets_an_error_with_its_id_if_it_is_readable() {
        let call = |value: &str| {
            let call = format!(r#"{{"name":"x","arguments":{{"s3cret":{value}}}}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{call}}}"#)
        };
        assert_eq!(refused(&call(r#""a\ud83d""#)), (json!(7), -32_700));
        assert_eq!(refused(&call("1e999")), (json!(7), -32_700));
        assert_eq!(refused(&call(&format!("{}{}", "[".repeat(200), "]".repeat(200)))).1, -32_700);
        assert_eq!(refused("hello s3cret"), (Value::Null, -32_700));
        assert_eq!(refused("{\"jsonrpc\":\"2.0\",\"id\":7"), (Value::Null, -32_700));
        assert_eq!(refused(&format!("[{}]", call("1"))), (Value::Null, -32_600));
        assert_eq!(refused("7"), (Value::Null, -32_600));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":7}"#), (json!(7), -32_600));
        assert_eq!(refused(r#"{"id":"a","method":"ping"}"#), (json!("a"), -32_600));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (Value::Null, -32_600));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (Value::Null, -32_600));
        assert_eq!(
            refused(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":7}"#),
            (json!(7), -32_602)
        );
        let Verdict::Refuse(answer) = check(b"\"\xFF\"") else { panic!("it is read") };
        assert!(answer.contains("byte 2"), "{answer}");
    }

    #[test]
    fn messages_and_responses_pass_and_notifications_get_no_response() {
        for message in [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"no/such/method"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#,
        ] {
            assert_eq!(check(message.as_bytes()), Verdict::Pass, "{message}");
        }
        assert_eq!(check(b" \r"), Verdict::Drop);
    }
}
