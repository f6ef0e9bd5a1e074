//! The harness of the `larder` command, for backends opened by URL.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use larder::driver::{Driver, Sharing, StoresRequest};
use larder::{Backend, Registry, Stores, redact_url};
use larder_kernel::{Contract, Error, ErrorKind, Namespace, Result};

use crate::layered::{Around, Layered};
use crate::{edges, relayed};
use larder_conformance::harness::{Edge, Harness, OpenOptions, Relayed, Staged, StoreSet};

/// Returns harnesses for the URLs, each `URL` or `NAME=URL`. Without URLs, it returns a harness for every
/// embedded backend, in the folder `scratch`, which the caller removes.
///
/// A layer's name and a plus sign before a URL put that layer over the backend; see [`crate::layered`].
///
/// # Errors
/// The error of the first URL that cannot be opened.
pub async fn harnesses(
    registry: &Registry,
    urls: &[String],
    scratch: &Path,
) -> Result<Vec<Arc<dyn Harness>>> {
    let mut opened: Vec<Arc<dyn Harness>> = Vec::new();
    if urls.is_empty() {
        for (name, url) in embedded(registry, scratch, "") {
            opened.push(named(registry, name, &url, scratch).await?);
        }
        return Ok(opened);
    }
    let mut names: Vec<String> = Vec::new();
    for (index, text) in urls.iter().enumerate() {
        let (name, url) = split_name(text);
        let name = name.unwrap_or_else(|| url.split(':').next().unwrap_or_default());
        let again = names.iter().any(|other| other == name);
        names.push(if again { format!("{name} {}", index + 1) } else { name.to_owned() });
        opened.push(named(registry, &names[index], url, scratch).await?);
    }
    Ok(opened)
}

/// Returns the embedded backends by name. Each has a separate path in `scratch` that begins with `prefix`.
fn embedded(registry: &Registry, scratch: &Path, prefix: &str) -> Vec<(&'static str, String)> {
    let url = |driver: &dyn Driver| match driver.sharing() {
        Sharing::Network => None,
        Sharing::Opening => Some(format!("{}:", driver.name())),
        _ => Some(url_of(driver.name(), &scratch.join(format!("{prefix}{}", driver.name())), "")),
    };
    // Reports name the backend after its cargo feature.
    let name = |driver: &dyn Driver| if driver.name() == "file" { "fs" } else { driver.name() };
    registry.drivers().filter_map(|driver| Some((name(driver), url(driver)?))).collect()
}

/// Returns the URLs, each `URL` or `NAME=URL`, or the URLs of every embedded backend, behind each layer and
/// behind all layers.
#[must_use]
pub fn behind_layers(registry: &Registry, urls: &[String], scratch: &Path) -> Vec<String> {
    let mut layered = Vec::new();
    for around in Around::ALL.map(Around::name) {
        if urls.is_empty() {
            let embedded = embedded(registry, scratch, &format!("{around}-")).into_iter();
            layered.extend(embedded.map(|(name, url)| format!("{around}+{name}={around}+{url}")));
        }
        layered.extend(urls.iter().map(|text| match split_name(text) {
            (Some(name), url) => format!("{around}+{name}={around}+{url}"),
            (None, url) => format!("{around}+{url}"),
        }));
    }
    layered
}

/// Returns the harness of one URL under a name.
///
/// # Errors
/// The error of the backend if the URL cannot be opened.
pub async fn named(registry: &Registry, name: &str, url: &str, scratch: &Path) -> Result<Arc<dyn Harness>> {
    if let Some((around, behind)) = Around::split(url) {
        let inner = Arc::new(UrlHarness::open(registry, name, behind, scratch).await?);
        return Ok(Arc::new(Layered { around, inner }));
    }
    Ok(Arc::new(UrlHarness::open(registry, name, url, scratch).await?))
}

/// Splits `NAME=URL`. No scheme contains an equals sign, so one before the first colon marks a name.
fn split_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, url)) if !name.is_empty() && !name.contains([':', '/', '?']) && url.contains(':') => {
            (Some(name), url)
        }
        _ => (None, text),
    }
}

/// Returns the URL of a path. Query parameters are appended unchanged.
pub(crate) fn url_of(scheme: &str, path: &Path, query: &str) -> String {
    let path = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}:{path}{mark}{query}")
}

/// A backend opened by URL, through two handles that share only the backend.
struct UrlHarness {
    registry: Registry,
    sharing: Sharing,
    name: String,
    url: String,
    scratch: PathBuf,
    handles: Handles,
}

enum Handles {
    /// Kept open, because opening takes longer than a case.
    Kept(Box<[Backend; 2]>),
    /// Opened for each case, so that dropping the stores closes the backend.
    EachTime,
}

impl UrlHarness {
    async fn open(registry: &Registry, name: &str, url: &str, scratch: &Path) -> Result<Self> {
        let sharing = registry.driver(url)?.sharing();
        let first = registry.backend(url).await?;
        let second = match sharing {
            Sharing::Opening => first.clone(),
            _ => registry.backend(url).await?,
        };
        Ok(Self {
            registry: registry.clone(),
            sharing,
            name: name.to_owned(),
            url: url.to_owned(),
            scratch: scratch.to_owned(),
            handles: Handles::Kept(Box::new([first, second])),
        })
    }

