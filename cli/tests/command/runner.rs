//! The files and processes that the runner leaves behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use larder::Registry;
use larder_cli::url;
use larder_conformance::runner::{probe, run, run_case};
use larder_conformance::{Case, CaseOutcome, CaseReport, Context, OpenOptions, RunOptions, faults};
use larder_conformance::{Effort, Harness, Stopwatch, StoreSet, Verdict};
use larder_kernel::{BucketName, Contract, ErrorKind, Key, KeyValueStoreExt, Namespace, PageRequest, Result};

#[tokio::test]
async fn a_case_that_times_out_leaves_nothing_in_its_namespaces() {
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::harnesses(&Registry::default(), &["memory:".to_owned()], scratch.path())
        .await
        .unwrap()
        .remove(0);
    let probed = probe(&*harness, Duration::from_secs(10)).await.unwrap();
    let taken: Arc<Mutex<Vec<Namespace>>> = Arc::default();
    let noted = Arc::clone(&taken);
    let case = Case::new(Contract::KeyValue, "KV-001", "hangs", move |context: Context| {
        let noted = Arc::clone(&noted);
        async move {
            for namespace in [context.namespace.clone(), context.sibling("-other")?] {
                let stores = context.open_with(&namespace, &OpenOptions::default()).await?;
                let (bucket, key) = (BucketName::new("b")?, Key::new("k")?);
                stores.key_value().unwrap().set(&bucket, &key, "v".into()).await?;
                noted.lock().unwrap().push(namespace);
            }
            std::future::pending().await
        }
    });
    let options = RunOptions { timeout: Duration::from_millis(200), ..RunOptions::default() };
    let report = run_case(&harness, &probed, &case, &options).await;
    assert_eq!(report.outcome, CaseOutcome::Failed);
    let taken = taken.lock().unwrap().clone();
    assert_eq!(taken.len(), 2);
    for namespace in taken {
        let stores = harness.open(&namespace, &OpenOptions::default()).await.unwrap();
        let page = stores.key_value().unwrap().list_buckets(PageRequest::default()).await.unwrap();
        assert!(page.items.is_empty(), "something is left in {namespace}");
    }
}

#[tokio::test]
async fn a_hanging_case_blocks_no_other_case_and_reports_stay_in_order() {
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::harnesses(&Registry::default(), &["memory:".to_owned()], scratch.path())
        .await
        .unwrap()
        .remove(0);
    let probed = probe(&*harness, Duration::from_secs(10)).await.unwrap();
    let hangs = Case::new(Contract::KeyValue, "KV-001", "hangs", |_| std::future::pending());
    let quick = (0..9).map(|number| Case::new(Contract::KeyValue, "KV-001", number, |_| async { Ok(()) }));
    let cases: Vec<Case> = std::iter::once(hangs).chain(quick).collect();
    let options = RunOptions { jobs: 2, timeout: Duration::from_secs(1), ..RunOptions::default() };
    let ended = Mutex::new(Vec::new());
    let note = |report: &CaseReport| ended.lock().unwrap().push(report.case.clone());
    let reports = run(&harness, &probed, &cases, &options, &note).await;
    assert_eq!(ended.lock().unwrap().last().unwrap(), "key_value.hangs");
    assert!(reports.iter().map(|report| &report.case).eq(cases.iter().map(|case| &case.name)));
}

#[tokio::test]
async fn every_method_of_every_contract_is_dropped() {
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::harnesses(&Registry::default(), &["memory:".to_owned()], scratch.path())
        .await
        .unwrap()
        .remove(0);
    let probed = probe(&*harness, Duration::from_secs(10)).await.unwrap();
    let effort = Effort { per_mille: 10, ..Effort::default() };
    let reports = faults::cancellations(&harness, &probed, &effort).await;
    let whole: Vec<_> = reports.iter().filter(|report| report.unit == "calls of every method").collect();
    assert_eq!(whole.len(), Contract::ALL.len());
    for report in whole {
        assert_eq!(report.verdict(), Verdict::Proven, "{report:#?}");
    }
}

#[derive(Debug)]
struct Silent;

#[async_trait]
impl Harness for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn url(&self) -> String {
        String::new()
    }

    async fn open(&self, _: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_backend_that_never_responds_is_abandoned() {
    let error = probe(&Silent, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn cases_see_the_inner_store() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = url::harnesses(&Registry::default(), &[], scratch.path()).await.unwrap();
    for inner in plain {
        let harness = Stopwatch::default().watch(Arc::clone(&inner));
        assert_eq!((harness.name(), harness.url()), (inner.name(), inner.url()));
        assert_eq!(format!("{harness:?}"), format!("{inner:?}"));
        let (namespace, options) = (Namespace::new("n").unwrap(), OpenOptions::default());
        let (watched, own) = (
            harness.open(&namespace, &options).await.unwrap(),
            inner.open(&namespace, &options).await.unwrap(),
        );
        for &contract in Contract::ALL {
            assert_eq!(watched.capabilities(contract), own.capabilities(contract));
            let (Some(watched), Some(own)) = (watched.store(contract), own.store(contract)) else { continue };
            assert_eq!(watched.namespace(), own.namespace());
            assert_eq!(format!("{watched:?}"), format!("{own:?}"));
        }
        let cypher = |set: &StoreSet| set.graph().is_ok_and(|graph| graph.as_cypher().is_some());
        assert_eq!(cypher(&watched), cypher(&own));
    }
}
