//! Pages of entities and relationships: a statement lists them in the order of ids, and the filter is applied
//! to the listed items.

use larder_kernel::{Entity, EntityId, Filter, Metadata, Page, PageRequest, Relationship, RelationshipId};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

use crate::postgres::encode;
use crate::postgres::failure::Fallible;

/// The number of rows that a filtered search reads at a time.
const FILTERED_ROWS: usize = 1_000;

/// An item of a page.
pub(crate) trait Item {
    type Id: Clone + AsRef<str>;

    fn id(&self) -> &Self::Id;
    fn properties(&self) -> &Metadata;
}

impl Item for Entity {
    type Id = EntityId;

    fn id(&self) -> &EntityId {
        &self.id
    }

    fn properties(&self) -> &Metadata {
        &self.properties
    }
}

impl Item for Relationship {
    type Id = RelationshipId;

    fn id(&self) -> &RelationshipId {
        &self.id
    }

    fn properties(&self) -> &Metadata {
        &self.properties
    }
}

/// Reads one page. `statement` lists a number of items after an id. It runs until the page and the next item
/// are found.
pub(crate) async fn page<'q, T: Item>(
    connection: &mut PgConnection,
    request: &PageRequest<T::Id>,
    filter: Option<&Filter>,
    statement: impl Fn(&str, i64) -> Query<'q, Postgres, PgArguments>,
    read: impl Fn(&PgRow) -> Fallible<T>,
) -> Fallible<Page<T, T::Id>> {
    if request.limit == 0 {
        return Ok(Page::empty());
    }
    let with_surplus = request.limit.saturating_add(1);
    let at_a_time = if filter.is_some() { with_surplus.max(FILTERED_ROWS) } else { with_surplus };
    let mut after = request.after.as_ref().map_or_else(String::new, |id| id.as_ref().to_owned());
    let mut items = Vec::new();
    loop {
        let rows = statement(&after, encode::length(at_a_time)).fetch_all(&mut *connection).await?;
        for row in &rows {
            let item = read(row)?;
            item.id().as_ref().clone_into(&mut after);
            if items.len() <= request.limit && filter.is_none_or(|filter| filter.matches(item.properties())) {
                items.push(item);
            }
        }
        if rows.len() < at_a_time || items.len() > request.limit {
            return Ok(Page::from_surplus(items, request.limit, |item: &T| item.id().clone()));
        }
    }
}
