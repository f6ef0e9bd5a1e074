//! Uses the crate `object_store` with any backend that provides blobs: `cargo run --features
//! adapter-object-store --example object_store -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use futures_util::TryStreamExt;
use larder::Namespace;
use larder::Stores;
use larder::adapters::object_store::BlobObjectStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, WriteMultipart};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let urls = std::env::args().skip(1).fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.namespace(Namespace::new("example-objects")?).open().await?;
    let read = report(&BlobObjectStore::new(stores.blobs()?)).await?;
    println!("{read}");
    stores.blobs()?.erase().await?;
    stores.close().await;
    Ok(())
}

/// Writes a report through `object_store`, independent of Larder.
async fn report(store: &dyn ObjectStore) -> object_store::Result<String> {
    let (table, latest) = (Path::from("reports/2026/visits.csv"), Path::from("reports/latest"));
    let mut upload = WriteMultipart::new(store.put_multipart(&table).await?);
    upload.write(b"day,visits\n");
    for day in 0..100_000 {
        upload.write(format!("{day},{}\n", day * 7 % 1_000).as_bytes());
    }
    upload.finish().await?;
    match store.put_opts(&latest, table.as_ref().to_owned().into(), PutMode::Create.into()).await {
        // Another run has created the object.
        Ok(_) | Err(Error::AlreadyExists { .. }) => {}
        // Not every server supports the condition.
        Err(Error::NotImplemented { .. }) => {
            store.put(&latest, table.as_ref().to_owned().into()).await?;
        }
        Err(error) => return Err(error),
    }
    let head = store.get_range(&table, 0..15).await?;
    let folders = store.list_with_delimiter(Some(&Path::from("reports"))).await?.common_prefixes;
    let objects: Vec<_> = store.list(None).try_collect().await?;
    let bytes = objects.iter().map(|object| object.size).sum::<u64>();
    let first = String::from_utf8_lossy(&head).trim_end().replace('\n', " ");
    Ok(format!("{} objects, {bytes} bytes, {} folder, {first}", objects.len(), folders.len()))
}
