//! Changes that move no bytes: copies, renames, deletions, and the removal of contents without a blob.

use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{BlobInfo, BlobKey, Error, ErrorKind, Namespace, Outcome, RenameMode, Result};
use sqlx::{PgConnection, Row};

use super::super::encode::{length, millis};
use super::super::engine::sweep::contents::{Swept, sweep};
use super::super::engine::{Engine, Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::READERS_MAX;
use super::rows::{Address, Stored, missing, stored_columns};

/// The number of blobs that one statement of an erasure deletes, and of contents that are read at a time.
const ERASED_AT_ONCE: usize = 1_000;
/// The number of times that an erasure looks for contents that others used, and the pause before the next.
const SWEEPS_MAX: u32 = 200;
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn copy(
    engine: &Engine,
    namespace: &Namespace,
    source: &BlobKey,
    target: &BlobKey,
) -> Result<BlobInfo> {
    const OPERATION: &str = "blobs.copy";
    let wanted = (Address::new(namespace, source), target.clone());
    let copied = engine.statement(OPERATION, &wanted, copy_row).await?;
    copied.ok_or_else(|| missing(OPERATION).with_outcome(Outcome::NotApplied))?.into_info(target.clone())
}

fn copy_row<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (source, target): &'c (Address, BlobKey),
) -> BoxFuture<'c, Fallible<Option<Stored>>> {
    Box::pin(async move {
        let row = sqlx::query(concat!(
            "SELECT ",
            stored_columns!("b"),
            " FROM larder.blob_copy($1, $2, $3, $4) b WHERE ",
            begin_write!("5", "6")
        ))
        .bind(source.namespace.as_str())
        .bind(source.key.as_str())
        .bind(target.as_str())
        .bind(millis(READERS_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        let exists = row.try_get::<Option<i64>, _>(0)?.is_some();
        exists.then(|| Stored::read(&row)).transpose()
    })
}

pub(super) async fn rename(
    engine: &Engine,
    namespace: &Namespace,
    (source, target): (&BlobKey, &BlobKey),
    mode: RenameMode,
) -> Result<BlobInfo> {
    const OPERATION: &str = "blobs.rename";
    let replaces = match mode {
        RenameMode::Refuse => false,
        RenameMode::Replace => true,
        _ => return Err(Error::unknown_value(OPERATION, "mode")),
    };
    let wanted = (Address::new(namespace, source), target.clone(), replaces);
    let renamed = engine.statement(OPERATION, &wanted, rename_row).await?;
    let refused = match renamed {
        Renamed::Moved(stored) => return stored.into_info(target.clone()),
        Renamed::TargetExists => {
            let message = "a blob with the target key already exists; use another key or replace the blob";
            Error::new(ErrorKind::Conflict, OPERATION, message)
        }
        Renamed::NoSource => missing(OPERATION),
    };
    Err(refused.with_outcome(Outcome::NotApplied))
}

/// The result of a rename.
enum Renamed {
    Moved(Stored),
    TargetExists,
    NoSource,
}

fn rename_row<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (source, target, replaces): &'c (Address, BlobKey, bool),
) -> BoxFuture<'c, Fallible<Renamed>> {
    Box::pin(async move {
        let row = sqlx::query(concat!(
            "SELECT ",
            stored_columns!("(r.out_blob)"),
            ", r.out_state FROM larder.blob_rename($1, $2, $3, $4, $5) r WHERE ",
            begin_write!("6", "7")
        ))
        .bind(source.namespace.as_str())
        .bind(source.key.as_str())
        .bind(target.as_str())
        .bind(*replaces)
        .bind(millis(READERS_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        Ok(match row.try_get::<i32, _>(6)? {
            0 => Renamed::Moved(Stored::read(&row)?),
            1 => Renamed::TargetExists,
            _ => Renamed::NoSource,
        })
    })
}

pub(super) async fn delete(engine: &Engine, namespace: &Namespace, key: &BlobKey) -> Result<bool> {
    engine.statement("blobs.delete", &Address::new(namespace, key), delete_row).await
}

fn delete_row<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let existed: Option<bool> = sqlx::query_scalar(concat!(
            "SELECT larder.blob_delete($1, $2, $3) WHERE ",
            begin_write!("4", "5")
        ))
        .bind(address.namespace.as_str())
        .bind(address.key.as_str())
        .bind(millis(READERS_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        existed.ok_or_else(|| corrupt("blobs.delete").into())
    })
}

