//! The declaration of a contract's mutants, and the code that all of their stores share.

/// Names the defects of a contract, each with the clauses that must detect it, and creates the mutants. They
/// include the mutants for the defects that all contracts share. It expects a function
/// `backend(defect: Defect) -> Arc<dyn Harness>` in the same module.
macro_rules! defects {
    ($contract:ident; $($name:ident: $defect:ident => [$($clause:literal),+]),+ $(,)?) => {
        defects! { @all $contract;
            namespaces_are_ignored: NamespacesIgnored => ["STORE-001", "STORE-007"],
            handles_reach_different_places: HandlesApart => ["STORE-002"],
            a_namespace_joins_the_id_behind_a_colon: NamespaceJoined => ["STORE-003"],
            namespaces_are_case_folded: NamespacesFolded => ["STORE-003"],
            namespaces_are_cut_at_40_characters: NamespacesCut => ["STORE-003"],
            namespaces_lose_what_is_not_ascii: NamespacesAscii => ["STORE-003"],
            namespaces_lose_outer_spaces: NamespacesTrimmed => ["STORE-003"],
            ids_are_case_folded: IdsFolded => ["STORE-003"],
            ids_are_cut_at_40_characters: IdsCut => ["STORE-003"],
            ids_lose_what_is_not_ascii: IdsAscii => ["STORE-003"],
            capabilities_change: CapabilitiesChange => ["STORE-004"],
            durability_is_declared_and_not_kept: DurabilityForgotten => ["STORE-005"],
            an_erasure_does_nothing: EraseDoesNothing => ["STORE-006", "STORE-009"],
            an_erasure_takes_namespaces_that_begin_alike: EraseTakesAlike => ["STORE-007"],
            erasing_nothing_is_not_found: ErasingNothingFails => ["STORE-008"],
            a_refused_call_leaves_a_trace: RefusalLeavesTrace => ["STORE-010"],
            a_dropped_write_is_partly_stored: WrittenInPart => ["STORE-011"],
            errors_quote_ids: ErrorsQuote => ["STORE-012"],
            the_debug_form_shows_ids: DebugShowsIds => ["STORE-012"],
            $($name: $defect => [$($clause),+]),+
        }
    };
    (@all $contract:ident; $($name:ident: $defect:ident => [$($clause:literal),+]),+) => {
        /// The defect of a store.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Defect {
            None,
            $($defect),+
        }

        impl Defect {
            fn opening(self) -> $crate::mutants::serve::Opening {
                use $crate::mutants::serve::Opening;
                match self {
                    Self::NamespacesIgnored => Opening::OneNamespace,
                    Self::NamespaceJoined => Opening::Joined,
                    Self::NamespacesFolded => Opening::As(str::to_lowercase),
                    Self::NamespacesCut => Opening::As($crate::mutants::serve::cut),
                    Self::NamespacesAscii => Opening::As($crate::mutants::serve::ascii),
                    Self::NamespacesTrimmed => Opening::As(|name| name.trim().to_owned()),
                    Self::HandlesApart => Opening::HandlesApart,
                    Self::DurabilityForgotten => Opening::Forgetful,
                    _ => Opening::Right,
                }
            }

            /// Returns an id as the store keeps it.
            fn kept(self, id: &str) -> String {
                match self {
                    Self::IdsFolded => id.to_lowercase(),
                    Self::IdsCut => $crate::mutants::serve::cut(id),
                    Self::IdsAscii => $crate::mutants::serve::ascii(id),
                    _ => id.to_owned(),
                }
            }
        }

        /// Returns the control, then the mutants of the contract.
        pub(super) fn mutants() -> Vec<$crate::mutants::Mutant> {
            use $crate::mutants::{CONTROL, Mutant};
            const DEFECTS: &[(&str, Defect, &[&str])] =
                &[$((stringify!($name), Defect::$defect, &[$($clause),+])),+];
            let contract = ::larder_kernel::Contract::$contract;
            let wrong = DEFECTS.iter().map(|(name, defect, clauses)| {
                Mutant::new(contract, name, clauses, || backend(*defect))
            });
            let control = Mutant::new(contract, CONTROL, &[], || backend(Defect::None));
            std::iter::once(control).chain(wrong).collect()
        }
    };
}

