//! Hostile ids: different ids name different items (`STORE-003`).

use std::collections::BTreeSet;

use larder_kernel::{
    AgentId, AgentRole, ChatMessage, HistoryProvider, IdempotencyKey, MessageFilter, PageRequest, RunId,
    Thread,
};

use super::support::{all, append, holds, list_all, messages, next_said, reads_empty, texts, thread};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::suites::ids::{hostile, hostile_pairs};

/// Writes one message to each thread, reads each back, lists all in byte order, and clears every second
/// thread.
async fn threads_stay_apart(context: &Context, threads: &[Thread]) -> CaseResult {
    let stores = context.history().await?;
    for (number, thread) in threads.iter().enumerate() {
        let text = number.to_string();
        let answer = append(&*stores.a, thread, messages(&[&text])).await?;
        expect::equal(&format!("the first number in {thread:?}"), &answer.first.get(), &1)?;
    }
    for (number, thread) in threads.iter().enumerate() {
        let stored = all(&*stores.b, thread).await?;
        expect::equal(
            &format!("what {thread:?} holds"),
            &texts(&stored),
            &vec![number.to_string().as_str()],
        )?;
    }
    listed_in_order(&*stores.b, threads.iter()).await?;
    for thread in threads.iter().step_by(2) {
        expect::equal(&format!("removed from {thread:?}"), &stores.a.clear(thread, None).await?, &1)?;
    }
    for (number, thread) in threads.iter().enumerate() {
        if number.is_multiple_of(2) {
            let left = all(&*stores.b, thread).await?;
            expect::equal(&format!("the remaining messages of {thread:?}"), &texts(&left), &Vec::new())?;
        } else {
            holds(&*stores.b, thread, &[&number.to_string()]).await?;
        }
    }
    listed_in_order(&*stores.b, threads.iter().skip(1).step_by(2)).await
}

async fn listed_in_order(store: &dyn HistoryProvider, threads: impl Iterator<Item = &Thread>) -> CaseResult {
    let expected: BTreeSet<Thread> = threads.cloned().collect();
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [7, 1_000] {
        let listed: Vec<_> = list_all(store, limit).await?.into_iter().map(|info| info.thread).collect();
        expect::equal(&format!("the threads in pages of {limit}"), &listed, &expected)?;
    }
    Ok(())
}

/// STORE-003, for sessions.
pub(super) async fn sessions_that_differ_in_any_byte_are_different_threads(context: Context) -> CaseResult {
    let threads = hostile().iter().map(|session| thread(session)).collect::<CaseResult<Vec<_>>>()?;
    threads_stay_apart(&context, &threads).await
}

/// STORE-003, for agents.
pub(super) async fn agents_that_differ_in_any_byte_have_different_threads(context: Context) -> CaseResult {
    let threads =
        hostile().iter().map(|agent| Ok(Thread::new(agent, "session")?)).collect::<CaseResult<Vec<_>>>()?;
    threads_stay_apart(&context, &threads).await
}

/// STORE-003, for agent and session together.
pub(super) async fn agent_and_session_do_not_merge(context: Context) -> CaseResult {
    let threads = hostile_pairs()
        .iter()
        .map(|(agent, session)| Ok(Thread::new(agent, session)?))
        .collect::<CaseResult<Vec<_>>>()?;
    threads_stay_apart(&context, &threads).await
}

/// STORE-003, for the longest possible pair of names.
pub(super) async fn the_longest_names_of_agent_and_session_fit(context: Context) -> CaseResult {
    let mut threads = Vec::new();
    for (agent, session) in [('a', 'a'), ('a', 'b'), ('b', 'a'), ('b', 'b')] {
        threads.push(Thread::new(
            format!("{}{agent}", "x".repeat(511)),
            format!("{}{session}", "y".repeat(511)),
        )?);
    }
    threads_stay_apart(&context, &threads).await
}

/// STORE-003, for the filter by agent.
pub(super) async fn each_agent_lists_only_its_own_threads(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let agents = hostile();
    for agent in &agents {
        for session in ["1", "2"] {
            append(&*stores.a, &Thread::new(agent, session)?, messages(&["x"])).await?;
        }
    }
    for agent in &agents {
        let id = AgentId::new(agent)?;
        let page = stores.b.list_threads(Some(&id), PageRequest::first(1)).await?;
        let first = expect::some(&format!("the first thread of {agent:?}"), page.items.first())?;
        expect::equal("the first thread", &first.thread, &Thread::new(agent, "1")?)?;
        let next = expect::some("the start of the next page", page.next)?;
        let page = stores.b.list_threads(Some(&id), PageRequest::after(next, 10)).await?;
        let rest: Vec<_> = page.items.into_iter().map(|info| info.thread).collect();
        expect::equal(&format!("the other threads of {agent:?}"), &rest, &vec![Thread::new(agent, "2")?])?;
    }
    Ok(())
}

