//! The harness with which the suite opens this backend.

use std::sync::Arc;

use larder_conformance::kernel::{Namespace, Result};
use larder_conformance::{Harness, OpenOptions, StoreSet, async_trait};

use crate::store::{MyPlace, MyStore};

/// Opens stores on one backend. A backend with a server would keep its URL here, and reconnect in each
/// `open`.
#[derive(Debug, Default)]
pub struct MyHarness {
    place: MyPlace,
}

#[async_trait]
impl Harness for MyHarness {
    fn name(&self) -> &str {
        "mine"
    }

    fn url(&self) -> String {
        "mine:".to_owned()
    }

    async fn open(&self, namespace: &Namespace, _options: &OpenOptions) -> Result<StoreSet> {
        let store = MyStore::open(&self.place, namespace.clone());
        Ok(StoreSet::default().with_key_value(Arc::new(store)))
    }
}
