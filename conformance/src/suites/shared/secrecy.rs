//! Errors and `Debug` forms never show stored text or ids.

use std::error::Error as _;

use larder_kernel::{Contract, Error};

use super::probe::{populate, provoke, store};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

pub(super) async fn keeps_canaries(context: Context, contract: Contract) -> CaseResult {
    const CANARY: &str = "canary7f3a";
    let stores = context.open().await?;
    populate(&stores, contract, CANARY).await?;
    let shown = format!("{:?}", store(&stores, contract)?);
    expect::that(!shown.contains(CANARY), "a Debug form without stored text", "it shows stored text")?;
    let provoked = provoke(&stores, contract, CANARY).await?;
    expect::that(!provoked.is_empty(), "errors to look at", "none came")?;
    for error in provoked {
        let text = everything(&error);
        let silent = !text.contains(CANARY);
        expect::that(
            silent,
            format!("a {} error without stored text", error.kind()),
            "it shows stored text",
        )?;
    }
    Ok(())
}

/// Returns all text that an error can show: both forms of it and of each cause.
fn everything(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}
