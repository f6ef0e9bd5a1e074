//! Namespaces, handles, and data that outlives them.

use larder_kernel::Contract;

use super::probe::{dump, populate, store};
use crate::case::{CaseResult, Failure};
use crate::context::Context;
use crate::expect;
use crate::harness::OpenOptions;

pub(super) async fn isolate(context: Context, contract: Contract) -> CaseResult {
    let own = context.open().await?;
    let sibling = context.sibling("x")?;
    let other = context.open_with(&sibling, &OpenOptions::default()).await?;
    let empty = dump(&other, contract).await?;
    populate(&own, contract, "mine").await?;
    let mine = dump(&own, contract).await?;
    expect::that(mine != empty, "something stored", "nothing")?;
    expect::equal("what another namespace holds", &dump(&other, contract).await?, &empty)?;
    populate(&other, contract, "mine").await?;
    populate(&other, contract, "theirs").await?;
    expect::equal(
        "the namespace, after the same ids were written in another",
        &dump(&own, contract).await?,
        &mine,
    )?;
    expect::equal("the namespace's name", store(&own, contract)?.namespace(), &context.namespace)
}

pub(super) async fn share_between_handles(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    let empty = dump(&b, contract).await?;
    for (round, marker) in ["one", "two", "three"].into_iter().enumerate() {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        populate(writer, contract, marker).await?;
        let read = dump(reader, contract).await?;
        expect::that(read != empty, "the data that the other handle wrote", "nothing")?;
        expect::that(
            read.to_string().contains(marker),
            format!("the records of round {round}"),
            "none of them",
        )?;
        expect::equal("the data that the writer reads", &dump(writer, contract).await?, &read)?;
    }
    Ok(())
}

pub(super) async fn agree_on_capabilities(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    let before = store(&a, contract)?.capabilities();
    expect::equal("the capabilities of the other handle", &store(&b, contract)?.capabilities(), &before)?;
    populate(&a, contract, "used").await?;
    expect::equal("the capabilities after use", &store(&a, contract)?.capabilities(), &before)
}

pub(super) async fn outlive_handles(context: Context, contract: Contract) -> CaseResult {
    let declared = context.open().await?.capabilities(contract).unwrap_or_default().durability;
    let isolated = context.harness.isolated().await.map_err(|error| Failure::Engine(format!("{error:?}")))?;
    let Some(harness) = isolated else {
        return Err(Failure::Engine(format!(
            "durability {declared} is declared, but the harness cannot reopen its backend; \
             implement `isolated`"
        )));
    };
    let context = Context::new(harness, context.namespace, context.seed);
    let stores = context.open().await?;
    populate(&stores, contract, "kept").await?;
    let before = dump(&stores, contract).await?;
    drop(stores);
    let stores = context.open().await?;
    expect::equal(
        "all stored data, after the backend was closed and reopened",
        &dump(&stores, contract).await?,
        &before,
    )?;
    populate(&stores, contract, "more").await?;
    drop(stores);
    context.harness.destroy().await.map_err(|error| Failure::Engine(format!("{error:?}")))
}
