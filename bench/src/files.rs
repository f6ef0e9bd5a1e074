//! Blobs in files, compared with plain writes and reads of the same disk.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;

use super::blobs::{Blobs, MIB, rate};
use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::{Outcome, Plan, payload};

/// Put and get of a large blob.
pub(super) async fn blobs(plan: &Plan) -> Outcome<Vec<Figure>> {
    let mebibytes = plan.size(64, 16);
    let bytes = payload::blob(mebibytes);
    let larder = Blobs::open(&format!("file:{}", plan.scratch.join("blobs").display()), "bench").await?;
    let file = plan.scratch.join("plain.blob");
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what} of {mebibytes} MiB as a stream"),
        peer: peer.to_owned(),
        settings: "the file and its folder are synced before a put returns".to_owned(),
        unit: Unit::MebiBytesPerSecond,
        // In terms of throughput: the time may be 1.15 times the peer's.
        target: Some(Target::AtLeast(0.87)),
    };
    let puts = in_turns(
        plan,
        async |_| larder.put(&bytes).await,
        async |_| on_a_thread(file.clone(), bytes.clone(), plain_put).await,
    )
    .await?;
    let gets = in_turns(
        plan,
        async |_| larder.get(bytes.len()).await,
        async |_| on_a_thread(file.clone(), bytes.clone(), plain_get).await,
    )
    .await?;
    Ok(vec![
        subject("file-put", "put", "write to a new file, fsync, rename, fsync of the folder").figure(&puts),
        subject("file-get", "get", "read from a file, 1 MiB at a time").figure(&gets),
    ])
}

async fn on_a_thread(
    path: PathBuf,
    bytes: Bytes,
    step: fn(&Path, &[u8]) -> std::io::Result<f64>,
) -> Outcome<f64> {
    Ok(tokio::task::spawn_blocking(move || step(&path, &bytes)).await??)
}

fn plain_put(path: &Path, bytes: &[u8]) -> std::io::Result<f64> {
    let begun = Instant::now();
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    for piece in bytes.chunks(MIB) {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()?;
    Ok(rate(bytes.len(), begun))
}

fn plain_get(path: &Path, bytes: &[u8]) -> std::io::Result<f64> {
    let begun = Instant::now();
    let mut file = File::open(path)?;
    let mut piece = vec![0; MIB];
    let mut left = bytes.len();
    while left > 0 {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        left = left.saturating_sub(read);
    }
    Ok(rate(bytes.len(), begun))
}
