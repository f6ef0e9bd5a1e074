//! The integration tests of the crate `object_store` over blobs in memory, in files, in SQLite and on S3, and
//! tests of further cases. `LARDER_S3_GARAGE_URL`, `LARDER_S3_S3S_URL` and `LARDER_S3_MOTO_URL` name the
//! servers. Without a server, its tests are ignored; with `LARDER_SERVICES=required` they fail.

#![allow(clippy::panic, clippy::unwrap_used)]

mod adapter_cases;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use larder::Stores;
use larder::adapters::object_store::BlobObjectStore;
use larder_kernel::{BlobStore, Capability, Namespace};
use libtest_mimic::{Arguments, Failed, Trial};
use object_store::{Error, integration};

const SERVERS: [(&str, &str); 3] =
    [("garage", "LARDER_S3_GARAGE_URL"), ("s3s", "LARDER_S3_S3S_URL"), ("moto", "LARDER_S3_MOTO_URL")];

/// Tests that are ignored on Garage. It aborts uploads to a key that began before an upload that completes.
/// The contract promises only that a reader sees one of several concurrent uploads.
const SKIPPED: (&str, &str) = ("garage", "upstream::multipart_race_condition");

/// Opens a store in an empty namespace.
pub(crate) struct TestStore {
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) store: BlobObjectStore,
    /// Returns `true` if a server supports the feature.
    pub(crate) remote: bool,
}

impl TestStore {
    async fn open(url: &str) -> Self {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(format!("os-{}-{number}", std::process::id())).unwrap();
        let stores = Stores::builder().url(url).namespace(namespace).open().await.unwrap();
        let blobs = stores.set().blobs().unwrap();
        Self { store: BlobObjectStore::new(Arc::clone(&blobs)), blobs, remote: url.starts_with("s3:") }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.blobs.capabilities().has(capability)
    }
}

type Test = for<'a> fn(&'a TestStore) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! tests {
    ($($path:path),* $(,)?) => {
        vec![$({
            fn test(under_test: &TestStore) -> Pin<Box<dyn Future<Output = ()> + '_>> {
                Box::pin($path(under_test))
            }
            (stringify!($path), test as Test)
        }),*]
    };
}

/// The integration tests by name.
mod upstream {
    use super::*;

    pub(super) async fn put_get_delete_list(under_test: &TestStore) {
        integration::put_get_delete_list(&under_test.store).await;
    }

    pub(super) async fn put_get_attributes(under_test: &TestStore) {
        integration::put_get_attributes(&under_test.store).await;
    }

    pub(super) async fn get_opts(under_test: &TestStore) {
        integration::get_opts(&under_test.store).await;
    }

    pub(super) async fn put_opts(under_test: &TestStore) {
        if under_test.has(Capability::BlobCreateOnly) {
            integration::put_opts(&under_test.store, under_test.has(Capability::BlobIfMatch)).await;
        } else {
            adapter_cases::undeclared_conditions_are_not_implemented(under_test).await;
        }
    }

    pub(super) async fn stream_get(under_test: &TestStore) {
        integration::stream_get(&under_test.store).await;
    }

    pub(super) async fn list_uses_directories_correctly(under_test: &TestStore) {
        integration::list_uses_directories_correctly(&under_test.store).await;
    }

    pub(super) async fn list_with_delimiter(under_test: &TestStore) {
        integration::list_with_delimiter(&under_test.store).await;
    }

    pub(super) async fn list_with_offset_exclusivity(under_test: &TestStore) {
        integration::list_with_offset_exclusivity(&under_test.store).await;
    }

    pub(super) async fn get_nonexistent_object(under_test: &TestStore) {
        let error = integration::get_nonexistent_object(&under_test.store, None).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }

    pub(super) async fn rename_and_copy(under_test: &TestStore) {
        integration::rename_and_copy(&under_test.store).await;
    }

    pub(super) async fn copy_if_not_exists(under_test: &TestStore) {
        if under_test.has(Capability::BlobCreateOnly) {
            integration::copy_if_not_exists(&under_test.store).await;
        } else {
            adapter_cases::undeclared_conditions_are_not_implemented(under_test).await;
        }
    }

    pub(super) async fn copy_rename_nonexistent_object(under_test: &TestStore) {
        integration::copy_rename_nonexistent_object(&under_test.store).await;
    }

    pub(super) async fn multipart_race_condition(under_test: &TestStore) {
        integration::multipart_race_condition(&under_test.store, true).await;
    }

    pub(super) async fn multipart_out_of_order(under_test: &TestStore) {
        integration::multipart_out_of_order(&under_test.store).await;
    }
}

fn tests() -> Vec<(&'static str, Test)> {
    tests![
        upstream::put_get_delete_list,
        upstream::put_get_attributes,
        upstream::get_opts,
        upstream::put_opts,
        upstream::stream_get,
        upstream::list_uses_directories_correctly,
        upstream::list_with_delimiter,
        upstream::list_with_offset_exclusivity,
        upstream::get_nonexistent_object,
        upstream::rename_and_copy,
        upstream::copy_if_not_exists,
        upstream::copy_rename_nonexistent_object,
        upstream::multipart_race_condition,
        upstream::multipart_out_of_order,
        adapter_cases::content_type_and_metadata_are_kept,
        adapter_cases::other_attributes_are_not_implemented_and_write_nothing,
        adapter_cases::an_incomplete_upload_leaves_nothing,
        adapter_cases::an_upload_that_fails_says_why_in_each_part,
        adapter_cases::ranges_and_conditions_are_judged_in_their_order,
        adapter_cases::folders_with_many_objects_are_listed_once,
        adapter_cases::a_rename_onto_itself_loses_nothing,
        adapter_cases::a_location_that_is_no_key_holds_nothing,
    ]
}

fn run(url: &str, test: Test) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let under_test = TestStore::open(url).await;
        test(&under_test).await;
        under_test.blobs.erase().await.map_err(Failed::from)
    })
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let mut trials = Vec::new();
    for (name, test) in tests() {
        let embedded = |backend: &str, open: fn(&str) -> String| {
            Trial::test(format!("{backend}::{name}"), move || {
                let folder = tempfile::tempdir()?;
                run(&open(&folder.path().display().to_string()), test)
            })
        };
        trials.push(embedded("memory", |_| "memory:".to_owned()));
        trials.push(embedded("files", |folder| format!("file:{folder}")));
        trials.push(embedded("sqlite", |folder| format!("sqlite:{folder}/larder.db")));
        for (server, variable) in SERVERS {
            let url = std::env::var(variable);
            let ignored = (url.is_err() && !required) || (server, name) == SKIPPED;
            let live = Trial::test(format!("{server}::{name}"), move || {
                run(&url.unwrap_or_else(|_| panic!("{variable} is not set")), test)
            });
            trials.push(live.with_ignored_flag(ignored));
        }
    }
    crate::groups::run("object_store", arguments, trials)
}
