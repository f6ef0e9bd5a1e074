//! Verification of a bucket: every object under the prefix is read, and nothing is written.
//!
//! Each blob is seen in one version. Different ones may be seen at different times, because a bucket has no
//! snapshot. The server keeps the checksums; a body that does not match its own ends early.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::{BlobGetOptions, BlobKey, ErrorKind, Namespace, Result};

use super::list::page;
use super::read;
use crate::s3::config::S3Config;
use crate::s3::engine::Engine;
use crate::s3::format::{self, FORMAT};
use crate::s3::key::{Layout, Tree, unpack};
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

/// The number of blobs that are read concurrently.
const READS_AT_ONCE: usize = 8;
/// The folder of the probes, whose leftovers no store reads.
const PROBES: &str = "probe/";

/// Verifies the bucket.
///
/// # Errors
/// The errors of connecting; `Unsupported` for another format.
pub(crate) async fn verify(config: &S3Config, faults: &Faults) -> Result<()> {
    let engine = Arc::new(Engine::open(config).await.map_err(|error| error.in_operation(OPERATION))?);
    format::check(&engine, FORMAT).map_err(|error| error.in_operation(OPERATION))?;
    let mut after = None;
    loop {
        let page = page(&engine, OPERATION, &engine.prefix, after).await?;
        let names = page.objects.into_iter().filter_map(|object| object.key);
        stream::iter(names.map(Ok))
            .try_for_each_concurrent(READS_AT_ONCE, |name| {
                let engine = Arc::clone(&engine);
                async move { object(&engine, &name, faults).await }
            })
            .await?;
        let Some(next) = page.next else { return Ok(()) };
        after = Some(next);
    }
}

async fn object(engine: &Arc<Engine>, name: &str, faults: &Faults) -> Result<()> {
    let rest = name.strip_prefix(&engine.prefix).unwrap_or(name);
    if name.starts_with(&engine.format_prefix()) || rest.starts_with(PROBES) {
        return Ok(());
    }
    let Some((namespace, key)) = owner(&engine.prefix, name) else {
        let seen = "the name is not one of this store";
        faults.add(Fault::new(FaultKind::Foreign, format!("object {name}"), seen));
        return Ok(());
    };
    let place = format!("object {name} (namespace {namespace}, key {key})");
    match whole(engine, &namespace, &key).await {
        Ok((read, expected)) => {
            faults.read(1);
            if read != expected {
                let seen = format!("its body has {read} bytes of {expected}");
                faults.add(Fault::new(FaultKind::Checksum, place, seen));
            }
        }
        // It was removed after the listing.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unexpected) => {
            faults.read(1);
            faults.add(Fault::new(FaultKind::Record, place, error.message().to_owned()));
        }
        Err(error) => return Err(error.in_operation(OPERATION)),
    }
    Ok(())
}

/// Reads a blob, and returns the bytes of its body and its size.
async fn whole(engine: &Arc<Engine>, namespace: &Namespace, key: &BlobKey) -> Result<(u64, u64)> {
    let layout = Layout::new(&engine.prefix, namespace, usize::MAX);
    let found = read::get(engine, &layout, key, None, BlobGetOptions::default()).await?;
    let expected = found.info.size;
    let mut body = found.bytes;
    let mut bytes = 0_u64;
    while let Some(piece) = body.next().await {
        bytes += u64::try_from(piece?.len()).unwrap_or(u64::MAX);
    }
    Ok((bytes, expected))
}

/// Returns the namespace and the key of an object under the prefix; `None` for an object that no store wrote.
fn owner(prefix: &str, object: &str) -> Option<(Namespace, BlobKey)> {
    let (segment, rest) = object.strip_prefix(prefix)?.split_once('/')?;
    let namespace = match segment.split_once('=')? {
        ("n", plain) => Namespace::new(plain).ok()?,
        ("x", packed) => Namespace::new(String::from_utf8(unpack(packed)?).ok()?).ok()?,
        _ => return None,
    };
    let tree = match rest.split_once('/')?.0 {
        "k" => Tree::Plain,
        "x" => Tree::Packed,
        _ => return None,
    };
    let key = Layout::new(prefix, &namespace, usize::MAX).key(tree, object)?;
    Some((namespace, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_names_its_namespace_and_key() {
        for (namespace, key) in [("default", "a/b"), ("a b", "a b"), ("é/x", "k"), ("n", "x/é")] {
            let (namespace, key) = (Namespace::new(namespace).unwrap(), BlobKey::new(key).unwrap());
            let object = Layout::new("p/", &namespace, usize::MAX).object(&key);
            assert_eq!(owner("p/", &object), Some((namespace, key)));
        }
        for foreign in ["p/notes.txt", "p/n=default/k/a", "p/n=default/y/a!", "p/x=?/k/a!", "n=default/k/a!"]
        {
            assert_eq!(owner("p/", foreign), None, "{foreign}");
        }
    }
}
