//! The judge of the faults around a backend: it accepts a store that is not affected, and finds a fault
//! without an effect and a write that is lost.

use crate::memory::Memory;

use super::*;

/// A fault that changes nothing.
struct Inert {
    harness: Arc<dyn Harness>,
    /// The harness that reads afterwards.
    direct: Arc<dyn Harness>,
    kinds: &'static [ErrorKind],
}

#[async_trait]
impl EdgeFault for Inert {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    fn direct(&self) -> Option<Arc<dyn Harness>> {
        Some(Arc::clone(&self.direct))
    }

    fn call_time_max(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        self.kinds
    }

    async fn begin(&self) -> Result<()> {
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        Ok(())
    }
}

async fn judged(loses: bool, kinds: &'static [ErrorKind]) -> Vec<String> {
    let memory: Arc<dyn Harness> = Arc::new(Memory::default());
    let direct = if loses { Arc::new(Memory::default()) as Arc<dyn Harness> } else { Arc::clone(&memory) };
    let fault = Inert { harness: Arc::clone(&memory), direct, kinds };
    let judged = judge(&memory, Edge::Pooler, &fault, &Effort::default(), 1).await;
    judged.unwrap().0.into_iter().map(|defect| defect.finding).collect()
}

#[tokio::test]
async fn a_store_that_does_not_notice_a_fault_has_no_defect() {
    assert_eq!(judged(false, &[]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_fault_without_an_effect_is_a_finding() {
    let found = judged(false, &[ErrorKind::Unavailable]).await;
    assert!(found.iter().any(|finding| finding.contains("no effect")), "{found:?}");
}

#[tokio::test]
async fn a_write_that_another_handle_does_not_read_is_a_finding() {
    let found = judged(true, &[]).await;
    assert!(found.iter().any(|finding| finding.contains("is missing")), "{found:?}");
}

#[tokio::test]
async fn a_backend_without_such_faults_has_no_report() {
    let memory: Arc<dyn Harness> = Arc::new(Memory::default());
    assert!(edges(&memory, &Effort::default()).await.is_empty());
}
