//! Probes which conditional writes and which names the server supports.
//!
//! Servers exist that accept the headers of a condition and write all the same, and servers that check the condition and
//! then write in a second step, between which another writer fits. So the conditions are tried out on objects of their
//! own before they are declared: in one request and as the end of an upload in parts, alone, in a race of many, and
//! against a writer that stops halfway through its body while another is done.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use tokio::task::JoinSet;

use super::body::{Chunk, PauseControl, PausingBody};
use super::condition::{Attributes, Condition};
use super::erase::delete_object;
use super::key_limit_probe;
use super::upload::Upload;
use super::write::put_at_once;
use crate::s3::engine::{Engine, OPEN};
use crate::s3::failure::status;
use crate::s3::key::longest_name;

/// Writers of a race.
const WRITERS: u8 = 8;
/// Bytes of half a body: more than fits beside the headers.
const HALF_BYTES: usize = 16 * 1024;
/// How long the server has to take up the first half, and the other writer to be done.
const HALT: Duration = Duration::from_millis(50);
const HALT_MAX: Duration = Duration::from_secs(2);
/// How long all of it may take.
const PROBE_MAX: Duration = Duration::from_secs(30);
const NO_SUCH_TAG: &str = "\"00000000000000000000000000000000\"";

/// Which conditions hold, and which names are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supported {
    pub(crate) create_only: bool,
    pub(crate) if_match: bool,
    /// Whether every key has a name that is kept.
    pub(crate) long_keys: bool,
    pub(crate) name_bytes_max: usize,
}

impl Supported {
    /// What is known of a server to which nothing may be written: nothing, so all names are asked for.
    pub(crate) const NOTHING: Self =
        Self { create_only: false, if_match: false, long_keys: false, name_bytes_max: usize::MAX };
}

/// Tries out what the server honours. With credentials that may only read, none is supported, and the store opens for reading.
pub(crate) async fn probe(engine: &Arc<Engine>) -> Result<Supported> {
    let probe = Probe { engine: Arc::clone(engine), folder: format!("{}probe/{}/", engine.prefix, random()) };
    // On a task of its own, so that its objects are removed even if the opening is given up.
    let probing = tokio::spawn(async move {
        let supported = Box::pin(probe.run()).await;
        let cleaning = async move { probe.clean().await };
        match &supported {
            // Nobody waits for what a server that just failed may leave undone as well.
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout) => {
                drop(tokio::spawn(cleaning));
            }
            _ => cleaning.await,
        }
        supported
    });
    let probed = tokio::time::timeout(PROBE_MAX, probing).await.unwrap_or_else(|_| Ok(Err(late())));
    probed.unwrap_or_else(|_| Err(ended())).map_err(|error| error.in_operation(OPEN))
}

fn late() -> Error {
    Error::new(
        ErrorKind::Timeout,
        OPEN,
        "the server answers too slowly for its conditional writes to be tried out; check its load and the network",
    )
    .with_outcome(Outcome::NotApplied)
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, OPEN, "the runtime is shutting down").with_outcome(Outcome::NotApplied)
}

fn changed() -> Error {
    Error::new(ErrorKind::Conflict, OPEN, "another write came between")
}

fn random() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

/// How a conditional write ended.
enum WriteOutcome {
    /// Written, with this tag.
    Written(Option<String>),
    /// Refused because the condition does not hold.
    Refused,
    /// The server does not know the condition.
    Unknown,
}

#[derive(Clone)]
struct Probe {
    engine: Arc<Engine>,
    folder: String,
}

/// The objects of a probe.
const NAMES: [&str; 5] = ["created", "raced", "overtaken", "matched", "absent"];

