//! The drivers of this build: one line for each backend.

use std::sync::Arc;

use crate::driver::Driver;

/// Returns the drivers of this build, one for each backend that is compiled in.
#[must_use]
pub fn drivers() -> Vec<Arc<dyn Driver>> {
    vec![
        Arc::new(crate::memory::MemoryDriver),
        #[cfg(feature = "sqlite")]
        Arc::new(crate::sqlite::SqliteDriver),
        #[cfg(all(feature = "fs", unix))]
        Arc::new(crate::fs::FsDriver),
        #[cfg(feature = "postgres")]
        Arc::new(crate::postgres::PostgresDriver),
        #[cfg(feature = "redis")]
        Arc::new(crate::redis::RedisDriver),
        #[cfg(feature = "s3")]
        Arc::new(crate::s3::S3Driver),
        #[cfg(feature = "age")]
        Arc::new(crate::age::AgeDriver),
    ]
}

/// Returns the cargo feature that adds a driver for the scheme; `None` if no driver of this crate has the
/// scheme.
#[must_use]
pub fn feature_of(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "sqlite" => "sqlite",
        "file" => "fs",
        "postgres" | "postgresql" => "postgres",
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
            "redis"
        }
        "s3" => "s3",
        "age" => "age",
        _ => return None,
    })
}
