//! The statement that makes several appends.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use larder_kernel::{Appended, Seq};
use sqlx::{PgConnection, Row};

use super::super::failure::{Fallible, corrupt};
use super::super::value::length;
use super::queue::Waiting;
use super::{APPEND, Address};

/// The threads of some appends, column by column.
#[derive(Default)]
struct Threads<'a> {
    places: HashMap<&'a Address, usize>,
    namespaces: Vec<&'a str>,
    agents: Vec<&'a str>,
    sessions: Vec<&'a str>,
    /// Messages and bytes that each gets.
    counts: Vec<i64>,
    totals: Vec<i64>,
}

impl<'a> Threads<'a> {
    fn place(&mut self, address: &'a Address) -> usize {
        let next = self.namespaces.len();
        let place = *self.places.entry(address).or_insert(next);
        if place == next {
            let (namespace, agent, session) = address.key();
            self.namespaces.push(namespace);
            self.agents.push(agent);
            self.sessions.push(session);
            self.counts.push(0);
            self.totals.push(0);
        }
        place
    }
}

/// Their messages, column by column.
#[derive(Default)]
struct Messages<'a> {
    places: Vec<i64>,
    numbers: Vec<i64>,
    sums: Vec<i64>,
    runs: Vec<Option<&'a str>>,
    authors: Vec<&'a str>,
    roles: Vec<&'a str>,
    sizes: Vec<i64>,
    bodies: Vec<&'a [u8]>,
}

/// Where an append's messages stand among those that its thread gets.
struct Part {
    place: usize,
    before: i64,
    count: i64,
}

fn columns(appends: &[Waiting]) -> (Threads<'_>, Messages<'_>, Vec<Part>) {
    let (mut threads, mut messages) = (Threads::default(), Messages::default());
    let mut parts = Vec::with_capacity(appends.len());
    for one in appends {
        let place = threads.place(&one.append.address);
        let before = threads.counts[place];
        let batch = &one.append.batch;
        for (message, size) in batch.sizes.iter().enumerate() {
            threads.counts[place] += 1;
            threads.totals[place] += size;
            // Of the database's, which counts from one.
            messages.places.push(length(place + 1));
            messages.numbers.push(threads.counts[place]);
            messages.sums.push(threads.totals[place]);
            messages.runs.push(batch.runs[message].as_deref());
            messages.authors.push(&batch.authors[message]);
            messages.roles.push(&batch.roles[message]);
            messages.sizes.push(*size);
            messages.bodies.push(&batch.bodies[message]);
        }
        parts.push(Part { place, before, count: threads.counts[place] - before });
    }
    (threads, messages, parts)
}

/// Makes the appends, and gives none for those that are to be made by themselves: their thread is new, its time to live has
/// passed, or somebody else works on it.
pub(super) fn append<'c>(
    sql: &'c mut PgConnection,
    appends: &'c [Waiting],
) -> BoxFuture<'c, Fallible<Vec<Option<Appended>>>> {
    Box::pin(async move {
        let (threads, messages, parts) = columns(appends);
        let rows = sqlx::query(
            "SELECT place, before
             FROM larder.append_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(&threads.namespaces)
        .bind(&threads.agents)
        .bind(&threads.sessions)
        .bind(&threads.counts)
        .bind(&threads.totals)
        .bind(&messages.places)
        .bind(&messages.numbers)
        .bind(&messages.sums)
        .bind(&messages.runs)
        .bind(&messages.authors)
        .bind(&messages.roles)
        .bind(&messages.sizes)
        .bind(&messages.bodies)
        .fetch_all(sql)
        .await?;
        let mut before = vec![None; threads.namespaces.len()];
        for row in rows {
            let place = usize::try_from(row.try_get::<i64, _>(0)?).map_err(|_| corrupt(APPEND))?;
            let place = place.checked_sub(1).and_then(|place| before.get_mut(place));
            *place.ok_or_else(|| corrupt(APPEND))? = Some(row.try_get::<i64, _>(1)?);
        }
        let appended = |part: &Part| {
            let before = before[part.place]? + part.before;
            Some(Appended { first: Seq::new(before + 1), last: Seq::new(before + part.count) })
        };
        Ok(parts.iter().map(appended).collect())
    })
}
