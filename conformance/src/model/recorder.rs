//! Records a script as a Rust test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Records the calls of a script, if it is to be printed, and their results.
#[derive(Debug)]
pub(super) struct Recorder {
    lines: Option<Vec<String>>,
    /// The store's choices, and the expression for each: a revision, a token, an `ETag`.
    names: BTreeMap<String, String>,
    step: usize,
    /// The handle that the calls go through.
    pub(super) handle: &'static str,
    /// The clause of the current call, for a call that never returns.
    pub(super) clause: &'static str,
    /// The expression that opens the last stream.
    stream: Option<String>,
    /// The longest time that a stream may be silent.
    pub(super) wait_max: Duration,
    /// The time for which the script waits for further events of a stream that has delivered everything.
    pub(super) quiet: Duration,
    /// True if all operations are done and the final reads run.
    pub(super) dumping: bool,
}

impl Recorder {
    pub(super) fn new(recording: bool, wait_max: Duration, quiet: Duration) -> Self {
        Self {
            lines: recording.then(Vec::new),
            names: BTreeMap::new(),
            step: 0,
            handle: "a",
            clause: "STORE-011",
            stream: None,
            wait_max,
            quiet,
            dumping: false,
        }
    }

    /// Sets the handle of the following calls.
    pub(super) fn through(&mut self, handle: &'static str) {
        self.handle = handle;
    }

    /// Records a call: the method with its arguments.
    pub(super) fn call(&mut self, clause: &'static str, call: impl FnOnce(&Self) -> String) {
        self.clause = clause;
        self.step += 1;
        if self.lines.is_some() {
            let line = format!("let {} = {}.{}.await;", self.answer(), self.handle, call(self));
            self.line(line);
        }
    }

    /// Records a statement. In it, `§a` is replaced by the handle and `{s}` by the name of its result.
    pub(super) fn statement(&mut self, clause: &'static str, statement: impl FnOnce(&Self) -> String) {
        self.clause = clause;
        self.step += 1;
        if self.lines.is_some() {
            let line = statement(self).replace("§a", self.handle).replace("{s}", &self.answer());
            self.line(line);
        }
    }

    /// Records a stream of which `count` items are read. In the expression that opens it, `§a` is
    /// replaced by the handle.
    pub(super) fn stream(&mut self, clause: &'static str, count: usize, begin: impl FnOnce(&Self) -> String) {
        let handle = self.handle;
        let mut begun = None;
        self.statement(clause, |recorder| {
            let begin = begin(recorder).replace("§a", handle);
            let items = format!("{begin}.take({count}).try_collect::<Vec<_>>()");
            begun = Some(begin);
            format!(
                "let {{s}} = tokio::time::timeout(Duration::from_secs(5), {items}).await.unwrap().unwrap();"
            )
        });
        self.stream = begun;
    }

    /// Returns the statement that fails if the last stream yields more than `count` items.
    pub(super) fn no_more_than(&self, count: usize) -> String {
        let begin = self.stream.as_deref().unwrap_or("futures_util::stream::empty::<()>()");
        format!(
            "let mut more = {begin}.skip({count}).boxed();\n\
             let more = tokio::time::timeout(Duration::from_millis(200), more.next()).await;\n\
             assert!(more.is_err(), \"the stream yields too many items: {{more:?}}\");"
        )
    }

    fn line(&mut self, line: String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// Returns the name of the last call's result.
    pub(super) fn answer(&self) -> String {
        format!("s{}", self.step)
    }

    /// Records that the last call's result contains the store's choice. In the expression, `{s}` is replaced
    /// by the result.
    pub(super) fn name(&mut self, chosen: impl FnOnce() -> String, expression: &str) {
        if self.lines.is_some() {
            self.names.insert(chosen(), expression.replace("{s}", &self.answer()));
        }
    }

    /// Returns the expression for the store's choice, or the given text.
    pub(super) fn named(&self, chosen: &str, otherwise: impl FnOnce() -> String) -> String {
        self.names.get(chosen).cloned().unwrap_or_else(otherwise)
    }

    /// Returns the whole test, which ends with the statement that fails.
    pub(super) fn test(&self, name: &str, field: &str, assertion: &str) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "#[tokio::test]\nasync fn {name}() {{");
        text.push_str(PRELUDE);
        let _ = writeln!(text, "    let (a, b) = (first.{field}().unwrap(), second.{field}().unwrap());");
        for line in self.lines.iter().flatten().map(String::as_str).chain(assertion.lines()) {
            let _ = writeln!(text, "    {line}");
        }
        text.push_str("}\n");
        text
    }
}

