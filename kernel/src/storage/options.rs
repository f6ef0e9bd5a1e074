//! The optional fields of requests: the ones that a call sets, and the ones that a store honors.
//!
//! A request type may get further fields in a later release. A store that was written before such a field
//! existed cannot read it, and its compiler does not say so. Therefore each request reports which of its
//! optional fields are set, and each store declares by name which of them it honors
//! ([`Store::options`](super::Store::options)). The handles of the crate `larder` refuse a call that sets any
//! other option before the store sees it.
//!
//! An option with a separate capability, such as the condition of a blob's write, is covered by that
//! capability. An argument that is an enum needs no option: the wildcard arm that the compiler requires
//! returns [`Error::unknown_value`].

use std::fmt;

use super::Contract;
use crate::error::{ContextValue, Error, ErrorKind, Result};

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident, $contract:ident, $text:literal;)*) => {
        /// An optional field of a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum RequestOption {
            $($(#[$doc])* $name,)*
        }

        impl RequestOption {
            /// All options, contract by contract.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name used in errors: the request and the field.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns the contract whose requests have the field.
            #[must_use]
            pub const fn contract(self) -> Contract {
                match self {
                    $(Self::$name => Contract::$contract,)*
                }
            }
        }
    };
}

options! {
    /// [`AppendOptions::idempotency_key`](crate::AppendOptions::idempotency_key).
    AppendIdempotencyKey, History, "append.idempotency_key";
    /// [`AppendOptions::ttl`](crate::AppendOptions::ttl).
    AppendTtl, History, "append.ttl";
    /// [`AppendOptions::if_last`](crate::AppendOptions::if_last).
    AppendIfLast, History, "append.if_last";
    /// [`Removal::if_last`](crate::Removal::if_last).
    RemoveIfLast, History, "remove.if_last";
    /// [`Removal::idempotency_key`](crate::Removal::idempotency_key).
    RemoveIdempotencyKey, History, "remove.idempotency_key";
    /// [`MessageUpdate::if_last`](crate::MessageUpdate::if_last).
    UpdateIfLast, History, "update.if_last";
    /// [`MessageUpdate::idempotency_key`](crate::MessageUpdate::idempotency_key).
    UpdateIdempotencyKey, History, "update.idempotency_key";
    /// The fencing token of a write, such as [`AppendOptions::fence`](crate::AppendOptions::fence).
    Fence, History, "fence";
    /// A [`MessageFilter`](crate::MessageFilter) that names agents.
    MessagesOfAgents, History, "filter.agent";
    /// A [`MessageFilter`](crate::MessageFilter) that names roles.
    MessagesOfRoles, History, "filter.role";
    /// [`SearchRequest::filter`](crate::SearchRequest::filter).
    SearchFilter, Vectors, "search.filter";
    /// [`SearchRequest::score_min`](crate::SearchRequest::score_min).
    SearchScoreMin, Vectors, "search.score_min";
    /// [`EntityWrite::condition`](crate::EntityWrite::condition) other than none.
    EntityCondition, Graph, "entity.condition";
    /// [`EntityWrite::mode`](crate::EntityWrite::mode) other than replace.
    EntityMode, Graph, "entity.mode";
    /// [`RelationshipWrite::condition`](crate::RelationshipWrite::condition) other than none.
    RelationshipCondition, Graph, "relationship.condition";
    /// [`RelationshipWrite::mode`](crate::RelationshipWrite::mode) other than replace.
    RelationshipMode, Graph, "relationship.mode";
    /// [`NeighborQuery::direction`](crate::NeighborQuery::direction) other than both.
    NeighborsDirection, Graph, "neighbors.direction";
    /// [`NeighborQuery::relationship_types`](crate::NeighborQuery::relationship_types).
    NeighborsTypes, Graph, "neighbors.relationship_types";
    /// [`EntityQuery::entity_type`](crate::EntityQuery::entity_type).
    EntitiesType, Graph, "entities.entity_type";
    /// [`EntityQuery::filter`](crate::EntityQuery::filter).
    EntitiesFilter, Graph, "entities.filter";
    /// [`RelationshipQuery::relationship_type`](crate::RelationshipQuery::relationship_type).
    RelationshipsType, Graph, "relationships.relationship_type";
    /// [`RelationshipQuery::source`](crate::RelationshipQuery::source).
    RelationshipsSource, Graph, "relationships.source";
    /// [`RelationshipQuery::target`](crate::RelationshipQuery::target).
    RelationshipsTarget, Graph, "relationships.target";
    /// [`RelationshipQuery::filter`](crate::RelationshipQuery::filter).
    RelationshipsFilter, Graph, "relationships.filter";
    /// [`BlobPutOptions::content_type`](crate::BlobPutOptions::content_type).
    BlobContentType, Blobs, "put.content_type";
    /// [`BlobPutOptions::metadata`](crate::BlobPutOptions::metadata).
    BlobMetadata, Blobs, "put.metadata";
    /// [`BlobGetOptions::range`](crate::BlobGetOptions::range).
    BlobRange, Blobs, "get.range";
    /// [`PresignRequest::content_type`](crate::PresignRequest::content_type).
    PresignContentType, Blobs, "presign.content_type";
    /// [`NewBoard::label`](crate::NewBoard::label).
    BoardLabel, Tasks, "board.label";
    /// [`NewBoard::parent`](crate::NewBoard::parent).
    BoardParent, Tasks, "board.parent";
    /// [`NewTask::description`](crate::NewTask::description).
    TaskDescription, Tasks, "task.description";
    /// [`NewTask::metadata`](crate::NewTask::metadata).
    TaskMetadata, Tasks, "task.metadata";
    /// [`TaskQuery::statuses`](crate::TaskQuery::statuses).
    TasksStatuses, Tasks, "tasks.statuses";
    /// [`Transition::expected`](crate::Transition::expected).
    TransitionExpected, Tasks, "transition.expected";
    /// [`Transition::token`](crate::Transition::token).
    TransitionToken, Tasks, "transition.token";
    /// [`Transition::result`](crate::Transition::result).
    TransitionResult, Tasks, "transition.result";
    /// [`KeyValuePutOptions::condition`](crate::KeyValuePutOptions::condition) other than none.
    ValueCondition, KeyValue, "put.condition";
    /// [`KeyValuePutOptions::ttl`](crate::KeyValuePutOptions::ttl).
    ValueTtl, KeyValue, "put.ttl";
    /// [`KeyValueQuery::from`](crate::KeyValueQuery::from).
    EntriesFrom, KeyValue, "entries.from";
    /// [`KeyValueQuery::to`](crate::KeyValueQuery::to).
    EntriesTo, KeyValue, "entries.to";
    /// [`KeyValueQuery::order`](crate::KeyValueQuery::order) other than ascending.
    EntriesOrder, KeyValue, "entries.order";
    /// [`KeyValueQuery::values`](crate::KeyValueQuery::values).
    EntriesValues, KeyValue, "entries.values";
}

