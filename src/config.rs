//! The URLs of an application's stores, from a configuration file or the environment.

use std::fmt;

use larder_kernel::{Contract, Error, ErrorKind, Namespace, Result};
use serde::Deserialize;

/// The URLs and the namespace of an application's stores, in any format that serde reads.
///
/// An unknown field is an error. The type does not implement `Serialize`, and its `Debug` output omits the
/// URLs, because a URL may contain a password.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use larder::{StoresBuilder, StoresConfig};
///
/// let text = r#"{"namespace": "tenant-1", "url": "memory:", "tasks_url": "memory:"}"#;
/// let config: StoresConfig = serde_json::from_str(text)?;
/// let stores = StoresBuilder::from_config(&config).open().await?;
/// assert_eq!(stores.namespace().as_str(), "tenant-1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct StoresConfig {
    /// The namespace. The default is `default`.
    pub namespace: Option<Namespace>,
    /// One or more URLs for the contracts without a separate URL. If several URLs provide a contract, the
    /// first one is used; blobs go to the first URL that provides nothing else, such as `s3://…`.
    pub url: Urls,
    /// The URL of the history provider.
    pub history_url: Option<String>,
    /// The URL of the vector store.
    pub vectors_url: Option<String>,
    /// The URL of the graph store.
    pub graph_url: Option<String>,
    /// The URL of the blob store.
    pub blobs_url: Option<String>,
    /// The URL of the task store.
    pub tasks_url: Option<String>,
    /// The URL of the key-value store.
    pub key_value_url: Option<String>,
}

/// One URL or several.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Urls {
    /// One URL.
    One(String),
    /// Several URLs, or none.
    Many(Vec<String>),
}

impl Default for Urls {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl StoresConfig {
    /// Reads the environment: `LARDER_URL` (one URL, or several separated by spaces), `LARDER_NAMESPACE`, and
    /// `LARDER_HISTORY_URL`, `LARDER_VECTORS_URL`, `LARDER_GRAPH_URL`, `LARDER_BLOBS_URL`, `LARDER_TASKS_URL`
    /// and `LARDER_KEY_VALUE_URL`. An empty variable counts as absent.
    ///
    /// # Errors
    /// `InvalidInput` naming the field if a value is not UTF-8 or the namespace is invalid.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(()),
        })
    }

    fn from_variables(read: impl Fn(&str) -> std::result::Result<Option<String>, ()>) -> Result<Self> {
        let value = |variable: &'static str, field: &'static str| match read(variable) {
            Ok(value) => Ok(value.filter(|text| !text.is_empty())),
            Err(()) => Err(Error::new(
                ErrorKind::InvalidInput,
                "stores_config.from_env",
                format!("the environment variable {variable} is not UTF-8; set it to UTF-8 text"),
            )
            .with_field(field)),
        };
        let urls = value("LARDER_URL", "url")?.unwrap_or_default();
        Ok(Self {
            namespace: value("LARDER_NAMESPACE", "namespace")?.map(Namespace::new).transpose()?,
            url: Urls::Many(urls.split_whitespace().map(str::to_owned).collect()),
            history_url: value("LARDER_HISTORY_URL", "history_url")?,
            vectors_url: value("LARDER_VECTORS_URL", "vectors_url")?,
            graph_url: value("LARDER_GRAPH_URL", "graph_url")?,
            blobs_url: value("LARDER_BLOBS_URL", "blobs_url")?,
            tasks_url: value("LARDER_TASKS_URL", "tasks_url")?,
            key_value_url: value("LARDER_KEY_VALUE_URL", "key_value_url")?,
        })
    }

    /// Fills the missing fields of this configuration from `fallback`. For example,
    /// `StoresConfig::from_env()?.or(file)` lets the environment override a file.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            namespace: self.namespace.or(fallback.namespace),
            url: if self.url.is_empty() { fallback.url } else { self.url },
            history_url: self.history_url.or(fallback.history_url),
            vectors_url: self.vectors_url.or(fallback.vectors_url),
            graph_url: self.graph_url.or(fallback.graph_url),
            blobs_url: self.blobs_url.or(fallback.blobs_url),
            tasks_url: self.tasks_url.or(fallback.tasks_url),
            key_value_url: self.key_value_url.or(fallback.key_value_url),
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        match &self.url {
            Urls::One(url) => vec![url.clone()],
            Urls::Many(urls) => urls.clone(),
        }
    }

    /// Returns the contracts that have a separate URL, with that URL.
    pub(crate) fn own_urls(&self) -> impl Iterator<Item = (Contract, &str)> {
        let own = [
            (Contract::History, &self.history_url),
            (Contract::Vectors, &self.vectors_url),
            (Contract::Graph, &self.graph_url),
            (Contract::Blobs, &self.blobs_url),
            (Contract::Tasks, &self.tasks_url),
            (Contract::KeyValue, &self.key_value_url),
        ];
        own.into_iter().filter_map(|(contract, url)| Some((contract, url.as_deref()?)))
    }
}

