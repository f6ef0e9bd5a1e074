//! Verification of a bucket: foreign objects are found by name.

use larder_capabilities::driver::{BackendUrl, Driver};
use larder_capabilities::s3::S3Driver;
use larder_capabilities::verify::{FaultKind, Faults};

use super::*;

pub(crate) async fn foreign_objects_are_found_by_name(server: Server) {
    let (location, query) = server.url().split_once('?').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    // s3s keeps objects in files, and the names of short keys must fit into one.
    let prefix = format!("v{}", larder_kernel::Timestamp::now().as_micros() % 1_000_000_000);
    let bucket_at = location.find('@').unwrap();
    let bucket = location[bucket_at..].split('/').next().unwrap();
    let url = format!("{}{bucket}/{prefix}?{query}", &location[..bucket_at]);
    let blobs = store(&url).await;
    for (name, bytes) in [("a/b", noise(3)), ("long", noise(9 * MIB)), ("empty", Bytes::new())] {
        blobs.put_bytes(&key(name), bytes).await.unwrap();
    }
    let look = async || {
        let faults = Faults::default();
        S3Driver.read(&BackendUrl::parse(&url).unwrap()).unwrap().verify(&faults).await.unwrap();
        faults.take()
    };
    let verified = look().await;
    assert_eq!((verified.records, verified.faults), (3, Vec::new()));
    let (client, bucket) = raw(&url);
    let foreign = ["notes.txt", "n=default/k/unmarked", "x=-!/k/a!"].map(|name| format!("{prefix}/{name}"));
    for name in &foreign {
        client.put_object().bucket(&bucket).key(name).body(Bytes::new().into()).send().await.unwrap();
    }
    let verified = look().await;
    assert_eq!(verified.records, 3);
    for name in &foreign {
        let named = verified
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::Foreign && fault.place == format!("object {name}"));
        assert!(named, "{name}: {:#?}", verified.faults);
        client.delete_object().bucket(&bucket).key(name).send().await.unwrap();
    }
    blobs.erase().await.unwrap();
}