/// Implements the shared trait for a store over the field `inner`, with the defects that belong there. The
/// store has the fields `inner`, `defect` and `shared` and a method `holds_nothing`. A third argument
/// converts the capabilities of the inner store to those of this one.
macro_rules! forward_store {
    ($store:ident, $inner:ident) => {
        forward_store!($store, $inner, |_: &$store, declared| declared);
    };
    ($store:ident, $inner:ident, $declare:expr) => {
        impl ::std::fmt::Debug for $store {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.defect {
                    Defect::DebugShowsIds => write!(f, "{:?}", self.shared.noted()),
                    _ => f.write_str(stringify!($store)),
                }
            }
        }

        impl $store {
            /// Returns an id as the store keeps it.
            fn kept(&self, id: &str) -> String {
                if self.defect == Defect::DebugShowsIds {
                    self.shared.note(id);
                }
                self.defect.kept(&self.shared.joined(id))
            }

            /// Returns the result of a call that named an id.
            fn quoting<T>(&self, answer: ::larder_kernel::Result<T>, id: &str) -> ::larder_kernel::Result<T> {
                match self.defect {
                    Defect::ErrorsQuote => {
                        answer.map_err(|error| $crate::mutants::serve::quoting(&error, id))
                    }
                    _ => answer,
                }
            }
        }

        #[::async_trait::async_trait]
        impl ::larder_kernel::Store for $store {
            fn namespace(&self) -> &::larder_kernel::Namespace {
                self.inner.namespace()
            }

            fn capabilities(&self) -> ::larder_kernel::Capabilities {
                use ::std::sync::atomic::{AtomicUsize, Ordering};
                static ASKED: AtomicUsize = AtomicUsize::new(0);
                let mut declared: ::larder_kernel::Capabilities = ($declare)(self, self.inner.capabilities());
                if self.defect == Defect::CapabilitiesChange && ASKED.fetch_add(1, Ordering::Relaxed) % 2 == 1
                {
                    declared.durability = ::larder_kernel::Durability::Power;
                }
                if self.defect == Defect::DurabilityForgotten {
                    declared.durability = ::larder_kernel::Durability::Process;
                }
                declared
            }

            fn options(&self) -> ::larder_kernel::OptionSet {
                self.inner.options()
            }

            async fn erase(&self) -> ::larder_kernel::Result<()> {
                use ::larder_kernel::{Error, ErrorKind};
                match self.defect {
                    Defect::EraseDoesNothing => return Ok(()),
                    Defect::EraseTakesAlike => {
                        for name in self.shared.alike(self.inner.namespace()) {
                            $inner::open(&self.shared.place, name).erase().await?;
                        }
                    }
                    Defect::ErasingNothingFails if self.holds_nothing().await? => {
                        return Err(Error::new(ErrorKind::NotFound, "store.erase", "there is nothing"));
                    }
                    _ => {}
                }
                self.inner.erase().await?;
                self.shared.erased();
                Ok(())
            }
        }
    };
}

/// Declares stores of a contract that pass every call on, except for the calls that a defect concerns. `by`
/// is a macro with a rule for each method that a defect concerns. The type has a method `erase_wrongly`.
macro_rules! wrong_stores {
    (
        $contract:ident $trait:ident over $inner:ident with $with:ident, $by:ident;
        $($name:ident: $defect:ident => [$($clause:literal),+]),+ $(,)?
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(clippy::enum_variant_names, reason = "the names say what is wrong, and often the same")]
        enum Defect {
            $($defect),+
        }

        /// Returns the mutants of the contract.
        pub(super) fn mutants() -> Vec<$crate::mutants::Mutant> {
            use $crate::mutants::serve::{Opening, serve};
            let make = |defect| {
                serve(Opening::Right, move |shared, namespace, _| {
                    let wrong = Wrong::new($inner::open(&shared.place, namespace), defect);
                    $crate::harness::StoreSet::default().$with(::std::sync::Arc::new(wrong))
                })
            };
            const DEFECTS: &[(&str, Defect, &[&str])] =
                &[$((stringify!($name), Defect::$defect, &[$($clause),+])),+];
            let contract = ::larder_kernel::Contract::$contract;
            let wrong = DEFECTS.iter().map(|(name, defect, clauses)| {
                $crate::mutants::Mutant::new(contract, name, clauses, move || make(*defect))
            });
            wrong.collect()
        }

        #[::async_trait::async_trait]
        impl ::larder_kernel::Store for Wrong {
            fn namespace(&self) -> &::larder_kernel::Namespace {
                self.inner.namespace()
            }

            fn capabilities(&self) -> ::larder_kernel::Capabilities {
                self.inner.capabilities()
            }

            fn options(&self) -> ::larder_kernel::OptionSet {
                self.inner.options()
            }

            async fn erase(&self) -> ::larder_kernel::Result<()> {
                self.erase_wrongly().await
            }
        }

        ::larder_kernel::forward!($trait for Wrong, $by);
    };
}
