//! The drivers of a program, which open backends from URLs.

use std::fmt;
use std::sync::Arc;

use larder_capabilities::driver::{BackendUrl, Driver, Location, invalid_url};
use larder_capabilities::{drivers, feature_of};
use larder_kernel::{Contract, Error, ErrorKind, Result};

use crate::backend::Backend;

/// The drivers that open URLs. The default registry contains the drivers of this build; add your own with
/// [`with`](Self::with). A registry is a value, so programs and tests can have several.
///
/// ```
/// use larder::Registry;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// let registry = Registry::default();
/// assert!(registry.schemes().contains(&"memory"));
/// let stores = registry.open("memory:").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { drivers: drivers() }
    }
}

impl Registry {
    /// Creates a registry without drivers.
    #[must_use]
    pub fn empty() -> Self {
        Self { drivers: Vec::new() }
    }

    /// Adds a driver. If an earlier driver has the same scheme, the later one is used.
    #[must_use]
    pub fn with(mut self, driver: impl Driver) -> Self {
        self.drivers.push(Arc::new(driver));
        self
    }

    /// Returns the schemes of the drivers.
    #[must_use]
    pub fn schemes(&self) -> Vec<&'static str> {
        self.drivers.iter().flat_map(|driver| driver.schemes()).copied().collect()
    }

    /// Returns the driver that opens a URL, without I/O.
    ///
    /// # Errors
    /// `InvalidInput` or `Unsupported` naming `url`, as [`open`](crate::open) returns for an unknown scheme.
    pub fn driver(&self, url: &str) -> Result<&dyn Driver> {
        self.driver_of(&BackendUrl::parse(url)?)
    }

    /// Returns the drivers, in the order in which they were added.
    pub fn drivers(&self) -> impl Iterator<Item = &dyn Driver> {
        self.drivers.iter().map(AsRef::as_ref)
    }

    /// Returns the URL with the parameters that open its backend only for reading: `mode=ro` for files, and
    /// `migrate=check` for databases that opening would upgrade. A parameter that the URL already has stays,
    /// and a backend without such parameters keeps its URL.
    ///
    /// ```
    /// # fn main() -> larder::Result<()> {
    /// let registry = larder::Registry::default();
    /// assert_eq!(registry.read_only_url("sqlite:./a.db")?, "sqlite:./a.db?mode=ro");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn read_only_url(&self, url: &str) -> Result<String> {
        let (parsed, known) = (BackendUrl::parse(url)?, self.driver(url)?.parameters());
        let mut text = url.to_owned();
        for (name, value) in [("mode", "ro"), ("migrate", "check")] {
            if known.contains(&name) && parsed.parameter(name).is_none() {
                let mark = if text.contains('?') { '&' } else { '?' };
                text.push_str(&format!("{mark}{name}={value}"));
            }
        }
        Ok(text)
    }

    /// Opens a backend, from which stores in any number of namespaces can be taken.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub async fn backend(&self, url: &str) -> Result<Backend> {
        self.read(url)?.open().await
    }

    /// Parses a URL, without I/O.
    pub(crate) fn read(&self, text: &str) -> Result<Target> {
        let url = BackendUrl::parse(text)?;
        let driver = self.driver_of(&url)?;
        url.check_parameters(driver.name(), driver.parameters())?;
        Ok(Target { name: driver.name(), contracts: driver.contracts(), location: driver.read(&url)? })
    }

    fn driver_of(&self, url: &BackendUrl<'_>) -> Result<&dyn Driver> {
        let by_scheme = |driver: &&Arc<dyn Driver>| driver.schemes().contains(&url.scheme());
        match self.drivers.iter().rev().find(by_scheme) {
            Some(driver) => Ok(driver.as_ref()),
            None => Err(self.unknown(url.scheme())),
        }
    }

    pub(crate) fn unknown(&self, scheme: &str) -> Error {
        let schemes: Vec<String> = self.schemes().iter().map(|scheme| format!("`{scheme}:`")).collect();
        let schemes = schemes.join(", ");
        match feature_of(scheme) {
            Some(feature) => {
                let message = format!(
                    "the scheme needs the cargo feature `{feature}` of larder, which this build lacks; \
                     it opens {schemes}"
                );
                Error::new(ErrorKind::Unsupported, "open", message).with_field("url")
            }
            None => invalid_url(format!("has an unknown scheme; this build opens {schemes}")),
        }
    }
}

impl Backend {
    /// Opens the backend behind a URL, with the drivers of this build.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub async fn open(url: &str) -> Result<Self> {
        Registry::default().backend(url).await
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("schemes", &self.schemes()).finish()
    }
}

/// A parsed URL, with the driver that opens it.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) contracts: &'static [Contract],
    pub(crate) location: Box<dyn Location>,
}

impl Target {
    pub(crate) async fn open(self) -> Result<Backend> {
        // Boxed, because connecting creates a large future in the clients of some backends.
        let connection = Box::pin(self.location.open()).await?;
        Ok(Backend::new(self.name, self.contracts, connection))
    }
}