/// STORE-003, for runs.
pub(super) async fn runs_that_differ_in_any_byte_are_cleared_separately(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("runs")?;
    let runs = hostile();
    let mut batch = Vec::new();
    for run in &runs {
        batch.push(ChatMessage::user(run).with_run(RunId::new(run)?));
    }
    append(&*stores.a, &thread, batch).await?;
    for (number, run) in runs.iter().enumerate() {
        let removed = stores.a.clear_run(&thread, &RunId::new(run)?, None).await?;
        expect::equal(&format!("removed of the run {run:?}"), &removed, &1)?;
        if number.is_multiple_of(10) {
            let left: Vec<&str> = runs.iter().skip(number + 1).map(String::as_str).collect();
            holds(&*stores.b, &thread, &left).await?;
        }
    }
    reads_empty(&*stores.b, &thread).await
}

/// STORE-003, for a session and a run that a backend might join.
pub(super) async fn session_and_run_do_not_merge(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (number, (session, run)) in hostile_pairs().iter().enumerate() {
        let message = ChatMessage::user(number.to_string()).with_run(RunId::new(run)?);
        append(&*stores.a, &thread(session)?, vec![message]).await?;
    }
    for (session, run) in hostile_pairs() {
        let removed = stores.a.clear_run(&thread(&session)?, &RunId::new(&run)?, None).await?;
        expect::equal(&format!("removed of {run:?} in {session:?}"), &removed, &1)?;
    }
    Ok(())
}

/// STORE-003, for an author and a role that an index might join.
pub(super) async fn author_and_role_do_not_merge(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, pairs) = (thread("authors")?, hostile_pairs());
    let message = |(agent, role): &(String, String)| {
        let text = format!("{agent:?} {role:?}");
        Ok(ChatMessage::user(text).with_author(AgentId::new(agent)?, Some(AgentRole::new(role)?)))
    };
    let batch = pairs.iter().map(message).collect::<CaseResult<Vec<_>>>()?;
    append(&*stores.a, &thread, batch).await?;
    let names: BTreeSet<&String> = pairs.iter().flat_map(|(agent, role)| [agent, role]).collect();
    for name in names {
        let by_agent = MessageFilter::new().include_agent(AgentId::new(name)?);
        let by_role = MessageFilter::new().include_role(AgentRole::new(name)?);
        for (filter, first) in [(by_agent, true), (by_role, false)] {
            let found = stores.b.tail_matching(&thread, &filter, None, 1_000).await?.messages;
            let wanted =
                pairs.iter().filter(|(agent, role)| if first { agent == name } else { role == name });
            let wanted: Vec<String> = wanted.map(|(agent, role)| format!("{agent:?} {role:?}")).collect();
            let what = format!("messages by {}", if first { "agent" } else { "role" });
            expect::equal(
                &format!("{what} {name:?}"),
                &texts(&found),
                &wanted.iter().map(String::as_str).collect(),
            )?;
        }
    }
    Ok(())
}

/// STORE-003, for idempotency keys, on threads that a backend might confuse.
pub(super) async fn keys_that_differ_in_any_byte_are_different_appends(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("keys")?;
    let keys = hostile();
    let options = |key: &String| -> CaseResult<_> {
        Ok(larder_kernel::AppendOptions::default().with_idempotency_key(IdempotencyKey::new(key)?))
    };
    let mut answers = Vec::new();
    for key in &keys {
        answers.push(stores.a.append_many(&thread, messages(&["same"]), options(key)?).await?);
    }
    let numbers: Vec<i64> = answers.iter().map(|answer| answer.last.get()).collect();
    let expected: Vec<i64> = (1_i64..).take(keys.len()).collect();
    expect::equal("the numbers given", &numbers, &expected)?;
    for (key, answer) in keys.iter().zip(&answers) {
        let again = stores.b.append_many(&thread, messages(&["same"]), options(key)?).await?;
        expect::equal(&format!("the repeated result of {key:?}"), &again, answer)?;
    }
    for (number, (session, key)) in hostile_pairs().iter().enumerate() {
        let thread = Thread::new("keys", session)?;
        let text = number.to_string();
        stores.b.append_many(&thread, messages(&[&text]), options(key)?).await?;
        let stored = all(&*stores.a, &thread).await?;
        expect::equal("the newest message", &texts(&stored).last(), &Some(&text.as_str()))?;
    }
    Ok(())
}

/// STORE-003, for subscriptions: each receives only its thread's events.
pub(super) async fn subscribers_receive_only_their_own_thread(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let mut subscribed = Vec::new();
    let sessions = [
        "a", "A", "a*", "*", "%", "a%", "_", "e\u{301}", "\u{e9}", "a:b", "a b", "[a]", "{a}", "a\nb", "\"",
        "'",
    ];
    for session in sessions {
        let thread = thread(session)?;
        let events = stores.b.subscribe(&thread, larder_kernel::Seq::ZERO).await?;
        subscribed.push((thread, events));
    }
    for round in ["1", "2"] {
        for session in sessions {
            append(&*stores.a, &thread(session)?, messages(&[&format!("{session} {round}")])).await?;
        }
    }
    for (thread, events) in &mut subscribed {
        for round in ["1", "2"] {
            next_said(events, &format!("{} {round}", thread.session)).await?;
        }
    }
    Ok(())
}
