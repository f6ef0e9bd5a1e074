//! The levels beyond the cases, each as one test, and a run that writes its report.

use larder_conformance::{Level, Suite, Verdict, conformance_test};
use my_backend::MyHarness;

conformance_test!(random_operations_agree_with_a_model, MyHarness::default(), levels: [Level::Model]);
conformance_test!(clients_at_once_are_linearizable, MyHarness::default(), levels: [Level::Concurrent]);

#[tokio::test(flavor = "multi_thread")]
async fn too_few_operations_prove_nothing() {
    let report = Suite::new(MyHarness::default()).levels([Level::Model]).per_mille(1).run().await;
    assert_eq!(report.levels[0].verdict(), Verdict::NotProven);
}
