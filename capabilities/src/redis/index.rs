//! The index of a namespace's entities, for listing and erasing.
//!
//! An index has a separate slot, so it cannot change in one step with its entities. The order of steps makes
//! up for it:
//!
//! - An entity is registered in the index **before** its first write. An index may contain an empty entity,
//!   so readers check each entity. No entity is ever missing from it.
//! - An erasure takes a new number, the **epoch**, and then empties each entity in the index and leaves the
//!   epoch there for a while. Finally it removes the names from the index that were registered in an earlier
//!   epoch.
//! - A writer presents its registration: the epoch and the time of the registration. An entity that does not
//!   exist yet rejects an epoch older than that of the last erasure, and a registration of more than a minute
//!   ago. The writer then registers it again. So no write can slip in between the steps of an erasure and
//!   stay unlisted.

pub(super) mod verify;

use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};
use redis::Value;

use super::decode;
use super::engine::Engine;
use super::key::{Entity, KeyPrefix};
use super::script::{Call, Script};

/// The maximum number of registrations of one write. Each further one means that an erasure came in between.
const REGISTRATIONS_MAX: u32 = 8;
/// The number of names that an erasure reads at a time.
const ERASED_NAMES_MAX: usize = 256;
/// The number of entities that an erasure empties concurrently.
const ERASED_AT_ONCE: usize = 32;
/// The time for which an erased entity rejects writers that registered it before. It is well over the minute
/// for which a registration is valid.
const ERASED_KEPT_MS: u64 = 600_000;

static REGISTER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local epoch = redis.call('GET', KEYS[3]) or '0'
         redis.call('ZADD', KEYS[1], 0, ARGV[1])
         redis.call('HSET', KEYS[2], ARGV[1], epoch)
         return {epoch, int(now_ms())}",
    )
});

/// Starts an erasure. Epochs follow the clock, so that they grow even after the last one has expired. A
/// server without free memory still lets a script write if the script begins with a removal, so an erasure
/// begins that way.
static BEGIN_ERASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local epoch = math.max(now_ms(), tonumber(redis.call('GET', KEYS[3]) or '0') + 1)
         redis.call('UNLINK', KEYS[3])
         redis.call('SET', KEYS[3], int(epoch), 'PX', 86400000)
         return int(epoch)",
    )
});

static NAMES: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, tonumber(ARGV[2]))")
});

static ERASE_ENTITY: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local format = redis.pcall('HGET', KEYS[1], 'format')
         if type(format) == 'string' and not supported(format) then
           return wrong_format(format)
         end
         local before = redis.call('GET', KEYS[2])
         redis.call('UNLINK', KEYS[1])
         for i = 3, #KEYS do
           redis.call('UNLINK', KEYS[i])
         end
         if not before or tonumber(before) < tonumber(ARGV[1]) then
           redis.call('SET', KEYS[2], ARGV[1], 'PX', tonumber(ARGV[2]))
         end
         redis.pcall('PUBLISH', ARGV[3], '')
         return 1",
    )
});

static FORGET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local epoch = tonumber(ARGV[1])
         for i = 2, #ARGV do
           if tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or '0') < epoch then
             redis.call('ZREM', KEYS[1], ARGV[i])
             redis.call('HDEL', KEYS[2], ARGV[i])
           end
         end
         return 1",
    )
});

/// The entities of one kind in one namespace.
#[derive(Clone)]
pub(crate) struct Index {
    kind: &'static str,
    namespace: Namespace,
    prefix: KeyPrefix,
    place: Entity,
}

impl Index {
    /// Creates the index. `kind` is a word of this program: `kv`, `history`, `tasks`.
    pub(crate) fn new(prefix: &KeyPrefix, kind: &'static str, namespace: &Namespace) -> Self {
        let place = prefix.entity("index", &[kind, namespace.as_str()]);
        Self { kind, namespace: namespace.clone(), prefix: prefix.clone(), place }
    }

    /// Returns the entity with this name.
    pub(crate) fn entity(&self, name: &str) -> Entity {
        self.prefix.entity(self.kind, &[self.namespace.as_str(), name])
    }

    fn call(&self) -> Call {
        Call::new().key(self.place.part("names")).key(self.place.part("epochs")).key(self.place.part("epoch"))
    }
}

