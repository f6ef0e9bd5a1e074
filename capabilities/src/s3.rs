//! Blobs as objects of S3, or of a server that speaks its protocol.
//!
//! A blob is one object. Small ones go in one request, larger ones in parts, several at once, and nothing stays behind
//! where a write fails or is given up. Reads ask for parts in the same way, all of one version. `key.rs` says how the
//! names of objects come about.
//!
//! Conditional writes are declared only if the server was seen to honour them when the store was opened: single requests
//! and uploads in parts, alone and in a race. With credentials that may only read, the store opens all the same, without
//! them. Durability is declared as `process`: what a server does beyond that it does not tell.
//!
//! Some servers cannot keep names as long as S3 can. What this one keeps is found out as well: if not every key fits, the
//! capability `blob-long-keys` is not declared, and keys whose names are too long are refused before anything is sent.
//!
//! What S3 does not offer in one step takes two: `delete` and `copy` ask for the blob first. Of two deletions at once both
//! may answer that the blob was there. The time in the answer to a write is this machine's; reads tell the server's.
//!
//! No call waits for ever on a server that stays silent. One without much data ends within three times
//! `response_timeout_ms`; bytes on their way, in either direction, may stand still for `stall_timeout_ms`, however many
//! they are; completing an upload and copying are given a minute, and a second for each 32 MiB, up to ten minutes.
//!
//! A signed URL ends with the credentials that signed it: those of a role end within hours, whatever time was asked for.
//!
//! The SDK writes the access key, which is a name, into its log at the level TRACE; the secret key is in no log.
//!
//! A write that fails waits up to a second until its upload is removed; what is left then goes in the background. A
//! lifecycle rule for unfinished uploads is still worth having: nobody cleans up after a machine that lost its power.

mod blob;
mod config;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod failure;
mod key;

pub use blob::S3BlobStore;
pub use config::{CONNECT_TIMEOUT_DEFAULT, RESPONSE_TIMEOUT_DEFAULT, S3Config, STALL_TIMEOUT_DEFAULT};
pub use driver::S3Driver;