impl Probe {
    async fn run(&self) -> Result<Supported> {
        let first = match self.put("created", b"first", Condition::None).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(Supported::NOTHING),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                // It may have been the name over which the server failed; then that is to be told.
                key_limit_probe::longest_name_kept(&self.engine, &self.folder).await?;
                return Err(error);
            }
            other => other?,
        };
        if !matches!(first, WriteOutcome::Written(_)) {
            return Ok(Supported::NOTHING);
        }
        let (create_only, if_match, longest) = futures_util::future::join3(
            Box::pin(self.create_only()),
            Box::pin(self.if_match()),
            Box::pin(key_limit_probe::longest_name_kept(&self.engine, &self.folder)),
        )
        .await;
        let name_bytes_max = longest?;
        let long_keys = name_bytes_max >= longest_name(&self.engine.prefix);
        Ok(Supported { create_only: create_only?, if_match: if_match?, long_keys, name_bytes_max })
    }

    async fn create_only(&self) -> Result<bool> {
        let refused =
            matches!(self.put("created", b"second", Condition::Absent).await?, WriteOutcome::Refused);
        if !refused
            || !matches!(self.put_in_parts("created", Condition::Absent).await?, WriteOutcome::Refused)
        {
            return Ok(false);
        }
        let overtaken = self.overtake("overtaken", &Condition::Absent).await?;
        if overtaken.is_none() || self.race("raced", &Condition::Absent).await?.is_none() {
            return Ok(false);
        }
        self.holds("created", b"first").await
    }

    async fn if_match(&self) -> Result<bool> {
        let wrong = || Condition::Matches(NO_SUCH_TAG.to_owned());
        let WriteOutcome::Written(Some(tag)) = self.put("matched", b"first", Condition::None).await? else {
            return Ok(false);
        };
        for (name, condition) in [("matched", wrong()), ("absent", Condition::Matches(tag.clone()))] {
            if !matches!(self.put(name, b"second", condition).await?, WriteOutcome::Refused) {
                return Ok(false);
            }
        }
        if !matches!(self.put_in_parts("matched", wrong()).await?, WriteOutcome::Refused)
            || !self.holds("matched", b"first").await?
        {
            return Ok(false);
        }
        let Some(tag) = self.overtake("matched", &Condition::Matches(tag)).await? else { return Ok(false) };
        let Some(tag) = self.race("matched", &Condition::Matches(tag)).await? else { return Ok(false) };
        Ok(matches!(self.put_in_parts("matched", Condition::Matches(tag)).await?, WriteOutcome::Written(_)))
    }

    /// Many writers under one condition: where exactly one succeeds, its tag.
    async fn race(&self, name: &str, condition: &Condition) -> Result<Option<String>> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (probe, name, condition) = (self.clone(), name.to_owned(), condition.clone());
            // The tag must tell the races apart too.
            let bytes = format!("{writer} {}", random()).into_bytes();
            writers.spawn(async move { probe.put(&name, &bytes, condition).await });
        }
        let (mut won, mut tag) = (0, None);
        while let Some(writer) = writers.join_next().await {
            if let WriteOutcome::Written(written) = writer.unwrap_or_else(|_| Err(ended()))? {
                won += 1;
                tag = written;
            }
        }
        Ok(tag.filter(|_| won == 1))
    }

    /// Two writers under one condition, the first of which stops halfway until the second is done: where exactly one
    /// succeeds, its tag. A server that checks before it has the body lets both succeed.
    async fn overtake(&self, name: &str, condition: &Condition) -> Result<Option<String>> {
        let half = |byte: u8| Bytes::from(vec![byte; HALF_BYTES]);
        let (body, PauseControl { halts, go_on }) = PausingBody::body([half(1), half(2)]);
        let request = self
            .engine
            .client_without_retry
            .put_object()
            .bucket(&self.engine.bucket)
            .key(format!("{}{name}", self.folder))
            .set_if_none_match(condition.if_none_match())
            .set_if_match(condition.if_match())
            .content_length(i64::try_from(2 * HALF_BYTES).unwrap_or_default())
            .body(body);
        let slow = tokio::spawn(request.send());
        if tokio::time::timeout(HALT_MAX, halts).await.is_ok() {
            tokio::time::sleep(HALT).await;
        }
        // A server that makes the second wait for the first gets on once the first goes on.
        let (probe, object) = (self.clone(), name.to_owned());
        let under = condition.clone();
        let mut quick = tokio::spawn(async move { probe.put(&object, b"quick", under).await });
        let quick = match tokio::time::timeout(HALT_MAX, &mut quick).await {
            Ok(quick) => {
                drop(go_on);
                quick
            }
            Err(_) => {
                drop(go_on);
                quick.await
            }
        };
        let slow = match slow.await {
            Ok(Ok(written)) => Ok(written.e_tag),
            Ok(Err(error)) if status(&error) == Some(409) => Err(changed()),
            Ok(Err(error)) => Err(condition.refusal(&error)),
            Err(_) => Err(ended()),
        };
        match (write_outcome(slow)?, quick.unwrap_or_else(|_| Err(ended()))?) {
            (WriteOutcome::Written(tag), WriteOutcome::Refused)
            | (WriteOutcome::Refused, WriteOutcome::Written(tag)) => Ok(tag),
            _ => Ok(None),
        }
    }

    async fn put(&self, name: &str, bytes: &[u8], condition: Condition) -> Result<WriteOutcome> {
        let chunk = Chunk::from(Bytes::copy_from_slice(bytes));
        let (object, attributes) =
            (format!("{}{name}", self.folder), Attributes::new(None, &Default::default()));
        write_outcome(put_at_once(&self.engine, &object, chunk, &attributes, &condition).await)
    }

    async fn put_in_parts(&self, name: &str, condition: Condition) -> Result<WriteOutcome> {
        let (object, attributes) =
            (format!("{}{name}", self.folder), Attributes::new(None, &Default::default()));
        let mut upload = Upload::begin(&self.engine, &object, &attributes).await?;
        upload.push(Chunk::from(Bytes::from_static(b"part"))).await?;
        write_outcome(upload.complete(&condition).await)
    }

    async fn holds(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let object = format!("{}{name}", self.folder);
        let request = self.engine.client.get_object().bucket(&self.engine.bucket).key(object);
        let Ok(answer) = request.send().await else { return Ok(false) };
        Ok(answer.body.collect().await.is_ok_and(|body| body.into_bytes() == bytes))
    }

    /// Removes what the probe wrote, as far as the server lets it.
    async fn clean(&self) {
        for name in NAMES {
            // A leftover costs a few bytes and disturbs nobody.
            delete_object(&self.engine, OPEN, &format!("{}{name}", self.folder)).await.ok();
        }
    }
}

fn write_outcome(result: Result<Option<String>>) -> Result<WriteOutcome> {
    match result {
        Ok(tag) => Ok(WriteOutcome::Written(tag)),
        Err(error) => match error.kind() {
            ErrorKind::Conflict => Ok(WriteOutcome::Refused),
            // A header that the server does not know it may refuse outright.
            ErrorKind::Unsupported | ErrorKind::Unexpected => Ok(WriteOutcome::Unknown),
            _ => Err(error),
        },
    }
}
