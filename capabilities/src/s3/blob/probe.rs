//! Probes which conditional writes and which names the server supports.
//!
//! Some servers accept the headers of a condition and write regardless of it. Others check the condition and
//! then write in a second step, and another writer can slip in between. So the store probes the conditions on
//! separate objects before it declares them. The probe uses single requests and multipart uploads: alone, in
//! a race of many, and against a writer that pauses halfway through its body until another writer is done.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use tokio::task::JoinSet;

use super::body::{Chunk, PauseControl, PausingBody};
use super::condition::{Attributes, Condition};
use super::erase::{delete_object, remove_all};
use super::key_limit_probe;
use super::upload::Upload;
use super::versions::Versioning;
use super::write::put_at_once;
use crate::s3::engine::{Engine, OPEN};
use crate::s3::failure::status;
use crate::s3::key::longest_name;

/// The number of writers in a race.
const WRITERS: u8 = 8;
/// Half the size of a body: more than fits next to the headers.
const HALF_BYTES: usize = 16 * 1024;
/// The time for the server to read the first half, and for the other writer to finish.
const HALT: Duration = Duration::from_millis(50);
const HALT_MAX: Duration = Duration::from_secs(2);
/// The time limit of all probes.
const PROBE_MAX: Duration = Duration::from_secs(30);
const NO_SUCH_TAG: &str = "\"00000000000000000000000000000000\"";

/// The supported conditions and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supported {
    pub(crate) create_only: bool,
    pub(crate) if_match: bool,
    /// True if the server can store the name of every key.
    pub(crate) long_keys: bool,
    pub(crate) name_bytes_max: usize,
}

impl Supported {
    /// The result for a server without write access: no condition is supported, and names of any length are
    /// requested.
    pub(crate) const NOTHING: Self =
        Self { create_only: false, if_match: false, long_keys: false, name_bytes_max: usize::MAX };
}

/// Probes the server's support. With read-only credentials nothing is supported, and the store opens for
/// reading.
pub(crate) async fn probe(engine: &Arc<Engine>, versioning: Versioning) -> Result<Supported> {
    let probe = Probe { engine: Arc::clone(engine), folder: format!("{}probe/{}/", engine.prefix, random()) };
    // On a separate task, so that the objects are removed even if the opening is cancelled.
    let probing = tokio::spawn(async move {
        let supported = Box::pin(probe.run()).await;
        let cleaning = async move { probe.clean(versioning).await };
        match &supported {
            // No wait for a server that just failed and may fail to clean up as well.
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
        "the server responds too slowly to test its conditional writes; check its load and the network",
    )
    .with_outcome(Outcome::NotApplied)
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, OPEN, "the runtime is shutting down").with_outcome(Outcome::NotApplied)
}

fn changed() -> Error {
    Error::new(ErrorKind::Conflict, OPEN, "another client wrote during the call; try again")
}

fn random() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

/// The outcome of a conditional write.
enum WriteOutcome {
    /// Written, with this tag.
    Written(Option<String>),
    /// Rejected because the condition is false.
    Refused,
    /// The server does not support the condition.
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
                // The server may have failed because of the name; the error must then say so.
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

    /// Runs many writers under one condition. If exactly one succeeds, returns its tag.
    async fn race(&self, name: &str, condition: &Condition) -> Result<Option<String>> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (probe, name, condition) = (self.clone(), name.to_owned(), condition.clone());
            // The tag must also differ between the races.
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

    /// Runs two writers under one condition; the first pauses halfway until the second is done. If exactly
    /// one succeeds, returns its tag. A server that checks before it has the body lets both succeed.
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
        // A server that makes the second writer wait for the first continues once the first does.
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

    /// Removes the probe's objects, as far as the server allows.
    async fn clean(&self, versioning: Versioning) {
        if versioning != Versioning::Off && remove_all(&self.engine, &self.folder, versioning).await.is_ok() {
            return;
        }
        for name in NAMES {
            // A leftover costs a few bytes and affects no store.
            delete_object(&self.engine, OPEN, &format!("{}{name}", self.folder)).await.ok();
        }
    }
}

fn write_outcome(result: Result<Option<String>>) -> Result<WriteOutcome> {
    match result {
        Ok(tag) => Ok(WriteOutcome::Written(tag)),
        Err(error) => match error.kind() {
            ErrorKind::Conflict => Ok(WriteOutcome::Refused),
            // A server may reject an unknown header.
            ErrorKind::Unsupported | ErrorKind::Unexpected => Ok(WriteOutcome::Unknown),
            _ => Err(error),
        },
    }
}