impl Urls {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Many(urls) if urls.is_empty())
    }
}

impl From<&str> for Urls {
    fn from(url: &str) -> Self {
        Self::One(url.to_owned())
    }
}

impl fmt::Debug for StoresConfig {
    /// Omits the URLs, which may contain secrets, and the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<Contract> = self.own_urls().map(|(contract, _)| contract).collect();
        f.debug_struct("StoresConfig").field("url", &self.url).field("own_url", &own).finish_non_exhaustive()
    }
}

impl fmt::Debug for Urls {
    /// Shows only the number of URLs, because a URL may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self {
            Self::One(_) => 1,
            Self::Many(urls) => urls.len(),
        };
        write!(f, "{count} URLs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoresBuilder;

    const CANARY: &str = "canary-51c";

    fn config(text: &str) -> std::result::Result<StoresConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn one_url_several_or_none_are_read() {
        assert_eq!(config("{}").unwrap(), StoresConfig::default());
        assert_eq!(config(r#"{"url": "memory:"}"#).unwrap().urls(), ["memory:"]);
        assert_eq!(config(r#"{"url": ["a:", "b:"]}"#).unwrap().urls(), ["a:", "b:"]);
    }

    #[test]
    fn an_unknown_field_and_an_empty_namespace_are_refused() {
        assert!(config(r#"{"urls": "memory:"}"#).unwrap_err().to_string().contains("unknown field `urls`"));
        assert!(config(r#"{"namespace": ""}"#).is_err());
    }

    #[test]
    fn the_environment_wins_over_a_file_field_by_field() {
        let read = |name: &str| {
            Ok(match name {
                "LARDER_URL" => Some(" memory:  sqlite:x.db ".to_owned()),
                "LARDER_TASKS_URL" => Some(String::new()),
                "LARDER_NAMESPACE" => Some("env".to_owned()),
                _ => None,
            })
        };
        let file = config(r#"{"url": "file:y", "tasks_url": "memory:", "namespace": "file"}"#).unwrap();
        let merged = StoresConfig::from_variables(read).unwrap().or(file);
        assert_eq!(merged.urls(), ["memory:", "sqlite:x.db"]);
        assert_eq!(merged.tasks_url.as_deref(), Some("memory:"));
        assert_eq!(merged.namespace.unwrap().as_str(), "env");
    }

    #[test]
    fn a_variable_that_is_not_utf_8_is_named() {
        let read = |name: &str| if name == "LARDER_BLOBS_URL" { Err(()) } else { Ok(None) };
        let error = StoresConfig::from_variables(read).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("blobs_url")));
    }

    #[test]
    fn debug_shows_no_url() {
        let text = format!(r#"{{"url": "redis://:{CANARY}@h", "blobs_url": "s3://k:{CANARY}@b"}}"#);
        let config = config(&text).unwrap();
        let builder = StoresBuilder::from_config(&config);
        assert!(!format!("{config:?} {builder:?}").contains(CANARY));
    }

    #[tokio::test]
    async fn the_first_url_that_provides_a_contract_serves_it() {
        let stores = crate::Stores::builder().url("memory:").url("memory:").open().await.unwrap();
        assert_eq!(stores.contracts().len(), 6);
    }
}
