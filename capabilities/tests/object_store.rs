//! The crate `object_store`'s own integration tests over blobs in memory, in files, in SQLite and on S3, and what they
//! do not ask. Without a server, whose URL stands in `LARDER_S3_GARAGE_URL`, `LARDER_S3_S3S_URL` or
//! `LARDER_S3_MOTO_URL`, its tests are shown as ignored, or fail where `LARDER_SERVICES=required`.

#![allow(clippy::panic, clippy::unwrap_used)]

#[path = "object_store/own.rs"]
mod own;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use larder_capabilities::Stores;
use larder_capabilities::adapters::object_store::BlobObjectStore;
use larder_kernel::{BlobStore, Capability, Namespace};
use libtest_mimic::{Arguments, Failed, Trial};
use object_store::{Error, integration};

const SERVERS: [(&str, &str); 3] =
    [("garage", "LARDER_S3_GARAGE_URL"), ("s3s", "LARDER_S3_S3S_URL"), ("moto", "LARDER_S3_MOTO_URL")];

/// Garage ends the uploads to a key that began before one that is completed; the contract promises nothing about uploads
/// side by side but that a reader sees one of them. Shown as ignored.
const NOT_HELD: (&str, &str) = ("garage", "theirs::multipart_race_condition");

/// A store in a namespace of its own, which is empty.
pub(crate) struct Place {
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) store: BlobObjectStore,
    /// Whether a server keeps it.
    pub(crate) remote: bool,
}

impl Place {
    async fn open(url: &str) -> Self {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        let place = PLACES.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(format!("os-{}-{place}", std::process::id())).unwrap();
        let stores = Stores::builder().url(url).namespace(namespace).connect().await.unwrap();
        let blobs = stores.blobs().unwrap();
        Self { store: BlobObjectStore::new(Arc::clone(&blobs)), blobs, remote: url.starts_with("s3:") }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.blobs.capabilities().has(capability)
    }
}

type Test = for<'a> fn(&'a Place) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! tests {
    ($($path:path),* $(,)?) => {
        vec![$({
            fn test(place: &Place) -> Pin<Box<dyn Future<Output = ()> + '_>> {
                Box::pin($path(place))
            }
            (stringify!($path), test as Test)
        }),*]
    };
}

/// The integration tests, each under its own name.
mod theirs {
    use super::*;

    pub(super) async fn put_get_delete_list(place: &Place) {
        integration::put_get_delete_list(&place.store).await;
    }

    pub(super) async fn put_get_attributes(place: &Place) {
        integration::put_get_attributes(&place.store).await;
    }

    pub(super) async fn get_opts(place: &Place) {
        integration::get_opts(&place.store).await;
    }

    pub(super) async fn put_opts(place: &Place) {
        if place.has(Capability::BlobCreateOnly) {
            integration::put_opts(&place.store, place.has(Capability::BlobIfMatch)).await;
        } else {
            own::undeclared_conditions_are_not_implemented(place).await;
        }
    }

    pub(super) async fn stream_get(place: &Place) {
        integration::stream_get(&place.store).await;
    }

    pub(super) async fn list_uses_directories_correctly(place: &Place) {
        integration::list_uses_directories_correctly(&place.store).await;
    }

    pub(super) async fn list_with_delimiter(place: &Place) {
        integration::list_with_delimiter(&place.store).await;
    }

    pub(super) async fn list_with_offset_exclusivity(place: &Place) {
        integration::list_with_offset_exclusivity(&place.store).await;
    }

    pub(super) async fn get_nonexistent_object(place: &Place) {
        let error = integration::get_nonexistent_object(&place.store, None).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }

    pub(super) async fn rename_and_copy(place: &Place) {
        integration::rename_and_copy(&place.store).await;
    }

    pub(super) async fn copy_if_not_exists(place: &Place) {
        if place.has(Capability::BlobCreateOnly) {
            integration::copy_if_not_exists(&place.store).await;
        } else {
            own::undeclared_conditions_are_not_implemented(place).await;
        }
    }

    pub(super) async fn copy_rename_nonexistent_object(place: &Place) {
        integration::copy_rename_nonexistent_object(&place.store).await;
    }

    pub(super) async fn multipart_race_condition(place: &Place) {
        integration::multipart_race_condition(&place.store, true).await;
    }

    pub(super) async fn multipart_out_of_order(place: &Place) {
        integration::multipart_out_of_order(&place.store).await;
    }
}

fn tests() -> Vec<(&'static str, Test)> {
    tests![
        theirs::put_get_delete_list,
        theirs::put_get_attributes,
        theirs::get_opts,
        theirs::put_opts,
        theirs::stream_get,
        theirs::list_uses_directories_correctly,
        theirs::list_with_delimiter,
        theirs::list_with_offset_exclusivity,
        theirs::get_nonexistent_object,
        theirs::rename_and_copy,
        theirs::copy_if_not_exists,
        theirs::copy_rename_nonexistent_object,
        theirs::multipart_race_condition,
        theirs::multipart_out_of_order,
        own::content_type_and_metadata_are_kept,
        own::other_attributes_are_not_implemented_and_write_nothing,
        own::an_upload_without_its_end_leaves_nothing,
        own::an_upload_that_fails_says_why_in_each_part,
        own::ranges_and_conditions_are_judged_in_their_order,
        own::folders_with_many_objects_are_listed_once,
        own::a_rename_onto_itself_loses_nothing,
        own::a_location_that_is_no_key_holds_nothing,
    ]
}

fn run(url: &str, test: Test) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let place = Place::open(url).await;
        test(&place).await;
        place.blobs.erase().await.map_err(Failed::from)
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
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
            let ignored = (url.is_err() && !required) || (server, name) == NOT_HELD;
            let live = Trial::test(format!("{server}::{name}"), move || {
                run(&url.unwrap_or_else(|_| panic!("{variable} is not set")), test)
            });
            trials.push(live.with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
