//! The layer that gives each tenant of a backend its own namespaces.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use larder_kernel::limits::{BLOB_SHORT_NAMESPACE_BYTES_MAX, NAMESPACE_BYTES_MAX};
use larder_kernel::{Error, ErrorKind, Namespace, Result};
use sha2::{Digest, Sha256};

use super::answer::Answer;
use super::middleware::{Call, Middleware};

/// The separator between tenant and namespace. No tenant's name contains it.
const BETWEEN: char = '~';
/// The size of the digest that replaces a name that is too long: 192 bits.
const DIGEST_BYTES: usize = 24;

/// A tenant: one of several customers who share a backend.
///
/// Stores keep data apart by namespace, so each namespace of a tenant maps to a distinct namespace of the
/// backend. For example, `prod` of tenant `acme` maps to `acme~prod`. A longer result than 32 bytes, the size
/// that every blob store keeps whole, is replaced by 192 bits of its SHA-256 in 32 characters without `~`.
/// The contract is not restricted in any way: ids, listings, erasure and conditions are separate for each
/// tenant.
///
/// Open the backend in the namespace [`TenantLayer::behind`] and wrap the result. The wrapped store reports
/// the tenant's name for the namespace. If the store has another namespace, for example that of another
/// tenant, every call fails with `PermissionDenied`.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::layers::{Layer, Tenant};
/// use larder_agents::{InMemoryKeyValueStore, MemoryBackend};
/// use larder_kernel::{BucketName, Key, KeyValueStore, KeyValueStoreExt, Namespace, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let (backend, prod) = (MemoryBackend::new(), Namespace::new("prod")?);
/// let open = |tenant: &str| -> larder_kernel::Result<Arc<dyn KeyValueStore>> {
///     let layer = Tenant::new(tenant)?.enter(&prod)?;
///     Ok(layer.key_value(Arc::new(InMemoryKeyValueStore::open(&backend, layer.behind().clone()))))
/// };
/// let (acme, other) = (open("acme")?, open("other")?);
/// let (bucket, key) = (BucketName::new("state")?, Key::new("cursor")?);
/// acme.set(&bucket, &key, "7".into()).await?;
/// assert_eq!(other.get(&bucket, &key).await?, None);
/// assert_eq!(acme.namespace(), &prod);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    name: String,
}

impl Tenant {
    /// Creates a tenant by name. The rules for a namespace apply, and `~` is not allowed.
    ///
    /// # Errors
    /// `InvalidInput` with `tenant`.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        const OPERATION: &str = "tenant.new";
        let name = name.into();
        larder_kernel::check::batch(OPERATION, "tenant", name.len(), NAMESPACE_BYTES_MAX)?;
        larder_kernel::check::no_nul(OPERATION, "tenant", &name)?;
        if name.contains(BETWEEN) {
            return Err(Error::invalid(
                OPERATION,
                "tenant",
                "contains `~`, which separates tenant and namespace; remove it",
            ));
        }
        Ok(Self { name })
    }

    /// Returns the layer for one of the tenant's namespaces.
    ///
    /// # Errors
    /// Only after a defect: every name maps to a valid one.
    pub fn enter(&self, namespace: &Namespace) -> Result<TenantLayer> {
        let whole = format!("{}{BETWEEN}{namespace}", self.name);
        let behind = if whole.len() <= BLOB_SHORT_NAMESPACE_BYTES_MAX {
            Namespace::new(whole)?
        } else {
            let digest = Sha256::digest(whole.as_bytes());
            Namespace::new(BASE64_URL_SAFE_NO_PAD.encode(digest.get(..DIGEST_BYTES).unwrap_or(&digest)))?
        };
        Ok(TenantLayer { namespace: namespace.clone(), behind })
    }
}

/// Presents a store of the backend as a store of a tenant's namespace. Create it with [`Tenant::enter`].
#[derive(Debug, Clone)]
pub struct TenantLayer {
    namespace: Namespace,
    behind: Namespace,
}

impl TenantLayer {
    /// Returns the namespace in which to open the backend.
    #[must_use]
    pub fn behind(&self) -> &Namespace {
        &self.behind
    }
}

impl super::layer::MiddlewareLayer for TenantLayer {
    type Hook = Inside;

    fn hook(&self) -> Inside {
        Inside { namespace: self.namespace.clone(), behind: self.behind.clone() }
    }
}

#[derive(Debug)]
pub(super) struct Inside {
    namespace: Namespace,
    behind: Namespace,
}

impl Middleware for Inside {
    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        if call.namespace != self.behind.as_str() {
            let message = "the store is open in a namespace of another tenant; open it through this tenant's \
                           layer";
            return Err(Error::new(ErrorKind::PermissionDenied, call.operation, message));
        }
        attempt().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(tenant: &str, namespace: &str) -> String {
        let layer = Tenant::new(tenant).unwrap().enter(&Namespace::new(namespace).unwrap()).unwrap();
        layer.behind().as_str().to_owned()
    }

    #[test]
    fn tenants_are_separate_and_no_name_is_too_long() {
        let long = "n".repeat(NAMESPACE_BYTES_MAX);
        let pairs = [
            ("a", "b~c"),
            ("a", "b"),
            ("ab", "c"),
            ("a", "bc"),
            ("A", "b"),
            (&long[1..], "n"),
            ("n", &long[1..]),
            (&long, &long),
        ];
        let names: std::collections::BTreeSet<String> =
            pairs.iter().map(|(tenant, namespace)| behind(tenant, namespace)).collect();
        assert_eq!(names.len(), pairs.len());
        assert!(names.iter().all(|name| name.len() <= BLOB_SHORT_NAMESPACE_BYTES_MAX));
        assert_eq!(behind("acme", "prod"), "acme~prod");
        for wrong in ["", "a~b", "a\0", &"t".repeat(NAMESPACE_BYTES_MAX + 1)] {
            assert_eq!(Tenant::new(wrong).unwrap_err().field(), Some("tenant"));
        }
    }
}
