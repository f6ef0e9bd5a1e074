//! Blobs as objects of S3 or of a server with the same protocol.
//!
//! A blob is one object. A small blob is written in one request; a larger one in several concurrent parts. A
//! failed or cancelled write leaves no object behind. Reads request parts in the same way, all of one
//! version. The module `key.rs` defines the object names.
//!
//! Opening the store probes conditional writes: single requests and multipart uploads, alone and in a race.
//! The store declares conditional writes only if the server honored them. With read-only credentials the
//! store opens without them. It declares durability as `process`, because a server does not report more.
//!
//! Some servers do not support names as long as those of S3. The probe finds out the limit. If some keys do
//! not fit, the store does not declare the capability `blob-long-keys`. It then rejects keys whose names are
//! too long before it sends a request.
//!
//! Operations that S3 does not offer in one step take two: `delete` and `copy` request the blob first. Of two
//! concurrent deletions, both may report that the blob existed. A write returns the time of this machine;
//! reads return the time of the server.
//!
//! Every call on a silent server ends. A call with little data ends within three times `response_timeout_ms`.
//! A transfer of any size, in either direction, may make no progress for at most `stall_timeout_ms`.
//! Completing an upload and copying have a limit of one minute, plus one second for each 32 MiB, up to ten
//! minutes.
//!
//! A signed URL expires with the credentials that signed it. Credentials of a role expire within hours, even
//! if the requested time is longer.
//!
//! The SDK logs the access key, which is a name, at the level TRACE. It never logs the secret key.
//!
//! A failed write waits up to a second for the removal of its upload; the rest is removed in the background.
//! Configure a lifecycle rule for unfinished uploads as well: after a power failure, no process removes them.

mod blob;
mod config;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod failure;
mod format;
mod key;

pub use blob::S3BlobStore;
pub use config::{CONNECT_TIMEOUT_DEFAULT, RESPONSE_TIMEOUT_DEFAULT, S3Config, STALL_TIMEOUT_DEFAULT};
pub use driver::S3Driver;
