//! The whole suite on each layer, and on all of them together, over embedded backends: one test for each case, and the
//! levels in small on the stack.
#![allow(clippy::expect_used)]

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::wrap::{
    BlobCacheLayer, ConcurrencyLimitLayer, EncryptionKey, EncryptionLayer, KeyRing, Layer, Layers,
    MetricsLayer, RetryLayer, Tenant, TimeoutLayer, TraceLayer,
};
use larder_conformance::{Effort, Harness, LevelReport, OpenOptions, RunOptions, StoreSet, Verdict};
use larder_conformance::{concurrent, faults, mimic, model, runner, url};
use larder_kernel::{Namespace, Result};
use libtest_mimic::{Arguments, Failed, Trial};

/// Which layers stand around the stores of a namespace, which namespace lies behind them, and with what it is opened.
type Stack = fn(&Namespace, &OpenOptions) -> Result<(Layers, Namespace, OpenOptions)>;

/// A backend with layers around its stores.
struct Layered {
    name: String,
    inner: Arc<dyn Harness>,
    stack: Stack,
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Harness for Layered {
    fn name(&self) -> &str {
        &self.name
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let (layers, behind, options) = (self.stack)(namespace, options)?;
        let stores = self.inner.open(&behind, &options).await?;
        Ok(StoreSet {
            history: stores.history.map(|store| layers.history(store)),
            vectors: stores.vectors.map(|store| layers.vectors(store)),
            graph: stores.graph.map(|store| layers.graph(store)),
            blobs: stores.blobs.map(|store| layers.blobs(store)),
            tasks: stores.tasks.map(|store| layers.tasks(store)),
            key_value: stores.key_value.map(|store| layers.key_value(store)),
        })
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        let Some(inner) = self.inner.isolated().await? else { return Ok(None) };
        Ok(Some(Arc::new(Self { name: self.name.clone(), inner, stack: self.stack })))
    }

    async fn destroy(&self) -> Result<()> {
        self.inner.destroy().await
    }
}

/// Layers that ask nothing of the namespace or the embedder.
macro_rules! around {
    ($layers:expr) => {
        |namespace, options| Ok((Layers::new().with($layers), namespace.clone(), options.clone()))
    };
}

const LONG: Duration = Duration::from_secs(60);
const CACHE_BYTES: usize = 16 * 1024 * 1024;

const LAYERS: &[(&str, Stack)] = &[
    ("trace", around!(TraceLayer::new("test").with_names())),
    ("metrics", around!(MetricsLayer::new("test"))),
    ("retry", around!(RetryLayer::new())),
    ("timeout", around!(TimeoutLayer::new(LONG))),
    ("limit", around!(ConcurrencyLimitLayer::new(64))),
    ("cache", around!(BlobCacheLayer::new(CACHE_BYTES))),
    ("tenant", tenant),
    ("encryption", encryption),
];

fn tenant(namespace: &Namespace, options: &OpenOptions) -> Result<(Layers, Namespace, OpenOptions)> {
    let tenant = Tenant::new("acme")?.enter(namespace)?;
    let behind = tenant.behind().clone();
    Ok((Layers::new().with(tenant), behind, options.clone()))
}

/// A key that seals, and one from before a rotation.
fn sealing(options: &OpenOptions) -> EncryptionLayer {
    let ring = KeyRing::new(&EncryptionKey::new([7; 32])).with_older(&EncryptionKey::new([6; 32]));
    let layer = EncryptionLayer::new(ring);
    match &options.embedder {
        Some(embedder) => layer.with_embedder(Arc::clone(embedder)),
        None => layer,
    }
}

fn encryption(namespace: &Namespace, options: &OpenOptions) -> Result<(Layers, Namespace, OpenOptions)> {
    let behind = OpenOptions { embedder: None, ..options.clone() };
    Ok((Layers::new().with(sealing(options)), namespace.clone(), behind))
}

fn all(namespace: &Namespace, options: &OpenOptions) -> Result<(Layers, Namespace, OpenOptions)> {
    let tenant = Tenant::new("acme")?.enter(namespace)?;
    let behind = tenant.behind().clone();
    let layers = Layers::new()
        .trace("test")
        .metrics("test")
        .with(tenant)
        .retry(RetryLayer::new())
        .timeout(LONG)
        .limit(64)
        .with(BlobCacheLayer::new(CACHE_BYTES))
        .with(sealing(options));
    Ok((layers, behind, OpenOptions { embedder: None, ..options.clone() }))
}

/// A share of what the levels do to prove a backend, enough to meet each kind of operation.
const SMALL: Effort = Effort { seed: 1, long: false, timeout: Duration::from_secs(30), per_mille: 20 };

/// Fails where a level found something, could not go on or did nothing.
fn judged(reports: &[LevelReport]) -> std::result::Result<(), Failed> {
    let wrong = |report: &&LevelReport| {
        matches!(report.verdict(), Verdict::Broken | Verdict::Error) || report.executed == 0
    };
    match reports.iter().find(wrong) {
        Some(report) => Err(Failed::from(format!("{report:?}"))),
        None => Ok(()),
    }
}

/// The levels `model`, `concurrent` and the cancellations of `faults` on one backend.
fn levels(runtime: &Arc<tokio::runtime::Runtime>, harness: &Arc<dyn Harness>) -> Vec<Trial> {
    ["model", "concurrent", "cancellations"]
        .into_iter()
        .map(|level| {
            let (runtime, harness) = (Arc::clone(runtime), Arc::clone(harness));
            Trial::test(format!("{}::level::{level}", harness.name()), move || {
                runtime.block_on(async {
                    let probed = runner::probe(&*harness, SMALL.timeout).await?;
                    judged(&match level {
                        "model" => model::run(&harness, &probed, &SMALL).await,
                        "concurrent" => concurrent::run(&harness, &probed, &SMALL).await,
                        _ => faults::cancellations(&harness, &probed, &SMALL).await,
                    })
                })
            })
        })
        .collect()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A filter over sealed messages opens each of them, slowly in a build for tests.
    let options = RunOptions { timeout: 3 * LONG, ..RunOptions::default() };
    // Some cases wait for a time to live to pass; those of encryption compute.
    arguments.test_threads.get_or_insert((options.jobs / 2).max(2));
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let backends = runtime.block_on(url::harnesses(&[], scratch.path())).expect("the embedded backends open");
    let mut trials = Vec::new();
    for inner in &backends {
        let layers = LAYERS.iter().filter(|_| inner.name() == "memory");
        for (layer, stack) in layers.chain([&("all", all as Stack)]) {
            let name = format!("{layer}({})", inner.name());
            let harness: Arc<dyn Harness> =
                Arc::new(Layered { name, inner: Arc::clone(inner), stack: *stack });
            trials.extend(mimic::trials(&runtime, &harness, &options).expect("the backend answers"));
            if *layer == "all" {
                trials.extend(levels(&runtime, &harness));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
