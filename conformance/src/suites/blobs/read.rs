//! Reads.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobGetOptions, BlobInfo, BlobPutOptions, BlobStoreExt, ByteRange, ErrorKind};

use super::{key, noise};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

fn range(range: ByteRange) -> BlobGetOptions {
    BlobGetOptions::default().with_range(range)
}

pub(super) async fn reading_a_missing_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("there/below")?, Bytes::from_static(b"1")).await?;
    for name in ["absent", "there", "there/belo", "there/below/more"] {
        let result = b.get(&key(name)?, BlobGetOptions::default()).await;
        expect::error("reading a key that holds nothing", result, ErrorKind::NotFound)?;
        let result = b.get(&key(name)?, range(ByteRange::From(0))).await;
        expect::error("reading a range of nothing", result, ErrorKind::NotFound)?;
    }
    Ok(())
}

pub(super) async fn a_range_returns_exactly_its_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (key, whole) = (key("ranged")?, noise(700_000, context.random(0)));
    a.put_bytes(&key, whole.clone().into()).await?;
    let ranges = [
        (ByteRange::Bounded { start: 0, end: 1 }, 0..1),
        (ByteRange::Bounded { start: 0, end: 700_000 }, 0..700_000),
        (ByteRange::Bounded { start: 262_143, end: 262_145 }, 262_143..262_145),
        (ByteRange::Bounded { start: 699_999, end: 900_000 }, 699_999..700_000),
        (ByteRange::Bounded { start: 5, end: u64::MAX }, 5..700_000),
        (ByteRange::From(0), 0..700_000),
        (ByteRange::From(524_287), 524_287..700_000),
        (ByteRange::From(699_999), 699_999..700_000),
    ];
    for (asked, wanted) in ranges {
        let got = b.get_range(&key, range(asked)).await?;
        let same = got == whole[wanted.clone()];
        expect::that(same, format!("{asked:?}: bytes {wanted:?}"), format!("{} bytes, others", got.len()))?;
    }
    Ok(())
}

pub(super) async fn a_range_past_the_end_is_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (ten, none) = (key("ten")?, key("none")?);
    a.put_bytes(&ten, Bytes::from_static(b"0123456789")).await?;
    a.put_bytes(&none, Bytes::new()).await?;
    for (key, asked) in [
        (&ten, ByteRange::From(10)),
        (&ten, ByteRange::From(11)),
        (&ten, ByteRange::Bounded { start: 10, end: 12 }),
        (&none, ByteRange::From(0)),
        (&none, ByteRange::Bounded { start: 0, end: 1 }),
        (&none, ByteRange::Suffix(1)),
    ] {
        expect::invalid("a range outside the blob", b.get(key, range(asked)).await, "range")?;
    }
    Ok(())
}

pub(super) async fn a_suffix_returns_the_last_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("ten")?;
    a.put_bytes(&key, Bytes::from_static(b"0123456789")).await?;
    for (count, wanted) in [(1, "9"), (3, "789"), (10, "0123456789"), (99, "0123456789")] {
        let got = b.get_range(&key, range(ByteRange::Suffix(count))).await?;
        expect::equal("the last bytes", &got, &Bytes::from(wanted))?;
    }
    Ok(())
}

pub(super) async fn get_returns_size_and_range(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("ten")?;
    a.put_bytes(&key, Bytes::from_static(b"0123456789")).await?;
    for (options, wanted) in [
        (BlobGetOptions::default(), 0..10),
        (range(ByteRange::Bounded { start: 2, end: 5 }), 2..5),
        (range(ByteRange::Bounded { start: 8, end: 50 }), 8..10),
        (range(ByteRange::Suffix(4)), 6..10),
    ] {
        let read = b.get(&key, options).await?;
        expect::equal("the full size", &read.info.size, &10)?;
        expect::equal("the range", &read.range, &wanted)?;
        let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
        let delivered: usize = pieces.iter().map(Bytes::len).sum();
        expect::equal("bytes delivered", &(delivered as u64), &(wanted.end - wanted.start))?;
    }
    Ok(())
}

pub(super) async fn a_read_survives_an_overwrite_and_a_deletion(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("busy")?;
    for delete in [false, true] {
        let old = noise(4 << 20, context.random(2));
        a.put_bytes(&key, old.clone().into()).await?;
        let mut read = b.get(&key, BlobGetOptions::default()).await?;
        let mut got = read.bytes.try_next().await?.unwrap_or_default().to_vec();
        if delete {
            a.delete(&key).await?;
        } else {
            a.put_bytes(&key, noise(4 << 20, context.random(3)).into()).await?;
        }
        loop {
            match read.bytes.try_next().await {
                Ok(Some(piece)) => got.extend_from_slice(&piece),
                Ok(None) => {
                    expect::that(got == old, "the old blob, whole", format!("{} bytes, others", got.len()))?;
                    break;
                }
                // The store may be unable to deliver the rest. It may not deliver other bytes.
                Err(error) => {
                    let refused = Err::<(), _>(error);
                    expect::error("the rest of a changed blob", refused, ErrorKind::Conflict)?;
                    break;
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn head_equals_the_result_of_the_write(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("known")?;
    let options = BlobPutOptions::default().with_content_type("application/json").with_metadata("a", "1");
    let answer: BlobInfo = a.put(&key, "{}".into(), options).await?;
    expect::equal("the key answered", &answer.key, &key)?;
    let head = b.head(&key).await?;
    let mut same = head.clone();
    same.modified_at = answer.modified_at;
    expect::equal("head", &same, &answer)?;
    let read = b.get(&key, BlobGetOptions::default()).await?;
    expect::equal("the result of a read", &read.info, &head)
}

pub(super) async fn head_of_a_missing_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("there/below")?, Bytes::from_static(b"1")).await?;
    for name in ["absent", "there", "there/below/more"] {
        expect::error("head of nothing", b.head(&key(name)?).await, ErrorKind::NotFound)?;
    }
    Ok(())
}
