use larder_kernel::{ErrorKind, Namespace, Outcome};

use larder_capabilities::feature_of;
use larder_kernel::Contract;

use super::*;
use crate::Backend;

fn refused(url: &str) -> Error {
    Registry::default().read(url).map(drop).unwrap_err()
}

#[test]
fn each_mistake_in_a_url_has_its_own_one_line_error() {
    for (url, message) in [
        ("", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        ("./larder.db", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        (":x", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        (
            "memory:shared",
            "names a memory backend, which has no name; write `memory:`, open it once and \
                           share it",
        ),
        (
            "memory:?size=s3cret",
            "has an unknown query parameter `size`; `memory:` takes `vector_index`, `bytes_max` and \
             `blob_versions`",
        ),
        (
            "memory:?s3cret@h",
            "has an unknown query parameter; `memory:` takes `vector_index`, `bytes_max` and `blob_versions`",
        ),
        (
            "memory:?a&s3cret&b@h",
            "has an unknown query parameter; `memory:` takes `vector_index`, `bytes_max` and `blob_versions`",
        ),
        ("memory:?vector_index=s3cret", "has a `vector_index` other than `none` and `ivf`"),
        ("memory:#x", "contains a fragment; write a `#` in a path as `%23`"),
    ] {
        let error = refused(url);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")), "{url}");
        assert_eq!(error.message(), message, "{url}");
        assert!(!format!("{error:?}").contains("s3cret") && !error.to_string().contains('\n'));
    }
}

#[test]
fn an_unknown_scheme_lists_the_schemes_of_the_build_and_names_the_feature_that_adds_it() {
    let error = refused("mysql://u:s3cret@h/db");
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
    assert!(error.message().starts_with("has an unknown scheme; this build opens `memory:`"), "{error}");
    let error = Registry::empty().read("postgres://u:s3cret@h/db").map(drop).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
    assert!(error.message().contains("cargo feature `postgres`") && !error.to_string().contains("s3cret"));
    let registry = Registry::default();
    for (scheme, feature) in [
        ("sqlite", "sqlite"),
        ("file", "fs"),
        ("postgresql", "postgres"),
        ("rediss", "redis"),
        ("age", "age"),
    ] {
        assert_eq!(feature_of(scheme), Some(feature));
        let error = registry.unknown(scheme);
        assert!(error.message().contains(&format!("cargo feature `{feature}`")), "{error}");
    }
}

#[cfg(all(feature = "fs", unix))]
#[test]
fn a_malformed_path_of_a_folder_is_refused() {
    for (url, message) in [
        ("file:", "has an empty path; write `file:./path` or `file:///absolute/path`"),
        ("file://", "has an empty path; write `file:./path` or `file:///absolute/path`"),
        ("file://var/blobs", "names a host; write `file:./path` or `file:///absolute/path`"),
        (
            "file:./a?x=1",
            "has an unknown query parameter `x`; `file:` takes `busy_timeout_ms`, `permissions`, \
             `blob_versions` and `mode`",
        ),
        (
            "file:./a?busy_timeout_ms=soon",
            "has a `busy_timeout_ms` that is not a number from 0 to 2147483647",
        ),
        ("file:./a?x=1&x=2", "contains a query parameter twice; remove one of them"),
        ("file:./a%2", "has a `%` in its path without two hexadecimal digits after it; write `%` as `%25`"),
        ("file:./a%00", "has a NUL character in its path; remove it"),
        ("file:./a%ff", "has a path that is not UTF-8; rename the file"),
    ] {
        assert_eq!(refused(url).message(), message, "{url}");
        assert_eq!(refused(url).kind(), ErrorKind::InvalidInput);
    }
    for url in [
        "file:./blobs",
        "file:blobs",
        "FILE:/var/blobs",
        "file:///v/b",
        "file://localhost/v",
        "file:./a%20%C3%A9",
    ] {
        assert!(Registry::default().read(url).is_ok(), "{url}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn the_parameters_of_sqlite_are_read_and_everything_else_refused() {
    for url in [
        "sqlite:///var/a.db?busy_timeout_ms=250&synchronous=normal",
        "sqlite:./a.db?permissions=0660",
        "sqlite:./a.db?mode=ro",
    ] {
        assert!(Registry::default().read(url).is_ok(), "{url}");
    }
    for (url, message) in [
        ("sqlite:", "has an empty path; write `sqlite:./path` or `sqlite:///absolute/path`"),
        ("sqlite://larder.db", "names a host; write `sqlite:./path` or `sqlite:///absolute/path`"),
        ("sqlite::memory:", "asks SQLite for a database in memory; write `memory:` instead"),
        (
            "sqlite:file:a.db",
            "contains a second scheme; write `sqlite:./larder.db` or `sqlite:///absolute/larder.db`",
        ),
        ("sqlite:./a/", "names a folder; name the database file in it"),
        ("sqlite:a.db?synchronous=off", "has a `synchronous` other than `full` and `normal`"),
        (
            "sqlite:a.db?busy_timeout_ms=-1",
            "has a `busy_timeout_ms` that is not a number from 0 to 2147483647",
        ),
        (
            "sqlite:a.db?busy_timeout_ms=2147483648",
            "has a `busy_timeout_ms` that is not a number from 0 to 2147483647",
        ),
        (
            "sqlite:a.db?cache=shared",
            "has an unknown query parameter `cache`; `sqlite:` takes `synchronous`, `busy_timeout_ms`, \
             `permissions`, `blob_versions` and `mode`",
        ),
        ("sqlite:a.db?blob_versions=1", "has a `blob_versions` other than `true` and `false`"),
    ] {
        assert_eq!(refused(url).message(), message, "{url}");
        assert_eq!(refused(url).kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_backend_separates_namespaces_and_each_memory_url_is_a_new_backend() {
    let backend = Backend::open("memory:").await.unwrap();
    assert_eq!((backend.name(), backend.contracts()), ("memory", Contract::ALL));
    let (one, two) = (Namespace::new("one").unwrap(), Namespace::new("two").unwrap());
    let stores = backend.stores(&one).await;
    stores.blobs().unwrap().put("k", "x").await.unwrap();
    let again = backend.stores(&one).await;
    assert_eq!(again.blobs().unwrap().get("k").await.unwrap(), "x");
    let elsewhere = Backend::open("memory:").await.unwrap();
    for other in [backend.stores(&two).await, elsewhere.stores(&one).await] {
        assert_eq!(other.blobs().unwrap().info("k").await.unwrap(), None);
    }
    stores.erase().await.unwrap();
    assert_eq!(again.blobs().unwrap().info("k").await.unwrap(), None);
    assert_eq!(format!("{backend:?}"), "Backend { name: \"memory\", .. }");
    backend.close().await;
}

#[tokio::test]
async fn a_missing_url_is_an_error_with_advice() {
    let error = Stores::builder().open().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
}

#[cfg(all(feature = "fs", unix))]
#[tokio::test]
async fn contracts_can_use_different_urls_and_a_missing_one_has_advice() {
    let folder = tempfile::TempDir::new().unwrap();
    let files = format!("file:{}", folder.path().join("blobs").display());
    let stores = open(&files).await.unwrap();
    assert_eq!(stores.contracts(), [Contract::Blobs]);
    let error = stores.history().unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, "stores.history"));
    assert_eq!(
        error.message(),
        "no open backend provides the contract `history`; \
         open one that does, for example `sqlite:./larder.db`"
    );
    let stores = Stores::builder().url("memory:").blobs_url(&files).open().await.unwrap();
    assert_eq!(stores.contracts(), Contract::ALL);
    assert_eq!(format!("{:?}", stores.blobs().unwrap()), "Blobs(FsBlobStore { .. })");
    assert_eq!(stores.namespace().as_str(), "default");
    let error = Stores::builder().url("memory:").tasks_url(&files).open().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("url")));
    assert!(error.message().contains("`tasks`"), "{error}");
    let builder = Stores::builder().url("redis://u:s3cret@h");
    assert!(!format!("{builder:?}").contains("s3cret"));
}

#[cfg(all(feature = "sqlite", feature = "fs", unix))]
#[tokio::test]
async fn a_sqlite_url_stores_blobs_next_to_the_database_only_on_request() {
    let folder = tempfile::TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    let stores = Stores::builder().url(&url).blobs_url("memory:").open().await.unwrap();
    assert_eq!(stores.contracts(), Contract::ALL);
    assert!(!folder.path().join("larder.db.blobs").exists());
    drop(stores);
    let stores = open(&url).await.unwrap();
    stores.blobs().unwrap().put("k", "x").await.unwrap();
    assert!(folder.path().join("larder.db.blobs/default=/k").exists());
    drop(stores);
    let backend = Backend::open(&url).await.unwrap();
    let stores = backend.stores(&Namespace::new("default").unwrap()).await;
    assert_eq!(stores.blobs().unwrap().get("k").await.unwrap(), "x");
    drop(stores);
    backend.close().await;
}

#[cfg(all(feature = "sqlite", feature = "fs", unix))]
#[tokio::test]
async fn a_contract_that_cannot_be_opened_fails_at_its_accessor_and_leaves_the_others() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("larder.db");
    // A file occupies the path of the blob folder.
    std::fs::write(folder.path().join("larder.db.blobs"), "").unwrap();
    let stores = open(&format!("sqlite:{}", file.display())).await.unwrap();
    let thread = larder_kernel::Thread::new("a", "s").unwrap();
    stores.history().unwrap().append(&thread, larder_kernel::ChatMessage::user("hi")).await.unwrap();
    let (first, second) = (stores.blobs().unwrap_err(), stores.blobs().unwrap_err());
    assert_eq!(first.to_string(), second.to_string());
    assert_ne!(first.operation(), "stores.blobs");
    assert_eq!(stores.errors().len(), 1);
}

#[tokio::test]
#[cfg(all(feature = "fs", unix))]
async fn a_folder_is_opened_with_its_backend_and_not_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("taken"), "a file").unwrap();
    let taken = format!("file:{}", scratch.path().join("taken").display());
    assert!(Backend::open(&taken).await.is_err());

    let folder = scratch.path().join("blobs");
    let backend = Backend::open(&format!("file:{}", folder.display())).await.unwrap();
    let stores = backend.stores(&Namespace::new("n").unwrap()).await;
    stores.blobs().unwrap().put("k", "v").await.unwrap();
    std::fs::rename(&folder, scratch.path().join("moved")).unwrap();
    let error = stores.blobs().unwrap().put("k", "w").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    assert!(!folder.exists());
    std::fs::rename(scratch.path().join("moved"), &folder).unwrap();
    assert_eq!(stores.blobs().unwrap().get("k").await.unwrap(), "v");
}

#[cfg(all(feature = "fs", unix))]
#[tokio::test]
async fn blobs_go_to_the_first_url_that_provides_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| format!("file:{}/{name}", folder.path().display()));
    let builder = Stores::builder().url("memory:").url(&first).url(&second);
    let stores = builder.open().await.unwrap();
    assert_eq!(stores.contracts().len(), 6);
    stores.blobs().unwrap().put("a", "text").await.unwrap();
    assert!(folder.path().join("first").exists() && !folder.path().join("second").exists());
    let named = Stores::builder().url("memory:").url(&first).blobs_url(&second).open().await.unwrap();
    assert!(named.blobs().unwrap().list("").await.unwrap().is_empty());
}
