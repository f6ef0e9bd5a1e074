use larder_kernel::{BlobKey, BlobStoreExt, Outcome};

use super::*;

fn refused(url: &str) -> Error {
    Target::parse(url).map(|_| ()).unwrap_err()
}

#[test]
fn each_mistake_in_a_url_has_its_own_one_line_error() {
    for (url, message) in [
        ("", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        ("./larder.db", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        (":x", "has no scheme; write for example `sqlite:./larder.db` or `memory:`"),
        (
            "mysql://u:s3cret@h/db",
            "has an unknown scheme; there are `memory:`, `sqlite:`, `file:`, `postgres:`, `redis:`, `rediss:`, \
             `redis+cluster:`, `rediss+cluster:`, `s3:` and `age:`",
        ),
        ("memory:shared", "names a place in memory; write `memory:`, open it once and share the place"),
        ("memory:?s3cret=1", "has an unknown query parameter; `memory:` takes `vector_index`"),
        ("memory:?vector_index=s3cret", "has another `vector_index` than `none` or `ivf`"),
        ("memory:#x", "holds a fragment; write a `#` in a path as `%23`"),
    ] {
        let error = refused(url);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")), "{url}");
        assert_eq!(error.message(), message, "{url}");
        assert!(!format!("{error:?}").contains("s3cret") && !error.to_string().contains('\n'));
    }
}

#[test]
fn a_scheme_without_its_feature_names_the_feature() {
    for (scheme, feature) in
        [("sqlite", "sqlite"), ("file", "fs"), ("postgres", "postgres"), ("postgresql", "postgres")]
            .into_iter()
            .chain([("redis", "redis"), ("rediss", "redis"), ("s3", "s3"), ("age", "age")])
    {
        let error = not_in_this_build(scheme);
        assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("url")));
        assert!(error.message().contains(&format!("cargo feature `{feature}`")), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    #[cfg(not(feature = "postgres"))]
    assert_eq!(refused("postgres://u:p@h/db").kind(), ErrorKind::Unsupported);
    #[cfg(not(feature = "sqlite"))]
    assert!(refused("sqlite:x.db").message().contains("cargo feature `sqlite`"));
    #[cfg(not(feature = "fs"))]
    assert!(refused("file:x").message().contains("cargo feature `fs`"));
}

#[cfg(all(feature = "fs", unix))]
#[test]
fn the_path_of_a_folder_is_read_as_it_is_meant() {
    for (url, path) in [
        ("file:./blobs", "./blobs"),
        ("file:blobs", "blobs"),
        ("FILE:/var/blobs", "/var/blobs"),
        ("file:///var/blobs", "/var/blobs"),
        ("file://localhost/var/blobs", "/var/blobs"),
        ("file:./a%20%23%3F%25%C3%A9", "./a #?%é"),
    ] {
        let target = Target::parse(url).unwrap();
        assert!(matches!(target, Target::Files(config) if config.root.as_os_str() == path), "{url}");
    }
    for (url, message) in [
        ("file:", "has an empty path; write `file:./path` or `file:///absolute/path`"),
        ("file://", "has an empty path; write `file:./path` or `file:///absolute/path`"),
        ("file://var/blobs", "names a host; write `file:./path` or `file:///absolute/path`"),
        ("file:./a?x=1", "has an unknown query parameter; `file:` takes none"),
        ("file:./a?x=1&x=2", "gives one query parameter twice"),
        ("file:./a%2", "has a `%` in its path without two hexadecimal digits behind it; write `%` as `%25`"),
        ("file:./a%00", "has a NUL character in its path"),
        ("file:./a%ff", "has a path that is not UTF-8"),
    ] {
        assert_eq!(refused(url).message(), message, "{url}");
        assert_eq!(refused(url).kind(), ErrorKind::InvalidInput);
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn the_parameters_of_sqlite_are_read_and_everything_else_refused() {
    use crate::sqlite::{SqliteConfig, Synchronous};

    let target = Target::parse("sqlite:///var/a.db?busy_timeout_ms=250&synchronous=normal").unwrap();
    let expected = SqliteConfig::new("/var/a.db")
        .with_synchronous(Synchronous::Normal)
        .with_busy_timeout(std::time::Duration::from_millis(250));
    assert!(matches!(target, Target::Sqlite(config) if config == expected));
    let target = Target::parse("sqlite:./a.db?synchronous=full").unwrap();
    assert!(matches!(target, Target::Sqlite(config) if config == SqliteConfig::new("./a.db")));
    for (url, message) in [
        ("sqlite:", "has an empty path; write `sqlite:./path` or `sqlite:///absolute/path`"),
        ("sqlite://larder.db", "names a host; write `sqlite:./path` or `sqlite:///absolute/path`"),
        ("sqlite::memory:", "asks SQLite for memory; write `memory:` instead"),
        (
            "sqlite:file:a.db",
            "holds a second scheme; write `sqlite:./larder.db` or `sqlite:///absolute/larder.db`",
        ),
        ("sqlite:./a/", "names a folder; name the database file in it"),
        ("sqlite:a.db?synchronous=off", "has another `synchronous` than `full` or `normal`"),
        ("sqlite:a.db?busy_timeout_ms=-1", "has a `busy_timeout_ms` that is no number from 0 to 2147483647"),
        (
            "sqlite:a.db?busy_timeout_ms=2147483648",
            "has a `busy_timeout_ms` that is no number from 0 to 2147483647",
        ),
        (
            "sqlite:a.db?mode=ro",
            "has an unknown query parameter; `sqlite:` takes `synchronous` and `busy_timeout_ms`",
        ),
    ] {
        assert_eq!(refused(url).message(), message, "{url}");
        assert_eq!(refused(url).kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_place_keeps_namespaces_apart_and_each_opening_of_memory_is_another() {
    let place = open_place("memory:").await.unwrap();
    assert_eq!((place.scheme(), place.contracts()), ("memory", &Contract::ALL[..]));
    let (one, two) = (Namespace::new("one").unwrap(), Namespace::new("two").unwrap());
    let key = BlobKey::new("k").unwrap();
    let stores = place.open(&one, None).await.unwrap();
    stores.blobs().unwrap().put_bytes(&key, "x".into()).await.unwrap();
    let again = place.open(&one, None).await.unwrap();
    assert_eq!(again.blobs().unwrap().get_bytes(&key).await.unwrap(), "x");
    let elsewhere = open_place("memory:").await.unwrap();
    for other in [place.open(&two, None).await.unwrap(), elsewhere.open(&one, None).await.unwrap()] {
        let error = other.blobs().unwrap().head(&key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    stores.erase().await.unwrap();
    assert_eq!(again.blobs().unwrap().head(&key).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(format!("{place:?}"), "Place { scheme: \"memory\", .. }");
    place.close().await;
}

#[tokio::test]
async fn no_url_is_an_error_that_says_so() {
    let error = Stores::builder().connect().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
}

#[cfg(all(feature = "fs", unix))]
#[tokio::test]
async fn contracts_can_live_at_different_urls_and_a_missing_one_says_what_to_do() {
    let folder = tempfile::TempDir::new().unwrap();
    let files = format!("file:{}", folder.path().join("blobs").display());
    let stores = Stores::connect(&files).await.unwrap();
    assert_eq!(stores.contracts(), [Contract::Blobs]);
    let error = stores.history().unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, "stores.history"));
    assert_eq!(
        error.message(),
        "no URL given provides the contract `history`; add one that does with `StoresBuilder::history_url`, for example \
         `sqlite:./larder.db`"
    );
    let stores = Stores::builder().url("memory:").blobs_url(&files).connect().await.unwrap();
    assert_eq!(stores.contracts(), Contract::ALL);
    assert_eq!(format!("{:?}", stores.blobs().unwrap()), "FsBlobStore { .. }");
    assert_eq!(stores.namespace().as_str(), "default");
    let error = Stores::builder().url("memory:").tasks_url(&files).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("url")));
    assert!(error.message().contains("`tasks`"), "{error}");
    let builder = Stores::builder().url("redis://u:s3cret@h");
    assert!(!format!("{builder:?}").contains("s3cret"));
}

#[cfg(all(feature = "sqlite", feature = "fs", unix))]
#[tokio::test]
async fn a_sqlite_url_keeps_blobs_beside_the_database_and_only_when_they_are_wanted() {
    let folder = tempfile::TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    let stores = Stores::builder().url(&url).blobs_url("memory:").connect().await.unwrap();
    assert_eq!(stores.contracts(), Contract::ALL);
    assert!(!folder.path().join("larder.db.blobs").exists());
    drop(stores);
    let stores = Stores::connect(&url).await.unwrap();
    let key = BlobKey::new("k").unwrap();
    stores.blobs().unwrap().put_bytes(&key, "x".into()).await.unwrap();
    assert!(folder.path().join("larder.db.blobs/default=/k").exists());
    drop(stores);
    let place = open_place(&url).await.unwrap();
    let stores = place.open(&Namespace::new("default").unwrap(), None).await.unwrap();
    assert_eq!(stores.blobs().unwrap().get_bytes(&key).await.unwrap(), "x");
    drop(stores);
    place.close().await;
}

#[tokio::test]
#[cfg(all(feature = "fs", unix))]
async fn a_folder_is_opened_with_its_place_and_stays_the_same_one() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("taken"), "a file").unwrap();
    let taken = format!("file:{}", scratch.path().join("taken").display());
    assert!(open_place(&taken).await.is_err());

    let folder = scratch.path().join("blobs");
    let place = open_place(&format!("file:{}", folder.display())).await.unwrap();
    std::fs::rename(&folder, scratch.path().join("moved")).unwrap();
    let stores = place.open(&Namespace::new("n").unwrap(), None).await.unwrap();
    let key = BlobKey::new("k").unwrap();
    BlobStoreExt::put_bytes(&*stores.blobs().unwrap(), &key, "v".into()).await.unwrap();
    assert!(scratch.path().join("moved/n=/k").exists() && !folder.exists());
}
