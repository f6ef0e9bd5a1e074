//! One hook around every call of every contract, from which the layers that do not change data are made.

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

/// What a call may do to the store, as far as that decides whether it may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It changes nothing.
    Read,
    /// It changes something, but the same call once more changes nothing further: it carries an idempotency key or a
    /// fencing token.
    Repeatable,
    /// It changes something if a number that only grows is still the one it names, so a second one finds it gone.
    Guarded,
    /// Each one may change something.
    Write,
}

/// One call, as the hooks see it.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    /// `contract.method`, as errors name it.
    pub(super) operation: &'static str,
    pub(super) effect: Effect,
    /// The store's namespace.
    pub(super) namespace: &'a str,
    /// The collection or bucket, where the contract has such.
    pub(super) collection: Option<&'a str>,
    /// Bytes that the call carries; counted only for hooks that ask.
    pub(super) bytes: u64,
    /// How far a body that comes as a stream was taken.
    pub(super) taken: Option<Arc<Taken>>,
    /// Whether silence is no failure: the stream that the call opens waits for what others do.
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

    /// `contract` and `method` of the operation.
    pub(super) fn names(&self) -> (&'static str, &'static str) {
        self.operation.split_once('.').unwrap_or(("store", self.operation))
    }

    /// Whether nothing of a streamed body is gone, so that the call can be made again as it is.
    pub(super) fn untouched(&self) -> bool {
        self.taken.as_ref().is_none_or(|taken| taken.polls.load(Ordering::Acquire) == 0)
    }

    /// The error of a call that was given up while it was under way.
    pub(super) fn gone(&self, kind: ErrorKind, message: &'static str) -> Error {
        let outcome = if self.effect == Effect::Read { Outcome::NotApplied } else { Outcome::Unknown };
        let idempotent = matches!(self.effect, Effect::Read | Effect::Repeatable);
        Error::new(kind, self.operation, message).with_outcome(outcome).with_idempotent(idempotent)
    }
}

/// What a layer does around each call.
pub(super) trait Middleware: fmt::Debug + Send + Sync + 'static {
    /// Whether a call may be made more than once, for which its arguments are kept.
    const REPEATS: bool = false;
    /// Whether the bytes of arguments are to be counted.
    const MEASURES: bool = false;

    /// By which name the store calls its namespace, where that is another than behind the layer.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }

    /// Makes the call, once unless [`REPEATS`](Self::REPEATS).
    fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a;

    /// Makes a call that opens a stream, and sees to the stream.
    fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> impl Future<Output = Result<T>> + Send + 'a {
        self.around(call, attempt)
    }
}

/// An answer with a stream in it.
pub(super) trait Opened: Answer {
    type Item: Send + Answer + 'static;

    /// Puts a stream in the place of the one that is there.
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

/// A store with a hook around each of its calls. The contracts are implemented in `forward`.
pub(super) struct Wrapped<S: ?Sized, H> {
    pub(super) inner: Arc<S>,
    pub(super) hook: H,
    /// The name of the call that [`Store`](larder_kernel::Store) shares among the contracts.
    pub(super) erase: &'static str,
}

impl<S: ?Sized + fmt::Debug, H: fmt::Debug> fmt::Debug for Wrapped<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("layer", &self.hook).field("store", &self.inner).finish()
    }
}

/// An argument that is given once, or again and again where the hook repeats calls.
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

/// How far a body that comes as a stream was taken by the store.
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

/// The body of a blob on its way in. Clones share a stream, of which each piece goes to whoever asks first.
#[derive(Clone)]
pub(super) enum Body {
    Bytes(Bytes),
    Stream(Arc<tokio::sync::Mutex<BlobBytes>>, Arc<Taken>),
}

impl Body {
    pub(super) fn new(body: BlobBody) -> Self {
        match body {
            BlobBody::Bytes(bytes) => Self::Bytes(bytes),
            BlobBody::Stream(pieces) => {
                Self::Stream(Arc::new(tokio::sync::Mutex::new(pieces)), Arc::default())
            }
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
            // One attempt at a time reads, and the one before it has been dropped.
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