/// Creates the call of a script that empties an entity, with the keys and arguments of its kind.
fn erasing(entity: &Entity, epoch: &str, own: impl Fn(&Entity) -> (Vec<Bytes>, Vec<Bytes>)) -> Call {
    let call = Call::new()
        .key(entity.part("meta"))
        .key(entity.part("erased"))
        .arg(epoch)
        .number(ERASED_KEPT_MS)
        .arg(entity.channel());
    let (keys, arguments) = own(entity);
    arguments.into_iter().fold(keys.into_iter().fold(call, Call::key), Call::bytes)
}

impl Engine {
    /// Runs a script that writes to the entity with this name. Before `call`'s keys and arguments, the script
    /// gets `KEYS[1]` = `meta`, `KEYS[2]` = `erased`, `ARGV[1]` and `ARGV[2]` = the registration. It calls
    /// `registered()` before its first write and returns `'REGISTER'` if that is false. The entity's first
    /// write must create `meta`, which must exist as long as the entity holds data.
    pub(crate) async fn write(
        &self,
        operation: &'static str,
        script: &Script,
        index: &Index,
        name: &str,
        call: &Call,
    ) -> Result<Value> {
        let entity = index.entity(name);
        let keys = [entity.part("meta"), entity.part("erased")];
        let mut registration = [Bytes::new(), Bytes::new()];
        for _ in 0..=REGISTRATIONS_MAX {
            let answer = self.run(operation, script, &call.preceded_by(&keys, &registration)).await?;
            if !matches!(&answer, Value::BulkString(word) if word == b"REGISTER") {
                return Ok(answer);
            }
            let [epoch, at] = decode::tuple(self.register(operation, index, name).await?)
                .map_err(|error| error.in_operation(operation))?;
            registration = [decode::bytes(epoch)?.into(), decode::bytes(at)?.into()];
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            operation,
            "the namespace was erased during every attempt, or the clocks of the servers differ by a minute; \
             try again and check the clocks",
        )
        .with_outcome(Outcome::NotApplied))
    }

    /// Returns the names in an index after a given name, in byte order. Some of them may name empty entities.
    pub(crate) async fn names(
        &self,
        operation: &'static str,
        index: &Index,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let call = index.call().arg(from).number(limit);
        let names = decode::array(self.read(operation, &NAMES, &call).await?)
            .and_then(|names| names.into_iter().map(decode::text).collect());
        names.map_err(|error: Error| error.in_operation(operation))
    }

    /// Removes every entity of an index, each with these parts in addition to `meta`, and every trace of its
    /// name.
    pub(crate) async fn erase(
        &self,
        operation: &'static str,
        index: &Index,
        parts: &[&'static str],
    ) -> Result<()> {
        let own = |entity: &Entity| (parts.iter().map(|part| entity.part(part)).collect(), Vec::new());
        self.erase_by(operation, index, &ERASE_ENTITY, own).await
    }

    /// As [`erase`](Self::erase), for entities whose parts only a script of their kind can find. The script
    /// gets `KEYS[1]` = `meta`, `KEYS[2]` = `erased`, `ARGV[1]` = the epoch, `ARGV[2]` = how long to keep it
    /// there, `ARGV[3]` = the channel, and then the arguments of `own`. It runs until it returns 1. The run
    /// that removes `meta` stores the epoch in the same step.
    pub(crate) async fn erase_by(
        &self,
        operation: &'static str,
        index: &Index,
        script: &Script,
        own: impl Fn(&Entity) -> (Vec<Bytes>, Vec<Bytes>) + Send + Sync,
    ) -> Result<()> {
        let epoch = decode::text(self.repeat(operation, &BEGIN_ERASE, &index.call()).await?)?;
        let mut after: Option<String> = None;
        loop {
            let names = self.names(operation, index, after.as_deref(), ERASED_NAMES_MAX).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            let mut forget = index.call().arg(&epoch);
            for name in &names {
                forget = forget.arg(name);
            }
            let calls: Vec<Call> =
                names.iter().map(|name| erasing(&index.entity(name), &epoch, &own)).collect();
            futures_util::stream::iter(calls)
                .map(|call| async move {
                    while decode::integer(self.repeat(operation, script, &call).await?)? != 1 {}
                    Ok::<(), Error>(())
                })
                .buffer_unordered(ERASED_AT_ONCE)
                .try_collect::<()>()
                .await?;
            self.repeat(operation, &FORGET, &forget).await?;
            after = Some(last);
        }
    }

    async fn register(&self, operation: &'static str, index: &Index, name: &str) -> Result<Value> {
        // The registration is not part of the write, so a failure here leaves the write undone.
        let entered = self.repeat(operation, &REGISTER, &index.call().arg(name)).await;
        entered.map_err(|error| error.with_outcome(Outcome::NotApplied))
    }
}
