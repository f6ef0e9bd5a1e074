//! The refusal of options that a store does not honor.
//!
//! A store that declares every option of this kernel is used as it is. Any other store gets a wrapper that
//! checks each request before it forwards the call. The wrapper also serves stores that were written before
//! an option existed, and therefore cannot check it themselves.

use std::fmt;
use std::sync::Arc;

use super::options::{OptionSet, RequestOption};
use super::{Contract, Store};
use crate::error::Result;
use crate::position::FencingToken;
use crate::{BlobStore, GraphStore, HistoryProvider, KeyValueStore, TaskStore, VectorStore, forward};

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

forward!([S: Store + ?Sized] Store for Guarded<S>);

/// Returns the option of a write with a fencing token.
fn fenced(fence: Option<FencingToken>) -> OptionSet {
    OptionSet::NONE.with_if(fence.is_some(), RequestOption::Fence)
}

/// Returns the options that at least one of the requests sets.
fn all<T>(requests: &[T], options: impl Fn(&T) -> OptionSet) -> OptionSet {
    requests.iter().map(options).fold(OptionSet::NONE, OptionSet::union)
}

/// Checks the options of a request, if the method has a request with options.
macro_rules! check {
    ($self:ident HistoryProvider append_many $thread:ident $messages:ident $options:ident) => {
        $self.check("history.append_many", $options.options())?;
    };
    ($self:ident HistoryProvider remove $thread:ident $removal:ident) => {
        $self.check("history.remove", $removal.options())?;
    };
    ($self:ident HistoryProvider update $thread:ident $update:ident) => {
        $self.check("history.update", $update.options())?;
    };
    ($self:ident HistoryProvider replace $thread:ident $replacement:ident) => {
        $self.check("history.replace", $replacement.options())?;
    };
    ($self:ident HistoryProvider clear $thread:ident $fence:ident) => {
        $self.check("history.clear", fenced($fence))?;
    };
    ($self:ident HistoryProvider clear_run $thread:ident $run:ident $fence:ident) => {
        $self.check("history.clear_run", fenced($fence))?;
    };
    ($self:ident HistoryProvider fork $source:ident $target:ident $up_to:ident $fence:ident) => {
        $self.check("history.fork", fenced($fence))?;
    };
    ($self:ident HistoryProvider set_ttl $thread:ident $ttl:ident $fence:ident) => {
        $self.check("history.set_ttl", fenced($fence))?;
    };
    ($self:ident HistoryProvider tail_matching $thread:ident $filter:ident $before:ident $limit:ident) => {
        $self.check("history.tail_matching", $filter.options())?;
    };
    ($self:ident VectorStore search $collection:ident $request:ident) => {
        $self.check("vectors.search", $request.options())?;
    };
    ($self:ident VectorStore search_batch $collection:ident $requests:ident) => {
        $self.check("vectors.search_batch", all($requests, SearchRequest::options))?;
    };
    ($self:ident GraphStore write_entities $writes:ident) => {
        $self.check("graph.write_entities", all(&$writes, EntityWrite::options))?;
    };
    ($self:ident GraphStore write_relationships $writes:ident) => {
        $self.check("graph.write_relationships", all(&$writes, RelationshipWrite::options))?;
    };
    ($self:ident GraphStore neighbors $entity:ident $query:ident) => {
        $self.check("graph.neighbors", $query.options())?;
    };
    ($self:ident GraphStore find_entities $query:ident $page:ident) => {
        $self.check("graph.find_entities", $query.options())?;
    };
    ($self:ident GraphStore find_relationships $query:ident $page:ident) => {
        $self.check("graph.find_relationships", $query.options())?;
    };
    ($self:ident BlobStore put $key:ident $body:ident $options:ident) => {
        $self.check("blobs.put", $options.options())?;
    };
    ($self:ident BlobStore get $key:ident $options:ident) => {
        $self.check("blobs.get", $options.options())?;
    };
    ($self:ident BlobStore get_version $key:ident $version:ident $options:ident) => {
        $self.check("blobs.get_version", $options.options())?;
    };
    ($self:ident BlobStore presign $key:ident $request:ident) => {
        $self.check("blobs.presign", $request.options())?;
    };
    ($self:ident TaskStore create_task_list $board:ident $new:ident) => {
        $self.check("tasks.create_task_list", $new.options())?;
    };
    ($self:ident TaskStore add_tasks $board:ident $tasks:ident) => {
        $self.check("tasks.add_tasks", all(&$tasks, NewTask::options))?;
    };
    ($self:ident TaskStore list_tasks $board:ident $query:ident $page:ident) => {
        $self.check("tasks.list_tasks", $query.options())?;
    };
    ($self:ident TaskStore update_status $board:ident $task:ident $step:ident) => {
        $self.check("tasks.update_status", $step.options())?;
    };
    ($self:ident KeyValueStore put $bucket:ident $key:ident $value:ident $options:ident) => {
        $self.check("key_value.put", $options.options())?;
    };
    ($self:ident KeyValueStore write $bucket:ident $writes:ident) => {
        $self.check("key_value.write", all(&$writes, KeyValueWrite::options))?;
    };
    ($self:ident KeyValueStore list_entries $bucket:ident $query:ident $page:ident) => {
        $self.check("key_value.list_entries", $query.options())?;
    };
    ($($other:tt)*) => {};
}

macro_rules! guarded {
    ($self:ident GraphStore as_cypher()) => {
        $self.inner.as_cypher()
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {{
        check!($self $contract $method $($argument)*);
        $self.inner.$method($($argument),*).await
    }};
}

forward!(HistoryProvider for Guarded<dyn HistoryProvider>, guarded);
forward!(VectorStore for Guarded<dyn VectorStore>, guarded);
forward!(GraphStore for Guarded<dyn GraphStore>, guarded);
forward!(BlobStore for Guarded<dyn BlobStore>, guarded);
forward!(TaskStore for Guarded<dyn TaskStore>, guarded);
forward!(KeyValueStore for Guarded<dyn KeyValueStore>, guarded);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use bytes::Bytes;

    use super::*;
    use crate::{
        BucketName, Capabilities, ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, Namespace, Outcome,
        Revision, StoreSet,
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
