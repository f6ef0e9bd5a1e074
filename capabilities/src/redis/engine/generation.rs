//! New generations for everything on the servers, after a restore.

use std::sync::LazyLock;

use bytes::Bytes;
use larder_kernel::{ErrorKind, Outcome, Result};
use redis::Value;

use super::Engine;
use super::node::NodeConnections;
use crate::redis::decode;
use crate::redis::failure::Fallible;
use crate::redis::script::{Call, Script};

const OPERATION: &str = "redis.renew_generations";
/// The number of keys that a server looks at in one step.
const KEYS_AT_ONCE: usize = 1_000;

/// Draws the generation in a field of a hash that has the format of this program.
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local format = redis.call('HGET', KEYS[1], ARGV[2])
         if not format then return 0 end
         if not supported(format) then return wrong_format(format) end
         redis.call('HSET', KEYS[1], ARGV[1], draw(KEYS[1]))
         return 1",
    )
});

/// Draws the generations of the deleted boards of a conversation.
static RENEW_DELETED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local drawn = 0
         for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
           if string.sub(field, -1) == '\\0' then
             redis.call('HSET', KEYS[1], field, draw(KEYS[1] .. field))
             drawn = drawn + 1
           end
         end
         return drawn",
    )
});

impl Engine {
    /// Draws a new generation for every thread, bucket and board, and returns their number. Data of another
    /// format is left as it is, and is an error after everything else is done.
    pub(crate) async fn renew_generations(&self) -> Result<u64> {
        let failed = |failure: crate::redis::failure::Failure| {
            failure.into_error(OPERATION).with_idempotent(true).with_outcome(Outcome::Unknown)
        };
        let (mut drawn, mut refused, begin) = (0, None, self.prefix().begin());
        for node in self.inner.topology.holders().map_err(failed)? {
            let mut cursor = Bytes::from_static(b"0");
            loop {
                let (next, keys) = scan(&node, &begin, &cursor).await.map_err(failed)?;
                for key in keys {
                    match self.renew(&begin, key).await {
                        Ok(count) => drawn += count,
                        Err(error) if error.kind() == ErrorKind::Unsupported => refused = Some(error),
                        Err(error) => return Err(error),
                    }
                }
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        refused.map_or(Ok(drawn), Err)
    }

    async fn renew(&self, begin: &[u8], key: Bytes) -> Result<u64> {
        let Some(call) = call_of(begin, &key) else { return Ok(0) };
        let script = if call.is_some() { &RENEW } else { &RENEW_DELETED };
        let fields = call.map_or(Call::new(), |(generation, format)| Call::new().arg(generation).arg(format));
        let call = Call::new().key(key).followed_by(&fields);
        decode::count(self.repeat(OPERATION, script, &call).await?)
    }
}

/// Returns the fields of the generation and of the format of a hash. `Some(None)` for the hash of deleted
/// boards, and `None` for a key without a generation.
fn call_of(begin: &[u8], key: &[u8]) -> Option<Option<(&'static str, &'static str)>> {
    let key = std::str::from_utf8(key.strip_prefix(begin)?).ok()?;
    // Names inside the braces contain none.
    let (entity, part) = key.split_once("}:")?;
    match entity.split_once(':')?.0 {
        "thread" if part == "head" => Some(Some(("g", "f"))),
        "kv" if part == "meta" => Some(Some(("generation", "format"))),
        "tasks" if part.starts_with("board:") => Some(Some(("generation", "format"))),
        "tasks" if part == "meta" => Some(None),
        _ => None,
    }
}

async fn scan(node: &NodeConnections, begin: &[u8], cursor: &[u8]) -> Fallible<(Bytes, Vec<Bytes>)> {
    let mut scan = redis::cmd("SCAN");
    let pattern = [begin, b"*"].concat();
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS_AT_ONCE).arg("TYPE").arg("hash");
    let [next, keys] = decode::tuple(node.send(&scan).await?)?;
    let keys: Result<Vec<Bytes>> =
        decode::array(keys)?.into_iter().map(|key: Value| Ok(decode::bytes(key)?.into())).collect();
    Ok((decode::bytes(next)?.into(), keys?))
}

#[cfg(test)]
mod tests {
    use crate::redis::key::KeyPrefix;

    #[test]
    fn the_hashes_with_a_generation_are_found_by_their_keys() {
        let prefix = KeyPrefix::new("test", "app:").unwrap();
        let call_of = |key: &[u8]| super::call_of(&prefix.begin(), key);
        let thread = prefix.entity("thread", &["n", "a:}b", "s"]);
        assert_eq!(call_of(&thread.part("head")), Some(Some(("g", "f"))));
        assert_eq!(call_of(&thread.part("messages")), None);
        assert_eq!(
            call_of(&prefix.entity("kv", &["n", "b"]).part("meta")),
            Some(Some(("generation", "format")))
        );
        assert_eq!(call_of(&prefix.entity("tasks", &["n", "c"]).part("meta")), Some(None));
        assert_eq!(call_of(b"app:{tasks:n:c}:board:a}:b"), Some(Some(("generation", "format"))));
        assert_eq!(call_of(b"larder:{tasks:n:c}:meta"), None);
    }
}