/// The code before the calls.
const PRELUDE: &str = "    #![allow(unused)]
    use std::time::Duration;
    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt, TryStreamExt};
    use larder_conformance::StoreSet;
    use larder_kernel::*;
    fn id<T: TryFrom<String>>(text: impl Into<String>) -> T { T::try_from(text.into()).ok().unwrap() }
    fn of<T: serde::de::DeserializeOwned>(json: &str) -> T { serde_json::from_str(json).unwrap() }
    fn same<T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(got: T, json: &str) { \
    assert_eq!(got, of(json)) }
    // Ignores the values that the store chooses.
    fn plain(value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        let chosen = |name: &str| \
        [\"etag\", \"expires_at\", \"modified_at\", \"position\", \"revision\", \"token\"].contains(&name);
        match value {
            Value::Array(items) => items.into_iter().map(plain).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .filter(|(name, _)| !chosen(name))
                .map(|(name, value)| (name, plain(value)))
                .collect(),
            Value::String(text) => text.parse::<Seq>().map_or(Value::String(text), |at| at.get().into()),
            other => other,
        }
    }
    fn alike(got: impl serde::Serialize, json: &str) {
        assert_eq!(plain(serde_json::to_value(got).unwrap()), plain(of(json)));
    }
    // Whether it is somewhere in the answer.
    fn has(got: impl serde::Serialize, json: &str) {
        fn holds(all: &serde_json::Value, one: &serde_json::Value) -> bool {
            let mut items = all.as_array().into_iter().flatten();
            let mut fields = all.as_object().into_iter().flat_map(|fields| fields.values());
            all == one || items.any(|item| holds(item, one)) || fields.any(|field| holds(field, one))
        }
        let (all, one) = (plain(serde_json::to_value(got).unwrap()), plain(of(json)));
        assert!(holds(&all, &one), \"{one} is not in {all}\");
    }
    // Two handles on one fresh namespace of your backend.
    let (first, second): (StoreSet, StoreSet) = (open(0).await, open(1).await);
";

/// The minimum length of a run of one letter that is written as a repetition.
const REPEATED_MIN: usize = 64;

/// Returns an expression of type `&str` for a text: a literal, or a repetition for a long run of one letter.
pub(super) fn quoted(text: &str) -> String {
    let mut pieces: Vec<String> = Vec::new();
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(letter) = rest.chars().next() {
        let count = rest.chars().take_while(|next| *next == letter).count();
        let (same, behind) = rest.split_at(count * letter.len_utf8());
        rest = behind;
        if count <= REPEATED_MIN {
            plain.push_str(same);
            continue;
        }
        if !plain.is_empty() {
            pieces.push(format!("{:?}", std::mem::take(&mut plain)));
        }
        pieces.push(format!("{:?}.repeat({count}).as_str()", letter.to_string()));
    }
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(format!("{plain:?}"));
    }
    match &pieces[..] {
        [only] => only.clone(),
        _ => format!("[{}].concat().as_str()", pieces.join(", ")),
    }
}

/// Returns an expression of type `String` for a text.
pub(super) fn owned_text(text: &str) -> String {
    format!("String::from({})", quoted(text))
}

/// Returns an expression of type `&str` for any value that JSON can express.
pub(super) fn json_text(value: &impl serde::Serialize) -> String {
    quoted(&serde_json::to_string(value).unwrap_or_default())
}

/// Returns an id as an argument.
pub(super) fn id(text: impl std::fmt::Display) -> String {
    format!("&{}", owned_id(text))
}

/// Returns an id as a value.
pub(super) fn owned_id(text: impl std::fmt::Display) -> String {
    format!("id({})", quoted(&text.to_string()))
}

/// Returns an id of a named type as a value, for an argument whose type the compiler cannot infer.
pub(super) fn typed_id(of: &str, text: impl std::fmt::Display) -> String {
    format!("id::<{of}>({})", quoted(&text.to_string()))
}

/// Returns any value that JSON can express as an expression.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    format!("of({})", json_text(value))
}

/// Returns an optional value as an expression.
pub(super) fn optional<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("Some({})", shown(value)))
}

/// Returns the call that sets an optional field, to follow the expression of a value; nothing for `None`.
pub(super) fn with<T>(name: &str, value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, |value| format!(".with_{name}({})", shown(value)))
}

/// Returns a page request as an expression.
pub(super) fn page<'a, K>(
    page: &'a larder_kernel::PageRequest<K>,
    key: impl FnOnce(&'a K) -> String,
) -> String {
    match &page.after {
        Some(after) => format!("PageRequest::after({}, {})", key(after), page.limit),
        None => format!("PageRequest::first({})", page.limit),
    }
}

/// Returns bytes to write as an expression.
pub(super) fn bytes(value: &[u8]) -> String {
    match value.first() {
        Some(first) if value.len() > 64 && value.iter().all(|byte| byte == first) => {
            format!("Bytes::from(vec![{first}; {}])", value.len())
        }
        _ => format!("Bytes::from_static(b\"{}\")", value.escape_ascii()),
    }
}

/// Returns JSON without the store's free choices, as the printed tests compare it.
pub(super) fn plain(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    const CHOSEN: [&str; 6] = ["etag", "expires_at", "modified_at", "position", "revision", "token"];
    match value {
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| !CHOSEN.contains(&name.as_str()))
            .map(|(name, value)| (name, plain(value)))
            .collect(),
        // A position names the generation of its place.
        Value::String(text) => {
            text.parse::<larder_kernel::Seq>().map_or(Value::String(text), |position| position.get().into())
        }
        other => other,
    }
}
