//! Two third-party backends, each a store and a harness of a dozen lines, and the suite's results: one
//! backend is incomplete, one makes false declarations.
mod liar;
mod store;

use std::sync::Arc;

use larder_conformance::kernel::{Namespace, Result};
use larder_conformance::{Harness, OpenOptions, RunOptions, StoreSet, check, clauses};
use liar::LyingHarness;
use store::AfternoonHistory;

#[derive(Debug, Default)]
struct AfternoonHarness(std::sync::OnceLock<AfternoonHistory>);

#[async_trait::async_trait]
impl Harness for AfternoonHarness {
    fn name(&self) -> &str {
        "afternoon"
    }
    fn url(&self) -> String {
        "afternoon:".to_owned()
    }
    async fn open(&self, namespace: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        let place =
            self.0.get_or_init(|| AfternoonHistory { namespace: namespace.clone(), threads: Arc::default() });
        let history = AfternoonHistory { namespace: namespace.clone(), ..place.clone() };
        Ok(StoreSet::default().with_history(Arc::new(history)))
    }
}

fn main() {
    let harness: Arc<dyn Harness> = Arc::new(AfternoonHarness::default());
    let report = check(&harness, &RunOptions::default()).unwrap_or_else(|reason| panic!("{reason}"));
    // The first line counts cases, and new cases of the suite would change it.
    for line in report.conclusion().lines().skip(1) {
        println!("{line}");
    }

    let harness: Arc<dyn Harness> = Arc::new(LyingHarness::kept());
    let report = check(&harness, &RunOptions::default()).unwrap_or_else(|reason| panic!("{reason}"));
    println!("\nthe liar:");
    let broken = report.broken_clauses();
    for clause in clauses().iter().filter(|clause| broken.contains(&clause.id.as_str())) {
        println!("{} does not hold: {}", clause.id, clause.sentence);
    }
    println!("clauses that wait for a method: {}", report.waiting_clauses().len());
}
