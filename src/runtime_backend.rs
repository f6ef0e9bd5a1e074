//! The task store of the process, chosen by the environment.

use larder_agents::storage::GlobalTaskStore;
use larder_kernel::{Error, Result};

use crate::StoresConfig;

/// The variable that chooses the task store of the process.
const VARIABLE: &str = "RUNTIME_BACKEND";
const OPERATION: &str = "tasks.set_global_from_env";
const URL_MISSING: &str = "`postgres` needs the URL of a Postgres database in LARDER_TASKS_URL or LARDER_URL";

/// The kind of the process's task store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeBackend {
    /// In the memory of the process.
    Memory,
    /// In Postgres.
    Postgres,
}

impl RuntimeBackend {
    /// Reads `RUNTIME_BACKEND`: `memory` or `postgres`. An absent or empty variable means `memory`.
    ///
    /// # Errors
    /// `InvalidInput` naming the field `RUNTIME_BACKEND` for any other value.
    pub fn from_env() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            Some(value) => Self::parse(&value.to_string_lossy()),
            None => Ok(Self::Memory),
        }
    }

    fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "memory" => Ok(Self::Memory),
            "postgres" => Ok(Self::Postgres),
            _ => Err(Error::invalid(
                OPERATION,
                VARIABLE,
                "is neither `memory` nor `postgres`; use one of them",
            )),
        }
    }

    /// Sets the task store that [`GlobalTaskStore::get`] returns for the lifetime of the process. Call it
    /// once, at the start. For `memory` the call does nothing, because memory is the default.
    ///
    /// The database is the one that [`StoresConfig::from_env`] reads: `LARDER_TASKS_URL`, or else the first
    /// Postgres URL in `LARDER_URL`. The namespace is that of `LARDER_NAMESPACE`, or else `default`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// use larder::RuntimeBackend;
    ///
    /// RuntimeBackend::from_env()?.set_global_tasks().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` naming `RUNTIME_BACKEND` if no URL of a Postgres database is given; `AlreadyExists` if
    /// the process already uses a task store; `Unsupported` in a build without the feature `postgres`;
    /// otherwise the backend's error.
    pub async fn set_global_tasks(self) -> Result<()> {
        if self == Self::Memory {
            return Ok(());
        }
        let config = StoresConfig::from_env()?;
        let url = database(&config).ok_or_else(|| Error::invalid(OPERATION, VARIABLE, URL_MISSING))?;
        let mut builder = crate::Stores::builder().tasks_url(url);
        if let Some(namespace) = config.namespace {
            builder = builder.namespace(namespace);
        }
        GlobalTaskStore::set(builder.open().await?.tasks()?.into())
    }
}

/// Returns the URL of the Postgres database for tasks.
fn database(config: &StoresConfig) -> Option<String> {
    let is_postgres = |url: &String| url.starts_with("postgres:") || url.starts_with("postgresql:");
    match &config.tasks_url {
        Some(url) => Some(url.clone()).filter(is_postgres),
        None => config.urls().into_iter().find(is_postgres),
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::ErrorKind;

    use super::*;

    /// Proves: RAVI-17
    #[test]
    fn an_unknown_backend_is_refused_by_the_variables_name() {
        for (value, backend) in [
            ("", RuntimeBackend::Memory),
            ("memory", RuntimeBackend::Memory),
            ("postgres", RuntimeBackend::Postgres),
        ] {
            assert_eq!(RuntimeBackend::parse(value).unwrap(), backend);
        }
        for value in ["Postgres", "postgres ", "redis", "postgres://u:canary@h/d"] {
            let error = RuntimeBackend::parse(value).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("RUNTIME_BACKEND")));
            assert!(!format!("{error:?} {error}").contains("canary"));
        }
    }

    #[test]
    fn the_url_of_the_tasks_precedes_the_first_postgres_url() {
        let config = |own: Option<&str>, all: &str| StoresConfig {
            tasks_url: own.map(str::to_owned),
            url: crate::Urls::Many(all.split_whitespace().map(str::to_owned).collect()),
            ..StoresConfig::default()
        };
        let found = |own, all| database(&config(own, all));
        assert_eq!(found(Some("postgres://a/t"), "postgres://a/u").as_deref(), Some("postgres://a/t"));
        assert_eq!(found(None, "redis://h:1 postgresql://a/u").as_deref(), Some("postgresql://a/u"));
        assert_eq!(found(Some("redis://h:1"), "postgres://a/u"), None, "the store is elsewhere");
        assert_eq!(found(None, "sqlite:x.db"), None);
    }
}
