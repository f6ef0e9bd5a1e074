//! Settings and checks that SQLite and folders of blobs share.

mod config;
mod identity;
mod permissions;
mod volatile;

#[cfg_attr(not(feature = "sqlite"), expect(unreachable_pub, reason = "public in the module of SQLite"))]
pub use config::BUSY_TIMEOUT_DEFAULT;
pub(crate) use config::{BUSY_TIMEOUT_MS_MAX, busy_timeout_default, millis};
pub(crate) use identity::{Identity, identity};
#[cfg(feature = "sqlite")]
pub(crate) use identity::{next_to, real_path};
pub use permissions::FilePermissions;
pub(crate) use volatile::is_volatile;

#[cfg(all(test, unix, feature = "sqlite", feature = "fs"))]
mod tests;
