//! A hook around every call of every contract, the base of the layers that do not change data.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use larder_kernel::check::size;
use larder_kernel::{BlobBody, BlobBytes, BlobRead, Error, ErrorKind, Namespace, Outcome, Result};

use super::answer::Answer;

/// The effect of a call on the store, which determines if it may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call changes nothing.
    Read,
    /// The call changes something, but repeating it changes nothing further: it carries an idempotency key or
    /// a fencing token.
    Repeatable,
    /// The call takes effect only if a number that never decreases still has the named value. A second call
    /// fails this condition.
    Guarded,
    /// Each repetition may change something.
    Write,
}

/// A call, as the hooks see it.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    /// The operation, `contract.method`, as in errors.
    pub(super) operation: &'static str,
    pub(super) effect: Effect,
    /// The store's namespace.
    pub(super) namespace: &'a str,
    /// The collection or bucket, if the contract has one.
    pub(super) collection: Option<&'a str>,
    /// The number of bytes in the arguments. It is counted only for hooks that ask for it.
    pub(super) bytes: u64,
    /// The part of a streamed body that the store has taken.
    pub(super) taken: Option<Arc<Taken>>,
    /// `true` if silence is not a failure: the stream that the call opens waits for other writers.
    pub(super) live: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(operation: &'static str, effect: Effect) -> Self {
        Self { operation, effect, namespace: "", collection: None, bytes: 0, taken: None, live: false }
    }

    pub(super) fn read(operation: &'static str) -> Self {
        Self::new(operation, Effect::Read)
    }

    pub(super) fn write(operation: &'static str) -> Self {
        Self::new(operation, Effect::Write)
    }

    pub(super) fn effect(mut self, effect: Effect, holds: bool) -> Self {
        if holds {
            self.effect = effect;
        }
        self
    }

    pub(super) fn collection(mut self, collection: &'a str) -> Self {
        self.collection = Some(collection);
        self
    }

    pub(super) fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Returns the `contract` and the `method` of the operation.
    pub(super) fn names(&self) -> (&'static str, &'static str) {
        self.operation.split_once('.').unwrap_or(("store", self.operation))
    }

    /// Returns `true` if no part of a streamed body was taken, so that the call can be repeated unchanged.
    pub(super) fn untouched(&self) -> bool {
        self.taken.as_ref().is_none_or(|taken| taken.polls.load(Ordering::Acquire) == 0)
    }

    /// Returns the error of a call that was abandoned in flight.
    pub(super) fn gone(&self, kind: ErrorKind, message: &'static str) -> Error {
        let outcome = if self.effect == Effect::Read { Outcome::NotApplied } else { Outcome::Unknown };
        let idempotent = matches!(self.effect, Effect::Read | Effect::Repeatable);
        Error::new(kind, self.operation, message).with_outcome(outcome).with_idempotent(idempotent)
    }
}

/// The behavior of a layer around each call.
pub(super) trait Middleware: fmt::Debug + Send + Sync + 'static {
    /// `true` if a call may be made more than once, so that its arguments are kept.
    const REPEATS: bool = false;
    /// `true` if the bytes of arguments are counted.
    const MEASURES: bool = false;

    /// Returns the namespace that the store reports, if it differs from that of the inner store.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }

    /// Makes the call, once unless [`REPEATS`](Self::REPEATS).
    fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a;

    /// Makes a call that opens a stream, and wraps the stream.
    fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a {
        self.around(call, attempt)
    }
}

/// A result that contains a stream.
pub(super) trait Opened: Answer {
    type Item: Send + Answer + 'static;

    /// Replaces the stream.
    fn with_stream(
        self,
        change: impl FnOnce(BoxStream<'static, Result<Self::Item>>) -> BoxStream<'static, Result<Self::Item>>,
    ) -> Self;
}

impl<I: Send + Answer + 'static> Opened for BoxStream<'static, Result<I>> {
    type Item = I;

    fn with_stream(self, change: impl FnOnce(Self) -> Self) -> Self {
        change(self)
    }
}

impl Opened for BlobRead {
    type Item = Bytes;

    fn with_stream(mut self, change: impl FnOnce(BlobBytes) -> BlobBytes) -> Self {
        self.bytes = change(self.bytes);
        self
    }
}

/// A store with a hook around each of its calls. The module `forward` implements the contracts.
pub(super) struct Wrapped<S: ?Sized, H> {
    pub(super) inner: Arc<S>,
    pub(super) hook: H,
    /// The operation of the call that [`Store`](larder_kernel::Store) shares among the contracts.
    pub(super) erase: &'static str,
}

impl<S: ?Sized + fmt::Debug, H: fmt::Debug> fmt::Debug for Wrapped<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("layer", &self.hook).field("store", &self.inner).finish()
    }
}

/// An argument that is passed once, or several times if the hook repeats calls.
pub(super) struct Argument<T> {
    value: Option<T>,
    again: bool,
}

impl<T: Clone> Argument<T> {
    pub(super) fn new(value: T, again: bool) -> Self {
        Self { value: Some(value), again }
    }

    pub(super) fn give(&mut self) -> T {
        let given = if self.again { self.value.clone() } else { self.value.take() };
        given.unwrap_or_else(|| unreachable!("a hook that does not repeat calls makes each once"))
    }
}

/// The part of a streamed body that the store has taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    polls: AtomicU64,
    pieces: AtomicU64,
    bytes: AtomicU64,
}

impl Taken {
    pub(super) fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Acquire)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// The body of a blob that is being written. Clones share a stream; each piece goes to the first reader.
#[derive(Clone)]
pub(super) enum Body {
    Bytes(Bytes),
    Stream(Arc<tokio::sync::Mutex<BlobBytes>>, Arc<Taken>),
}

impl Body {
    pub(super) fn new(body: BlobBody) -> Self {
        match body {
            BlobBody::Bytes(bytes) => Self::Bytes(bytes),
            body => Self::Stream(Arc::new(tokio::sync::Mutex::new(body.into_stream())), Arc::default()),
        }
    }

    pub(super) fn taken(&self) -> Option<Arc<Taken>> {
        match self {
            Self::Bytes(_) => None,
            Self::Stream(_, taken) => Some(Arc::clone(taken)),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => size(bytes.len()),
            Self::Stream(..) => 0,
        }
    }
}

impl From<Body> for BlobBody {
    fn from(body: Body) -> Self {
        let (pieces, taken) = match body {
            Body::Bytes(bytes) => return Self::Bytes(bytes),
            Body::Stream(pieces, taken) => (pieces, taken),
        };
        Self::stream(stream::poll_fn(move |context| {
            taken.polls.fetch_add(1, Ordering::AcqRel);
            // Only one attempt at a time reads, and the previous one has been dropped.
            let Ok(mut pieces) = pieces.try_lock() else { return Poll::Pending };
            let polled = pieces.poll_next_unpin(context);
            if let Poll::Ready(Some(Ok(piece))) = &polled {
                taken.pieces.fetch_add(1, Ordering::AcqRel);
                taken.bytes.fetch_add(size(piece.len()), Ordering::AcqRel);
            }
            polled
        }))
    }
}
