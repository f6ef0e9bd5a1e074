//! The statement that makes a batch of appends.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use larder_kernel::{Appended, Seq};
use sqlx::{PgConnection, Row};

use super::{APPEND, Address, Queued};
use crate::postgres::decode::generation;
use crate::postgres::encode::length;
use crate::postgres::engine::{Write, begin_write};
use crate::postgres::failure::{Fallible, corrupt};

/// The threads of a batch, column by column.
#[derive(Default)]
struct Threads<'a> {
    indexes: HashMap<&'a Address, usize>,
    namespaces: Vec<&'a str>,
    agents: Vec<&'a str>,
    sessions: Vec<&'a str>,
    /// The number of messages and bytes for each thread.
    counts: Vec<i64>,
    totals: Vec<i64>,
}

impl<'a> Threads<'a> {
    fn index(&mut self, address: &'a Address) -> usize {
        let next = self.namespaces.len();
        let index = *self.indexes.entry(address).or_insert(next);
        if index == next {
            let (namespace, agent, session) = address.key();
            self.namespaces.push(namespace);
            self.agents.push(agent);
            self.sessions.push(session);
            self.counts.push(0);
            self.totals.push(0);
        }
        index
    }
}

/// The messages of a batch, column by column.
#[derive(Default)]
struct Messages<'a> {
    threads: Vec<i64>,
    numbers: Vec<i64>,
    sums: Vec<i64>,
    runs: Vec<Option<&'a str>>,
    authors: Vec<&'a str>,
    roles: Vec<&'a str>,
    sizes: Vec<i64>,
    bodies: Vec<&'a [u8]>,
}

/// The position of an append's messages among the messages of its thread.
struct Part {
    thread: usize,
    before: i64,
    count: i64,
}

fn columns(batch: &[Queued]) -> (Threads<'_>, Messages<'_>, Vec<Part>) {
    let (mut threads, mut messages) = (Threads::default(), Messages::default());
    let mut parts = Vec::with_capacity(batch.len());
    for queued in batch {
        let thread = threads.index(&queued.append.address);
        let before = threads.counts[thread];
        let rows = &queued.append.batch;
        for (message, size) in rows.sizes.iter().enumerate() {
            threads.counts[thread] += 1;
            threads.totals[thread] += size;
            // The database counts from one.
            messages.threads.push(length(thread + 1));
            messages.numbers.push(threads.counts[thread]);
            messages.sums.push(threads.totals[thread]);
            messages.runs.push(rows.runs[message].as_deref());
            messages.authors.push(&rows.authors[message]);
            messages.roles.push(&rows.roles[message]);
            messages.sizes.push(*size);
            messages.bodies.push(&rows.bodies[message]);
        }
        parts.push(Part { thread, before, count: threads.counts[thread] - before });
    }
    (threads, messages, parts)
}

/// Makes the appends. Returns `None` for each that has to run alone: its thread is new or expired, or another
/// client holds the thread's lock.
pub(super) fn append<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    batch: &'c [Queued],
) -> BoxFuture<'c, Fallible<Vec<Option<Appended>>>> {
    Box::pin(async move {
        let (threads, messages, parts) = columns(batch);
        let rows = sqlx::query(concat!(
            "SELECT place, before, generation
             FROM larder.append_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             WHERE ",
            begin_write!("14", "15")
        ))
        .bind(&threads.namespaces)
        .bind(&threads.agents)
        .bind(&threads.sessions)
        .bind(&threads.counts)
        .bind(&threads.totals)
        .bind(&messages.threads)
        .bind(&messages.numbers)
        .bind(&messages.sums)
        .bind(&messages.runs)
        .bind(&messages.authors)
        .bind(&messages.roles)
        .bind(&messages.sizes)
        .bind(&messages.bodies)
        .bind(write.format)
        .bind(write.commit)
        .fetch_all(sql)
        .await?;
        let mut before = vec![None; threads.namespaces.len()];
        for row in rows {
            let thread = usize::try_from(row.try_get::<i64, _>(0)?).map_err(|_| corrupt(APPEND))?;
            let slot = thread.checked_sub(1).and_then(|thread| before.get_mut(thread));
            *slot.ok_or_else(|| corrupt(APPEND))? =
                Some((row.try_get::<i64, _>(1)?, generation(row.try_get(2)?)));
        }
        let appended = |part: &Part| {
            let (before, generation) = before[part.thread]?;
            let before = before + part.before;
            let appended = Appended::new(Seq::new(before + 1), Seq::new(before + part.count));
            Some(appended.in_generation(generation))
        };
        Ok(parts.iter().map(appended).collect())
    })
}
