//! Opening what a command uses: only its contracts, and only for reading if it does not write.

use larder::driver::StoresRequest;
use larder::{Backend, Registry, Stores, redact_url};
use larder_kernel::{Contract, Error, Namespace};

use crate::live;

/// The use that a command makes of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads; nothing is created or upgraded.
    Read,
    /// It writes.
    Write,
}

/// Opens the backend behind a URL.
pub(crate) async fn backend(registry: &Registry, url: &str, access: Access) -> Result<Backend, String> {
    let opened = async {
        match access {
            Access::Read => registry.backend(&registry.read_only_url(url)?).await,
            Access::Write => registry.backend(url).await,
        }
    };
    opened.await.map_err(|error| cannot_open(url, &error))
}

/// Opens the stores of some contracts. Close them at the end of the command.
pub(crate) async fn stores(
    registry: &Registry,
    url: &str,
    namespace: &Namespace,
    contracts: &[Contract],
    access: Access,
) -> Result<Stores, String> {
    let backend = backend(registry, url, access).await?;
    let request = StoresRequest::new(namespace.clone()).with_contracts(contracts.to_vec());
    Ok(backend.stores_for(request).await)
}

pub(crate) fn cannot_open(url: &str, error: &Error) -> String {
    format!("cannot open {}: {}", redact_url(url), live::sentence(error))
}
