//! Erasing a namespace.

use larder_kernel::Contract;

use super::probe::{dump, populate, store};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::harness::OpenOptions;

pub(super) async fn empties(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    let empty = dump(&b, contract).await?;
    populate(&a, contract, "first").await?;
    populate(&b, contract, "second").await?;
    store(&a, contract)?.erase().await?;
    expect::equal("what the erasing handle reads", &dump(&a, contract).await?, &empty)?;
    expect::equal("what the other handle reads", &dump(&b, contract).await?, &empty)
}

pub(super) async fn stays_within(context: Context, contract: Contract) -> CaseResult {
    let own = context.open().await?;
    populate(&own, contract, "same").await?;
    let mut kept = Vec::new();
    for suffix in ["x", "%", "/", "_"] {
        let other = context.open_with(&context.sibling(suffix)?, &OpenOptions::default()).await?;
        populate(&other, contract, "same").await?;
        kept.push((dump(&other, contract).await?, other));
    }
    store(&own, contract)?.erase().await?;
    for (before, other) in kept {
        expect::equal("a namespace whose name begins alike", &dump(&other, contract).await?, &before)?;
    }
    Ok(())
}

pub(super) async fn of_nothing(context: Context, contract: Contract) -> CaseResult {
    let stores = context.open().await?;
    let empty = dump(&stores, contract).await?;
    store(&stores, contract)?.erase().await?;
    store(&stores, contract)?.erase().await?;
    expect::equal("what the namespace holds", &dump(&stores, contract).await?, &empty)
}

pub(super) async fn then_use(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    populate(&a, contract, "old").await?;
    store(&b, contract)?.erase().await?;
    populate(&a, contract, "new").await?;
    let text = dump(&b, contract).await?.to_string();
    expect::that(text.contains("new"), "what was written after the erasure", "nothing of it")?;
    expect::that(!text.contains("old"), "nothing of what was erased", "some of it")
}
