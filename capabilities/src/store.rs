//! The implementations that all stores share.

/// Implements `Debug` and [`Store`](larder_kernel::Store) for a store with the field `namespace`. `Debug`
/// shows the listed fields and no id of stored data.
macro_rules! store {
    (
        $store:ident as $this:ident,
        shows: { $($field:ident: $shown:expr),* },
        capabilities: $capabilities:expr,
        erase: $erase:expr,
    ) => {
        impl ::std::fmt::Debug for $store {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                #[allow(unused_variables)]
                let $this = self;
                f.debug_struct(stringify!($store))
                    $(.field(stringify!($field), $shown))*
                    .finish_non_exhaustive()
            }
        }

        #[::async_trait::async_trait]
        impl ::larder_kernel::Store for $store {
            fn namespace(&self) -> &::larder_kernel::Namespace {
                &self.namespace
            }

            fn capabilities(&self) -> ::larder_kernel::Capabilities {
                let $this = self;
                $capabilities
            }

            async fn erase(&self) -> ::larder_kernel::Result<()> {
                let $this = self;
                $erase
            }
        }
    };
}
