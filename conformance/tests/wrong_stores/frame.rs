//! What the wrong stores have in common: a harness that serves one contract, and the two verdicts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::MemoryPlace;
use larder_conformance::{
    Case, Harness, OpenOptions, Report, RunOptions, StoreSet, describe, runner, suites,
};
use larder_kernel::{Contract, Namespace, Result};

type Open = dyn Fn(&MemoryPlace, Namespace, &OpenOptions) -> StoreSet + Send + Sync;

/// Which place and namespace an opening reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Those asked for.
    Right,
    /// One namespace, whichever was asked for.
    OneNamespace,
    /// A place of its own for each handle.
    HandlesApart,
}

/// Serves the stores that a function opens.
struct Served {
    places: [MemoryPlace; 2],
    opening: Opening,
    open: Box<Open>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

#[async_trait]
impl Harness for Served {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn url(&self) -> String {
        "memory://".to_owned()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let place = if self.opening == Opening::HandlesApart { options.handle % 2 } else { 0 };
        let namespace = match self.opening {
            Opening::OneNamespace => Namespace::new("one")?,
            _ => namespace.clone(),
        };
        Ok((self.open)(&self.places[place], namespace, options))
    }
}

/// A harness of the stores that a function opens, which must be of one contract only.
pub(crate) fn serve(
    opening: Opening,
    open: impl Fn(&MemoryPlace, Namespace, &OpenOptions) -> StoreSet + Send + Sync + 'static,
) -> Arc<dyn Harness> {
    let places = [MemoryPlace::new(), MemoryPlace::new()];
    Arc::new(Served { places, opening, open: Box::new(open) })
}

fn run(harness: &Arc<dyn Harness>, options: &RunOptions, wanted: impl Fn(&Case) -> bool) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let cases: Vec<_> = suites::all().into_iter().filter(|case| wanted(case)).collect();
        let probed = runner::probe(&**harness, options.timeout).await.unwrap();
        let reports = runner::run(harness, &probed, &cases, options, &|_| {}).await;
        let mut report = Report::new(options.seed);
        report.add(probed.backend, reports);
        report
    })
}

/// Asserts that the suite finds nothing wrong.
#[track_caller]
pub(crate) fn assert_passes(contract: Contract, harness: &Arc<dyn Harness>) {
    let report = run(harness, &RunOptions::default(), |case| case.contract == contract);
    let summary = report.summary;
    assert!(summary.passed > 0, "no case of {contract} ran");
    assert!(summary.failed == 0 && summary.errors == 0, "{}", describe(&report));
}

/// Asserts that a case of each of the clauses fails. Only where one does not, the whole suite of the contract runs, to
/// tell who noticed instead.
#[track_caller]
pub(crate) fn assert_caught(contract: Contract, clauses: &[&str], harness: &Arc<dyn Harness>) {
    let options = RunOptions { jobs: 32, timeout: Duration::from_secs(3), ..RunOptions::default() };
    let of_contract = |case: &Case| case.contract == contract;
    let report = run(harness, &options, |case| of_contract(case) && clauses.contains(&case.clause));
    let broken = report.broken_clauses();
    let unnoticed: Vec<_> = clauses.iter().filter(|clause| !broken.contains(clause)).collect();
    if !unnoticed.is_empty() {
        let whole = run(harness, &options, of_contract);
        panic!("not noticed by {unnoticed:?}, but by {:?}\n{}", whole.broken_clauses(), describe(&whole));
    }
}

/// Names the sins of a contract, each with its test and the clauses that must notice, and makes the tests, those of the
/// sins that every contract knows included. It expects a function `backend(sin: Sin) -> Arc<dyn Harness>` beside it.
macro_rules! sins {
    ($contract:ident; $($test:ident: $sin:ident => [$($clause:literal),+]),+ $(,)?) => {
        sins! { @all $contract;
            namespaces_are_ignored: NamespacesIgnored => ["STORE-001", "STORE-007"],
            handles_reach_different_places: HandlesApart => ["STORE-002"],
            capabilities_change: CapabilitiesChange => ["STORE-004"],
            an_erasure_does_nothing: EraseDoesNothing => ["STORE-006", "STORE-009"],
            $($test: $sin => [$($clause),+]),+
        }
    };
    (@all $contract:ident; $($test:ident: $sin:ident => [$($clause:literal),+]),+) => {
        /// What a store does wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Sin {
            None,
            $($sin),+
        }

        impl Sin {
            fn opening(self) -> $crate::frame::Opening {
                match self {
                    Self::NamespacesIgnored => $crate::frame::Opening::OneNamespace,
                    Self::HandlesApart => $crate::frame::Opening::HandlesApart,
                    _ => $crate::frame::Opening::Right,
                }
            }
        }

        #[test]
        fn the_control_passes() {
            let contract = ::larder_kernel::Contract::$contract;
            $crate::frame::assert_passes(contract, &backend(Sin::None));
        }

        $(
            #[test]
            fn $test() {
                let contract = ::larder_kernel::Contract::$contract;
                $crate::frame::assert_caught(contract, &[$($clause),+], &backend(Sin::$sin));
            }
        )+
    };
}

/// Forwards what all contracts share to the field `inner`, unless the sin is one of these calls'. A second argument turns
/// what the inner store declares into what this one does.
macro_rules! forward_store {
    ($store:ident) => {
        forward_store!($store, |_: &$store, declared| declared);
    };
    ($store:ident, $declare:expr) => {
        #[::async_trait::async_trait]
        impl ::larder_kernel::Store for $store {
            fn namespace(&self) -> &::larder_kernel::Namespace {
                self.inner.namespace()
            }

            fn capabilities(&self) -> ::larder_kernel::Capabilities {
                use ::std::sync::atomic::{AtomicUsize, Ordering};
                static ASKED: AtomicUsize = AtomicUsize::new(0);
                let mut declared: ::larder_kernel::Capabilities = ($declare)(self, self.inner.capabilities());
                if self.sin == Sin::CapabilitiesChange && ASKED.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                    declared.durability = ::larder_kernel::Durability::Power;
                }
                declared
            }

            async fn erase(&self) -> ::larder_kernel::Result<()> {
                match self.sin {
                    Sin::EraseDoesNothing => Ok(()),
                    _ => self.inner.erase().await,
                }
            }
        }
    };
}
