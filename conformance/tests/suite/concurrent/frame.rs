//! Shared code of the faulty stores.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::MemoryBackend;
use larder_conformance::{Effort, Harness, LevelReport, OpenOptions, StoreSet, Verdict, concurrent, runner};
use larder_kernel::{Namespace, Result};

type Open = dyn Fn(&MemoryBackend, Namespace, usize) -> StoreSet + Send + Sync;

/// Serves the stores that a function opens on one backend, given the number of the handle.
struct Served {
    place: MemoryBackend,
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
        "memory:".to_owned()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        Ok((self.open)(&self.place, namespace.clone(), options.handle))
    }
}

/// Returns a harness of the stores that a function opens, which must be of one contract only.
pub(crate) fn serve(
    open: impl Fn(&MemoryBackend, Namespace, usize) -> StoreSet + Send + Sync + 'static,
) -> Arc<dyn Harness> {
    Arc::new(Served { place: MemoryBackend::new(), open: Box::new(open) })
}

/// Runs a share of the 500 histories of the one contract that the harness serves.
fn run(harness: &Arc<dyn Harness>, timeout: Duration, per_mille: u32) -> LevelReport {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let effort = Effort { seed: 7, per_mille, timeout, ..Effort::default() };
    let mut reports = runtime.block_on(async {
        let probed = runner::probe(&**harness, effort.timeout).await.unwrap();
        concurrent::run(harness, &probed, &effort).await
    });
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

/// Asserts that the level finds no defect, and that the run is too small for a proof.
#[track_caller]
pub(crate) fn assert_explained(harness: &Arc<dyn Harness>) {
    let report = run(harness, Duration::from_secs(30), 400);
    assert_eq!(report.verdict(), Verdict::NotProven, "{report:#?}");
    assert!((200..500).contains(&report.executed), "{report:#?}");
}

/// Asserts that the level finds a defect and names one of the clauses.
#[track_caller]
pub(crate) fn assert_caught(clauses: &[&str], harness: &Arc<dyn Harness>) {
    assert_caught_in(clauses, harness, Duration::from_secs(30));
}

/// The same as [`assert_caught`], with a time limit for each call.
#[track_caller]
pub(crate) fn assert_caught_in(clauses: &[&str], harness: &Arc<dyn Harness>, timeout: Duration) {
    let report = run(harness, timeout, 1_000);
    assert_eq!(report.verdict(), Verdict::Broken, "{report:#?}");
    // The report may also name the clause of a later client that finds the damage, but not only that clause.
    let blamed: Vec<&str> = report.counterexamples.iter().map(|found| found.clause).collect();
    let scripts = report.counterexamples.iter().map(|found| found.script.as_str());
    assert!(
        blamed.iter().any(|clause| clauses.contains(clause)),
        "{blamed:?}\n{}",
        scripts.collect::<String>()
    );
}

/// Implements a contract's trait for a wrapper: the given methods first, and the rest by the field `inner`.
macro_rules! wrong {
    (
        $contract:ident for $store:ident { $($own:tt)* }
        $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*
    ) => {
        #[::async_trait::async_trait]
        impl ::larder_kernel::Store for $store {
            fn namespace(&self) -> &::larder_kernel::Namespace {
                self.inner.namespace()
            }

            fn capabilities(&self) -> ::larder_kernel::Capabilities {
                self.inner.capabilities()
            }

            fn options(&self) -> ::larder_kernel::OptionSet {
                self.inner.options()
            }

            async fn erase(&self) -> ::larder_kernel::Result<()> {
                self.inner.erase().await
            }
        }

        #[::async_trait::async_trait]
        impl ::larder_kernel::$contract for $store {
            $($own)*

            $(async fn $name(&self, $($arg: $type),*) -> ::larder_kernel::Result<$answer> {
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

/// Lets other tasks run in between.
pub(crate) async fn pause() {
    tokio::task::yield_now().await;
    std::thread::yield_now();
}
