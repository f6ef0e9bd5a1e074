//! A store that lacks methods is incomplete: the suite never reports it as faulty for them, and never passes
//! it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::storage::{InMemoryHistoryProvider, MemoryBackend};
use larder_conformance::{CaseOutcome, Harness, Level, OpenOptions, Report, StoreSet, Suite, Verdict};
use larder_kernel::{
    AppendOptions, Appended, BlobStore, Capabilities, ChatMessage, Contract, Durability, FencingToken,
    GraphStore, HistoryProvider, KeyValueStore, MessagePage, Namespace, OptionSet, RequestOption, Result,
    Seq, Store, TaskStore, Thread, ThreadInfo, VectorStore,
};

/// A history with six of its thirteen methods, all of them correct.
#[derive(Debug)]
struct SixMethods(InMemoryHistoryProvider);

#[async_trait]
impl Store for SixMethods {
    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.0.options()
    }

    async fn erase(&self) -> Result<()> {
        self.0.erase().await
    }
}

#[async_trait]
impl HistoryProvider for SixMethods {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        self.0.append_many(thread, messages, options).await
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<MessagePage> {
        self.0.get_messages(thread, offset, limit).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<MessagePage> {
        self.0.tail(thread, before, limit).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        self.0.page_after(thread, after, limit).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        self.0.thread_info(thread).await
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        self.0.clear(thread, fence).await
    }
}

#[derive(Debug, Default)]
struct SixMethodsHarness(MemoryBackend);

#[async_trait]
impl Harness for SixMethodsHarness {
    fn name(&self) -> &str {
        "six"
    }

    fn url(&self) -> String {
        "six:".to_owned()
    }

    async fn open(&self, namespace: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        let history = SixMethods(InMemoryHistoryProvider::open(&self.0, namespace.clone()));
        Ok(StoreSet::default().with_history(Arc::new(history)))
    }
}

/// A store of every contract without a single method.
#[derive(Debug, Clone)]
struct NoMethods(Namespace);

#[async_trait]
impl Store for NoMethods {
    fn namespace(&self) -> &Namespace {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(RequestOption::ALL)
    }

    async fn erase(&self) -> Result<()> {
        Ok(())
    }
}

impl HistoryProvider for NoMethods {}
impl VectorStore for NoMethods {}
impl GraphStore for NoMethods {}
impl BlobStore for NoMethods {}
impl TaskStore for NoMethods {}
impl KeyValueStore for NoMethods {}

#[derive(Debug)]
struct NoMethodsHarness;

#[async_trait]
impl Harness for NoMethodsHarness {
    fn name(&self) -> &str {
        "none"
    }

    fn url(&self) -> String {
        "none:".to_owned()
    }

    async fn open(&self, namespace: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        let store = Arc::new(NoMethods(namespace.clone()));
        Ok(StoreSet::default()
            .with_history(store.clone())
            .with_vectors(store.clone())
            .with_graph(store.clone())
            .with_blobs(store.clone())
            .with_tasks(store.clone())
            .with_key_value(store))
    }
}

/// Asserts that the existing methods have no defect, and that the run proves nothing.
fn waits(report: &Report) {
    let wrong: Vec<_> = report.failures().map(|case| (&case.case, &case.reason)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report.summary.errors, 0, "{report}");
    assert_eq!(report.exit_code(), 2);
    let verdicts = report.standings().remove(0).levels.into_iter().map(|level| level.verdict);
    assert!(
        verdicts.clone().count() > 0 && verdicts.into_iter().all(|verdict| verdict == Verdict::NotProven)
    );
}

#[test]
fn a_missing_method_counts_as_waiting_and_not_as_a_failure() {
    let report = Suite::new(SixMethodsHarness::default()).run_blocking();
    waits(&report);
    assert!(report.summary.passed > 130, "{report}");
    let missing = report.missing_methods();
    assert_eq!(missing.len(), 9, "{missing:?}");
    assert_eq!(missing.iter().map(|(_, count)| count).sum::<usize>(), report.summary.waiting);
    let text = report.to_string();
    let summary =
        format!("{} passed, 0 wrong, {} waiting for: ", report.summary.passed, report.summary.waiting);
    assert!(
        text.contains(&summary) && text.contains("clauses wrong: none\nclauses waiting: HIST-"),
        "{text}"
    );
    assert!(report.waiting_clauses().contains(&"HIST-040"), "the clauses of fork wait");
}

#[test]
fn a_store_without_methods_waits_for_all_of_them() {
    let report = Suite::new(NoMethodsHarness).run_blocking();
    waits(&report);
    let of = |contract| report.cases.iter().filter(move |case| case.contract == contract);
    for &contract in Contract::ALL {
        let waiting = of(contract).filter(|case| case.outcome == CaseOutcome::Waiting).count();
        assert!(waiting > 20, "{contract}: {waiting}");
    }
}

#[test]
fn the_levels_beyond_the_cases_prove_nothing_of_it() {
    let levels = [Level::Model, Level::Concurrent];
    let report = Suite::new(SixMethodsHarness::default()).levels(levels).per_mille(20).run_blocking();
    let found: Vec<_> = report.levels.iter().flat_map(|level| &level.counterexamples).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(report.exit_code(), 2, "{report}");
}
