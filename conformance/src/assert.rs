//! The suite as one test of another crate.

use std::sync::Arc;

use crate::harness::Harness;
use crate::report::Report;
use crate::runner::RunOptions;
use crate::suite::Suite;

/// Runs every case that the harness can serve, on a new runtime. [`Suite`] offers more options.
///
/// # Errors
/// A sentence if the backend cannot be opened or cleaned up, or if the runtime cannot be created.
#[doc(hidden)]
pub fn check(harness: &Arc<dyn Harness>, options: &RunOptions) -> Result<Report, String> {
    let mut report = Suite::shared(Arc::clone(harness)).with_options(options.clone()).run_blocking();
    report.absent.pop().map_or(Ok(report), |absent| Err(absent.reason))
}

/// Defines one `#[test]` that checks a backend: with every case, or with the named levels.
///
/// The test creates a runtime. To check more in the same test, use a `#[tokio::test(flavor =
/// "multi_thread")]` and await [`Suite::run`].
///
/// ```
/// use larder_conformance::kernel::{Namespace, Result};
/// use larder_conformance::{Harness, Level, OpenOptions, StoreSet, Suite, async_trait, conformance_test};
///
/// #[derive(Debug, Default)]
/// struct MyHarness;
///
/// #[async_trait]
/// impl Harness for MyHarness {
///     fn name(&self) -> &str {
///         "mine"
///     }
///     fn url(&self) -> String {
///         "mine:".to_owned()
///     }
///     async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
///         Ok(StoreSet::default()) // the stores of your backend, opened in the namespace
///     }
/// }
///
/// conformance_test!(my_store_conforms, MyHarness);
/// conformance_test!(my_store_bears_clients, MyHarness, levels: [Level::Model, Level::Concurrent]);
/// ```
#[macro_export]
macro_rules! conformance_test {
    ($name:ident, $harness:expr) => {
        #[test]
        fn $name() {
            $crate::Suite::new($harness).assert();
        }
    };
    ($name:ident, $harness:expr, levels: [$($level:expr),+ $(,)?]) => {
        #[test]
        fn $name() {
            $crate::Suite::new($harness).levels([$($level),+]).assert();
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use async_trait::async_trait;
    use larder_kernel::{Error, ErrorKind, Namespace, Result};

    use super::*;
    use crate::harness::{OpenOptions, StoreSet};

    #[derive(Debug)]
    struct Stuck;

    #[async_trait]
    impl Harness for Stuck {
        fn name(&self) -> &str {
            "stuck"
        }

        fn url(&self) -> String {
            String::new()
        }

        async fn open(&self, _: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
            let (begun, begins) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                begun.send(()).ok();
                std::thread::sleep(Duration::from_secs(20));
            });
            begins.await.ok();
            Err(Error::new(ErrorKind::Unavailable, "open", "no answer"))
        }
    }

    #[test]
    fn a_backend_that_blocks_a_thread_does_not_delay_the_result() {
        let begun = Instant::now();
        let harness: Arc<dyn Harness> = Arc::new(Stuck);
        assert!(check(&harness, &RunOptions::default()).is_err());
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
}
