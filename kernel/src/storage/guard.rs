//! The refusal of options that a store does not honor.
//!
//! A store that declares every option of this kernel is used as it is. Any other store gets a wrapper that
//! checks each request before it forwards the call. The wrapper also serves stores that were written before
//! an option existed, and therefore cannot check it themselves.

mod stores;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::options::{OptionSet, RequestOption};
use super::{Contract, Store};
use crate::error::Result;
use crate::{
    BlobStore, Capabilities, GraphStore, HistoryProvider, KeyValueStore, Namespace, TaskStore, VectorStore,
};

/// A store that honors fewer options than requests have.
struct Guarded<S: ?Sized> {
    inner: Arc<S>,
}

impl<S: Store + ?Sized> Guarded<S> {
    fn check(&self, operation: &'static str, set: OptionSet) -> Result<()> {
        self.inner.options().check(operation, set)
    }
}

/// Returns `true` if the store honors every option of the contract's requests.
fn is_complete(store: &(impl Store + ?Sized), contract: Contract) -> bool {
    let declared = store.options();
    RequestOption::ALL.iter().all(|option| option.contract() != contract || declared.has(*option))
}

macro_rules! guards {
    ($($name:ident, $store:ident, $contract:ident;)*) => {
        $(
            /// Returns the store, or a wrapper that refuses the options that the store does not declare.
            #[must_use]
            pub fn $name(store: Arc<dyn $store>) -> Arc<dyn $store> {
                match is_complete(&*store, Contract::$contract) {
                    true => store,
                    false => Arc::new(Guarded { inner: store }),
                }
            }
        )*
    };
}

guards! {
    history, HistoryProvider, History;
    vectors, VectorStore, Vectors;
    graph, GraphStore, Graph;
    blobs, BlobStore, Blobs;
    tasks, TaskStore, Tasks;
    key_value, KeyValueStore, KeyValue;
}

impl<S: Store + ?Sized> fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized> Store for Guarded<S> {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.inner.options()
    }

    async fn erase(&self) -> Result<()> {
        self.inner.erase().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::{
        BucketName, ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, Outcome, Revision, StoreSet,
    };

    /// A store that honors conditions, and ignores the time to live of a key.
    #[derive(Debug)]
    struct WithoutTtl {
        namespace: Namespace,
        calls: AtomicUsize,
    }

    #[async_trait]
    impl Store for WithoutTtl {
        fn namespace(&self) -> &Namespace {
            &self.namespace
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn options(&self) -> OptionSet {
            OptionSet::of(&[RequestOption::ValueCondition])
        }

        async fn erase(&self) -> Result<()> {
            Ok(())
        }
    }

    #[async_trait]
    impl KeyValueStore for WithoutTtl {
        async fn put(&self, _: &BucketName, _: &Key, _: Bytes, _: KeyValuePutOptions) -> Result<Revision> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            Ok(Revision::new(1))
        }
    }

    #[tokio::test]
    async fn an_undeclared_option_is_refused_before_the_store_is_called() {
        let store = WithoutTtl { namespace: Namespace::new("n").unwrap(), calls: AtomicUsize::new(0) };
        let store = Arc::new(store);
        let guarded = StoreSet::new().with_key_value(store.clone()).key_value().unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        let put = async |options| guarded.put(&bucket, &key, Bytes::new(), options).await;
        let absent = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent);
        let error = put(absent.with_ttl(Duration::from_secs(1))).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
        assert_eq!((error.field(), store.calls.load(Ordering::Relaxed)), (Some("put.ttl"), 0));
        put(absent).await.unwrap();
        put(KeyValuePutOptions::default()).await.unwrap();
        assert_eq!(store.calls.load(Ordering::Relaxed), 2);
        assert_eq!((guarded.options(), format!("{guarded:?}")), (store.options(), format!("{store:?}")));
    }
}