    /// Returns the same backend under another URL, opened for each case.
    fn each_time(&self, url: String) -> Arc<dyn Harness> {
        Arc::new(Self {
            registry: self.registry.clone(),
            sharing: self.sharing,
            name: self.name.clone(),
            url,
            scratch: self.scratch.clone(),
            handles: Handles::EachTime,
        })
    }
}

impl fmt::Debug for UrlHarness {
    /// Hides secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlHarness").field("url", &self.url()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Harness for UrlHarness {
    fn name(&self) -> &str {
        &self.name
    }

    fn url(&self) -> String {
        redact_url(&self.url)
    }

    fn shared_url(&self) -> Option<String> {
        matches!(self.sharing, Sharing::Machine | Sharing::Network).then(|| self.url.clone())
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let request = StoresRequest::new(namespace.clone()).with_embedder(options.embedder.clone());
        let stores = match &self.handles {
            Handles::Kept(backends) => backends[options.handle % backends.len()].stores_for(request).await,
            Handles::EachTime => self.registry.backend(&self.url).await?.stores_for(request).await,
        };
        store_set(&stores)
    }

    fn servers(&self) -> Vec<String> {
        relayed::servers(&self.url)
    }

    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        let Some(times) = relayed::through(&self.url, relays) else { return Ok(None) };
        let harness = named(&self.registry, &self.name, &times.url, &self.scratch).await?;
        let (answer_time_max, call_time_max) = (times.answer_time_max, times.call_time_max);
        Ok(Some(Relayed::new(harness, answer_time_max, call_time_max)))
    }

    /// A blob in S3 or a folder costs a request or a file, and so does an entity in AGE. A backend of another
    /// crate may sync its disk for each write.
    fn many_items(&self, contract: Contract) -> usize {
        let scheme = self.url.split(':').next().unwrap_or_default();
        let slow = match contract {
            Contract::Blobs => ["s3", "file", "sqlite"].contains(&scheme),
            Contract::Graph => scheme == "age",
            _ => !Registry::default().schemes().contains(&scheme),
        };
        if slow { 2_500 } else { 12_000 }
    }

    async fn stage(&self, edge: Edge) -> Result<Staged> {
        let alone = match self.sharing {
            Sharing::Machine => self.isolated().await?,
            _ => None,
        };
        let open = |name: &str, url: &str| {
            let (name, url) = (name.to_owned(), url.to_owned());
            async move { named(&self.registry, &name, &url, &self.scratch).await }.boxed()
        };
        edges::stage(&open, edge, &self.url, alone).await
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        match self.sharing {
            Sharing::Opening => return Ok(None),
            // For a server, closing the backend closes every connection, and opening it connects again.
            Sharing::Network => return Ok(Some(self.each_time(self.url.clone()))),
            _ => {}
        }
        let folder = tempfile::tempdir_in(&self.scratch).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "harness.isolated", "cannot create a temporary folder")
                .with_source(error)
        })?;
        let (location, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let scheme = location.split_once(':').map_or(location, |(scheme, _)| scheme);
        // The caller of `harnesses` removes the whole scratch folder.
        Ok(Some(self.each_time(url_of(scheme, &folder.keep().join("data"), query))))
    }
}

/// Returns the stores of an opened backend. A contract that cannot be opened is an error, not an unsupported
/// contract.
fn store_set(stores: &Stores) -> Result<StoreSet> {
    match stores.errors().into_iter().next() {
        Some((_, error)) => Err(error.clone()),
        None => Ok(stores.set().clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handles_on_one_memory_share_it_however_the_scheme_is_written() {
        use larder_kernel::{BucketName, Key, KeyValueStoreExt};

        let scratch = tempfile::tempdir().unwrap();
        let harness =
            harnesses(&Registry::default(), &["MEMORY:".to_owned()], scratch.path()).await.unwrap().remove(0);
        let namespace = Namespace::new("n").unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        let open = async |handle| {
            let options = OpenOptions::default().with_handle(handle);
            harness.open(&namespace, &options).await.unwrap().key_value().unwrap()
        };
        open(0).await.set(&bucket, &key, "v".into()).await.unwrap();
        assert!(open(1).await.get(&bucket, &key).await.unwrap().is_some());
        assert!(harness.isolated().await.unwrap().is_none());
    }

    #[test]
    fn a_name_precedes_the_url_and_no_part_of_a_url_is_parsed_as_a_name() {
        assert_eq!(split_name("mine=memory:"), (Some("mine"), "memory:"));
        assert_eq!(split_name("s3-garage=s3://k:s@b?x=1"), (Some("s3-garage"), "s3://k:s@b?x=1"));
        for url in ["memory:", "memory:?x=1", "s3://k:s@b?endpoint=http://h:1", "=memory:", "sqlite:a=b:c"] {
            assert_eq!(split_name(url), (None, url));
        }
    }

    #[tokio::test]
    async fn a_scratch_folder_may_have_any_name() {
        let scratch = tempfile::Builder::new().prefix("100% #1 ?x=y").tempdir().unwrap();
        let opened = harnesses(&Registry::default(), &[], scratch.path()).await.unwrap();
        assert!(scratch.path().join("sqlite").exists());
        let isolated = opened[1].isolated().await.unwrap().unwrap();
        isolated.open(&Namespace::new("n").unwrap(), &OpenOptions::default()).await.unwrap();
    }
}