/// Removes the content of a write that failed. The sweep removes what this call cannot.
pub(super) async fn discard(engine: &Engine, namespace: &Namespace, content: i64) {
    const OPERATION: &str = "blobs.put";
    let wanted = (namespace.as_str().to_owned(), content);
    if engine.statement(OPERATION, &wanted, discard_content).await.is_ok() {
        while engine.statement(OPERATION, &wanted, sweep).await.is_ok_and(|swept| swept == Swept::More) {}
    }
}

fn discard_content<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (namespace, content): &'c (String, i64),
) -> BoxFuture<'c, Fallible<()>> {
    Box::pin(async move {
        let discard =
            sqlx::query(concat!("SELECT larder.blob_discard($1, $2) WHERE ", begin_write!("3", "4")));
        discard.bind(namespace).bind(content).bind(write.format).bind(write.commit).execute(sql).await?;
        Ok(())
    })
}

/// Deletes the blobs of the namespace in parts, then their contents. A write in progress fails.
pub(super) async fn erase(engine: &Engine, namespace: &Namespace) -> Result<()> {
    const OPERATION: &str = "blobs.erase";
    let repeatable = |error: Error| error.with_idempotent(true);
    loop {
        let erased = engine.statement(OPERATION, namespace, erase_rows).await.map_err(repeatable)?;
        if erased < length(ERASED_AT_ONCE) {
            break;
        }
    }
    for _ in 0..SWEEPS_MAX {
        if erase_contents(engine, namespace).await.map_err(repeatable)? {
            return Ok(());
        }
        tokio::time::sleep(SWEEP_PAUSE).await;
    }
    let message = "another transaction uses bytes of the erased blobs; erase again";
    Err(repeatable(Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::Unknown)))
}

/// Removes the contents that an erasure left. Returns false if others use some of them, such as the sweep of
/// another program, which removes only a part.
async fn erase_contents(engine: &Engine, namespace: &Namespace) -> Result<bool> {
    const OPERATION: &str = "blobs.erase";
    let (mut after, mut is_whole) = (0, true);
    loop {
        let left =
            engine.read(OPERATION, &(namespace, after), |sql, left| erased_contents(sql, *left)).await?;
        let Some(last) = left.last() else { return Ok(is_whole) };
        after = *last;
        for content in left {
            let wanted = (namespace.as_str().to_owned(), content);
            let mut swept = Swept::More;
            while swept == Swept::More {
                swept = engine.statement(OPERATION, &wanted, sweep).await?;
            }
            is_whole &= swept != Swept::Busy;
        }
    }
}

fn erase_rows<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    namespace: &'c Namespace,
) -> BoxFuture<'c, Fallible<i64>> {
    Box::pin(async move {
        let erase =
            sqlx::query_scalar(concat!("SELECT larder.erase_blobs($1, $2) WHERE ", begin_write!("3", "4")));
        let erase = erase.bind(namespace.as_str()).bind(length(ERASED_AT_ONCE));
        Ok(erase.bind(write.format).bind(write.commit).fetch_one(sql).await?)
    })
}

/// Returns the contents after a number that an erasure left for the sweep.
fn erased_contents<'c>(
    sql: &'c mut PgConnection,
    (namespace, after): (&'c Namespace, i64),
) -> BoxFuture<'c, Fallible<Vec<i64>>> {
    Box::pin(async move {
        let left = sqlx::query_scalar(
            "SELECT content FROM larder.blob_leftovers
             WHERE namespace = $1 AND content > $2 AND sweep_ms = 0 ORDER BY content LIMIT $3",
        );
        Ok(left.bind(namespace.as_str()).bind(after).bind(length(ERASED_AT_ONCE)).fetch_all(sql).await?)
    })
}
