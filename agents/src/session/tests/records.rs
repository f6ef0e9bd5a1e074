//! The stored records of sessions.

use larder_kernel::{BucketName, ErrorKind, KeyValueStore, KeyValueStoreExt, PageRequest};

use crate::session::testing::World;
use crate::session::{SESSION_BUCKET, SessionProfile, Sessions};

#[tokio::test]
async fn a_record_of_a_newer_format_is_refused_by_number_and_not_changed() {
    let world = World::new();
    let sessions = Sessions::new(world.history.clone(), world.store.clone()).unwrap();
    let id = sessions.create(SessionProfile::default(), "prompt").await.unwrap();
    let bucket = BucketName::new(SESSION_BUCKET).unwrap();
    let key = world.store.list(&bucket, "", PageRequest::first(1)).await.unwrap().items[0].key.clone();
    let written = world.store.get(&bucket, &key).await.unwrap().unwrap().value;
    let newer = String::from_utf8(written.to_vec()).unwrap().replace(r#""version":1"#, r#""version":2"#);
    world.store.set(&bucket, &key, newer.clone().into()).await.unwrap();
    for error in [
        sessions.get(&id).await.unwrap_err(),
        sessions.add_hint(&id, "hint").await.unwrap_err(),
        sessions.delete(&id).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("has format 2; this release supports up to format 1"), "{error}");
    }
    assert_eq!(world.store.get(&bucket, &key).await.unwrap().unwrap().value, newer);
}
