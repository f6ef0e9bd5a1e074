//! The tools: their names, arguments, results and contracts.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use larder_kernel::{Contract, Error, ErrorKind, Result};
use rmcp::handler::server::common::{schema_for_empty_input, schema_for_input};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{answer, argument, failure::Failure};
use larder_kernel::StoreSet;

/// The state that all tools of a server share.
pub(crate) struct Shared {
    pub(crate) stores: StoreSet,
    /// Held while an entity is read, changed and written at its revision, so that only other servers
    /// conflict.
    pub(crate) entities: tokio::sync::Mutex<()>,
}

type Run = Box<dyn Fn(Arc<Shared>, JsonObject) -> BoxFuture<'static, Result<Value, Failure>> + Send + Sync>;

/// A tool and its implementation.
pub(crate) struct Entry {
    pub(crate) tool: Tool,
    pub(crate) contract: Contract,
    pub(crate) effect: Effect,
    run: Run,
}

impl Entry {
    pub(crate) fn call(
        &self,
        shared: &Arc<Shared>,
        arguments: JsonObject,
    ) -> BoxFuture<'static, Result<Value, Failure>> {
        (self.run)(Arc::clone(shared), arguments)
    }
}

/// The effect of a call on the store, for the hints of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Reads,
    /// Adds something each time.
    Adds,
    /// Adds something once; a second call changes nothing.
    AddsOnce,
    /// Replaces or removes data; a second call has the same result.
    Replaces,
    /// Changes data; a second call changes it again or is refused.
    Changes,
}

impl Effect {
    fn hints(self, title: &str) -> ToolAnnotations {
        ToolAnnotations::with_title(title)
            .read_only(self == Self::Reads)
            .destructive(matches!(self, Self::Replaces | Self::Changes))
            .idempotent(matches!(self, Self::Reads | Self::AddsOnce | Self::Replaces))
            .open_world(false)
    }
}

/// Creates an entry from a function of arguments to a result.
pub(crate) fn entry<I, O, F>(
    contract: Contract,
    effect: Effect,
    name: &'static str,
    title: &'static str,
    description: &'static str,
    run: fn(Arc<Shared>, I) -> F,
) -> Entry
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + 'static,
    F: Future<Output = Result<O>> + Send + 'static,
{
    // A test verifies that every input is an object.
    let input = schema_for_input::<I>().unwrap_or_else(|_| schema_for_empty_input());
    let tool = Tool::new(name, description, input)
        .with_title(title)
        .with_annotations(effect.hints(title))
        .with_output_schema::<O>();
    let schema = Arc::clone(&tool.input_schema);
    let run: Run = Box::new(move |shared, arguments| {
        let input = argument::read(&schema, arguments);
        Box::pin(async move {
            let output = run(shared, input?).await?;
            Ok(value(name, &output)?)
        })
    });
    Entry { tool, contract, effect, run }
}

fn value<O: Serialize>(operation: &'static str, output: &O) -> Result<Value> {
    let value = serde_json::to_value(output);
    let value = value
        .map_err(|_| Error::new(ErrorKind::Unexpected, operation, "the result cannot be written as JSON"))?;
    answer::check_size(operation, answer::size(&value)?, "the result is too large; request less")?;
    Ok(value)
}

/// Returns whether the stores provide the contract.
pub(crate) fn provides(stores: &StoreSet, contract: Contract) -> Result<()> {
    match contract {
        Contract::History => stores.history().map(drop),
        Contract::Vectors => stores.vectors().map(drop),
        Contract::Graph => stores.graph().map(drop),
        Contract::Blobs => stores.blobs().map(drop),
        Contract::Tasks => stores.tasks().map(drop),
        Contract::KeyValue => stores.key_value().map(drop),
    }
}
