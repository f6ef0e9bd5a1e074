//! Fields × values: every value reads back exactly, by every method that returns values.

use larder_kernel::{KeyValueEventKind, Revision};

use super::support::{bucket, bytes, next, read, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::values::TEXTS;

pub(super) async fn every_text_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("fields")?;
    for (number, text) in TEXTS.iter().enumerate() {
        set(&*a, &bucket, &number.to_string(), text).await?;
        let found = read(&*b, &bucket, &number.to_string()).await?;
        expect::equal("the value", &found.value, &bytes(text))?;
    }
    Ok(())
}

pub(super) async fn events_carry_every_text(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("fields")?;
    let mut live = b.watch(&bucket, "", Revision::ZERO).await?;
    for (number, text) in TEXTS.iter().enumerate() {
        set(&*a, &bucket, &number.to_string(), text).await?;
    }
    let mut backlog = b.watch(&bucket, "", Revision::ZERO).await?;
    for events in [&mut live, &mut backlog] {
        for text in TEXTS {
            match next(events, "with a value").await?.kind {
                KeyValueEventKind::Put { value, .. } => {
                    expect::equal("the event's value", &value, &bytes(text))?;
                }
                other => return Err(expect::broken("a put", format!("{other:?}"))),
            }
        }
    }
    Ok(())
}
