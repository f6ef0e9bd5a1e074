//! Cases: the clauses that they prove, the capabilities that they need, and their results.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Capability, Contract};
use serde::{Deserialize, Serialize};

use crate::context::Context;
pub(crate) use crate::failure::implemented;
pub use crate::failure::{CaseResult, Failure};

/// The intensity of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Level {
    /// Normal use, as the contract describes it.
    Contract,
    /// Bad input and hostile ids.
    Hostile,
    /// Random operations, compared with a sequential model.
    Model,
    /// Several concurrent clients whose histories are checked for linearizability.
    Concurrent,
    /// Processes and servers that are killed during writes.
    Durable,
    /// A network that cuts, delays and drops data.
    Faults,
}

impl Level {
    /// All levels, the gentlest first.
    pub const ALL: &'static [Self] =
        &[Self::Contract, Self::Hostile, Self::Model, Self::Concurrent, Self::Durable, Self::Faults];

    /// Returns the name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Hostile => "hostile",
            Self::Model => "model",
            Self::Concurrent => "concurrent",
            Self::Durable => "durable",
            Self::Faults => "faults",
        }
    }
}

type Run = Arc<dyn Fn(Context) -> BoxFuture<'static, CaseResult> + Send + Sync>;

/// A small program that proves one clause against any backend.
#[derive(Clone)]
pub struct Case {
    /// The stable name: the contract, then the behavior.
    pub name: String,
    /// The clause that the case proves.
    pub clause: &'static str,
    /// The contract that the case exercises.
    pub contract: Contract,
    /// The level of the case.
    pub level: Level,
    /// The capabilities that the case requires.
    pub needs: Vec<Capability>,
    /// True if the case needs data to outlive its handles.
    pub needs_durability: bool,
    /// The factor by which the time limit of the case exceeds that of a run: a slow server writes many items.
    pub(crate) time_factor: u32,
    run: Run,
}

impl Case {
    /// Creates a case of the level `contract` that needs no optional capability.
    pub fn new<F, R>(contract: Contract, clause: &'static str, name: impl fmt::Display, run: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = CaseResult> + Send + 'static,
    {
        Self {
            name: format!("{contract}.{name}"),
            clause,
            contract,
            level: Level::Contract,
            needs: Vec::new(),
            needs_durability: false,
            time_factor: 1,
            run: Arc::new(move |context| run(context).boxed()),
        }
    }

    /// Sets the level.
    #[must_use]
    pub fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Adds a capability that the case requires.
    #[must_use]
    pub fn needing(mut self, capability: Capability) -> Self {
        self.needs.push(capability);
        self
    }

    /// Declares that the case needs data to outlive its handles.
    #[must_use]
    pub fn needing_durability(mut self) -> Self {
        self.needs_durability = true;
        self
    }

    /// Declares that the case makes many calls, so its time limit is five times that of a run.
    #[must_use]
    pub(crate) fn with_many_calls(mut self) -> Self {
        self.time_factor = 5;
        self
    }

    /// Runs the case.
    pub fn run(&self, context: Context) -> BoxFuture<'static, CaseResult> {
        (self.run)(context)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("clause", &self.clause).finish_non_exhaustive()
    }
}

/// Makes a [`Case`] from an `async fn(Context) -> CaseResult`, named after it.
macro_rules! case {
    ($contract:ident, $clause:literal, $run:path) => {
        $crate::Case::new(
            ::larder_kernel::Contract::$contract,
            $clause,
            stringify!($run).rsplit("::").next().unwrap_or_default().trim(),
            $run,
        )
    };
}
pub(crate) use case;