impl fmt::Display for RequestOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of request options: the options that a request sets, or the options that a store honors. It is a
/// number, so a check allocates nothing.
///
/// ```
/// use larder_kernel::{AppendOptions, ErrorKind, IdempotencyKey, OptionSet, RequestOption};
///
/// let declared = OptionSet::of(&[RequestOption::AppendTtl]);
/// let set = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k")?).options();
/// let error = declared.check("history.append_many", set).unwrap_err();
/// assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("append.idempotency_key")));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OptionSet(u64);

const _: () = assert!(RequestOption::ALL.len() <= 64, "each option needs a bit");

impl OptionSet {
    /// The set without options.
    pub const NONE: Self = Self(0);

    /// Creates the set of these options. A store lists the options by name: a list from the kernel would
    /// grow with each version and claim options that the store does not honor.
    #[must_use]
    pub const fn of(options: &[RequestOption]) -> Self {
        let (mut set, mut at) = (Self::NONE, 0);
        while at < options.len() {
            set = set.with(options[at]);
            at += 1;
        }
        set
    }

    /// Adds an option.
    #[must_use]
    pub const fn with(self, option: RequestOption) -> Self {
        Self(self.0 | 1 << option as u32)
    }

    /// Adds an option if the condition is true.
    #[must_use]
    pub const fn with_if(self, set: bool, option: RequestOption) -> Self {
        if set { self.with(option) } else { self }
    }

    /// Returns `true` if the set contains the option.
    #[must_use]
    pub const fn has(self, option: RequestOption) -> bool {
        self.0 & 1 << option as u32 != 0
    }

    /// Returns the options of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the options that are in both sets. A layer that reads the requests itself declares the
    /// options that both the layer and the inner store honor.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the options of the set, in the order of [`RequestOption::ALL`].
    pub fn iter(self) -> impl Iterator<Item = RequestOption> {
        RequestOption::ALL.iter().copied().filter(move |option| self.has(*option))
    }

    /// Checks that a store with this declaration honors every option that a request sets. O(1).
    ///
    /// # Errors
    /// `Unsupported` naming the first option that the store does not honor.
    pub fn check(self, operation: &'static str, set: Self) -> Result<()> {
        match Self(set.0 & !self.0).iter().next() {
            None => Ok(()),
            Some(option) => {
                let message = "the store does not honor this option; leave it out or use another backend";
                Err(Error::new(ErrorKind::Unsupported, operation, message)
                    .with_field(option.as_str())
                    .with_context("undeclared", option.as_str()))
            }
        }
    }
}

impl fmt::Debug for OptionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(RequestOption::as_str)).finish()
    }
}

/// Returns the option that a store does not honor, if the error is from [`OptionSet::check`].
#[must_use]
pub fn undeclared_option(error: &Error) -> Option<RequestOption> {
    error.context().iter().find_map(|fact| match fact {
        ("undeclared", ContextValue::Word(name)) => {
            RequestOption::ALL.iter().copied().find(|option| option.as_str() == *name)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_option_has_a_unique_bit_and_name() {
        let names: BTreeSet<_> = RequestOption::ALL.iter().map(|option| option.as_str()).collect();
        assert_eq!(names.len(), RequestOption::ALL.len());
        for &option in RequestOption::ALL {
            assert_eq!(OptionSet::of(&[option]).iter().collect::<Vec<_>>(), [option]);
        }
        assert_eq!(OptionSet::of(RequestOption::ALL).iter().count(), RequestOption::ALL.len());
    }

    #[test]
    fn an_option_that_is_not_declared_is_refused_by_name() {
        let all = OptionSet::of(RequestOption::ALL);
        assert!(all.check("test", all).is_ok());
        assert!(OptionSet::NONE.check("test", OptionSet::NONE).is_ok());
        for &option in RequestOption::ALL {
            let others = RequestOption::ALL.iter().copied().filter(|other| *other != option);
            let declared = others.fold(OptionSet::NONE, OptionSet::with);
            let error = declared.check("test", OptionSet::of(&[option])).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some(option.as_str())));
            assert_eq!(undeclared_option(&error), Some(option));
            assert!(declared.check("test", declared).is_ok());
        }
    }
}
