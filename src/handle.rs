//! The code that the six handles share.

use larder_kernel::{Error, Result};

/// Converts an id, a reference to one, or a text into an id.
pub(crate) fn id<I>(given: impl TryInto<I, Error: Into<Error>>) -> Result<I> {
    given.try_into().map_err(Into::into)
}

/// Defines the struct of a handle, the access to its provider, and its conversions.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $provider:ident, $guard:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(std::sync::Arc<dyn larder_kernel::$provider>);

        impl $name {
            #[doc = concat!(
                "Wraps any [`", stringify!($provider), "`](larder_kernel::", stringify!($provider), ")."
            )]
            #[must_use]
            pub fn new(provider: std::sync::Arc<dyn larder_kernel::$provider>) -> Self {
                Self(larder_kernel::storage::guard::$guard(provider))
            }

            /// Returns the provider, for code that takes any backend as a trait object. Its methods can also
            /// be called on the handle itself, except where a method of the handle has the same name.
            #[must_use]
            pub fn provider(&self) -> &std::sync::Arc<dyn larder_kernel::$provider> {
                &self.0
            }
        }

        impl std::ops::Deref for $name {
            type Target = dyn larder_kernel::$provider;
            fn deref(&self) -> &Self::Target {
                &*self.0
            }
        }

        impl From<std::sync::Arc<dyn larder_kernel::$provider>> for $name {
            fn from(provider: std::sync::Arc<dyn larder_kernel::$provider>) -> Self {
                Self::new(provider)
            }
        }

        impl From<$name> for std::sync::Arc<dyn larder_kernel::$provider> {
            fn from(handle: $name) -> Self {
                handle.0
            }
        }
    };
}
pub(crate) use handle;
