//! Listings of threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::{AgentId, HistoryProvider, PageRequest, Seq, Thread};

use super::support::{append, either, list_all, numbered, reads_empty, replace_now, run, say, thread};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::suites::background::BackgroundTask;

/// Agents and sessions in byte order by pairs; no joined text has the same order.
const PAIRS: [(&str, &str); 14] = [
    ("A", "z"),
    ("B", "a"),
    ("a", "!"),
    ("a", "B"),
    ("a", "a"),
    ("a", "z"),
    ("a!", "a"),
    ("a:", "a"),
    ("aa", "a"),
    ("b", "a"),
    ("b", "aa"),
    ("\u{e9}", "a"),
    ("\u{ff5e}", "a"),
    ("\u{1f980}", "a"),
];

async fn write_pairs(store: &dyn HistoryProvider) -> CaseResult<Vec<Thread>> {
    let threads = PAIRS.map(|(agent, session)| Thread::new(agent, session));
    let threads: Vec<_> = threads.into_iter().collect::<Result<_, _>>()?;
    // Written from both ends, so that the order of writing differs from the order of the names.
    for (number, thread) in threads.iter().rev().step_by(2).chain(threads.iter().step_by(2)).enumerate() {
        append(store, thread, numbered("m", 1 + number % 3)).await?;
    }
    Ok(threads)
}

async fn page(
    store: &dyn HistoryProvider,
    agent: Option<&str>,
    request: PageRequest<Thread>,
) -> CaseResult<(Vec<Thread>, Option<Thread>)> {
    let agent = agent.map(AgentId::new).transpose()?;
    let page = store.list_threads(agent.as_ref(), request).await?;
    Ok((page.items.into_iter().map(|info| info.thread).collect(), page.next))
}

/// HIST-060.
pub(super) async fn threads_are_listed_in_byte_order_once_each(context: Context) -> CaseResult {
    let stores = context.history().await?;
    expect::equal("a namespace that holds nothing", &list_all(&*stores.a, 10).await?, &Vec::new())?;
    let threads = write_pairs(&*stores.a).await?;
    for thread in &threads {
        say(&*stores.b, thread, &["once more"]).await?;
    }
    let (listed, next) = page(&*stores.b, None, PageRequest::default()).await?;
    expect::equal("the threads", &listed, &threads)?;
    expect::equal("the next page", &next, &None)
}

/// HIST-061.
pub(super) async fn pages_of_any_length_return_each_thread_once(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let threads = write_pairs(&*stores.a).await?;
    for limit in (1..=threads.len() + 1).chain([10_000]) {
        let mut visited = Vec::new();
        let mut request = PageRequest::first(limit);
        let mut pages = 0;
        loop {
            let (items, next) = page(&*stores.b, None, request).await?;
            pages += 1;
            visited.extend(items);
            let Some(next) = next else { break };
            request = PageRequest::after(next, limit);
            expect::that(pages <= threads.len(), "paging to end", pages)?;
        }
        expect::equal(&format!("the threads in pages of {limit}"), &visited, &threads)?;
        expect::equal(&format!("number of pages of {limit}"), &pages, &threads.len().div_ceil(limit))?;
    }
    Ok(())
}

/// HIST-061: a page may begin after a missing thread, and a limit of 0 returns nothing.
pub(super) async fn a_page_may_begin_anywhere(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let threads = write_pairs(&*stores.a).await?;
    let starts =
        [("A", "a"), ("A", "zz"), ("a", "C"), ("a", "~"), ("a ", "x"), ("c", "x"), ("\u{10ffff}", "x")];
    for (agent, session) in starts.into_iter().chain(PAIRS) {
        let start = Thread::new(agent, session)?;
        let expected: Vec<_> = threads.iter().filter(|thread| **thread > start).cloned().collect();
        let (listed, _) = page(&*stores.b, None, PageRequest::after(start.clone(), 100)).await?;
        expect::equal(&format!("the threads after {start:?}"), &listed, &expected)?;
        let (listed, _) = page(&*stores.b, None, PageRequest::after(start, 0)).await?;
        expect::equal("a page of 0", &listed, &Vec::new())?;
    }
    expect::equal("a first page of 0", &page(&*stores.b, None, PageRequest::first(0)).await?.0, &Vec::new())
}

/// HIST-061: during writes and clears of other threads.
pub(super) async fn threads_that_stay_are_listed_once_during_changes(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let mut lasting = BTreeSet::new();
    for number in 0..20 {
        let thread = thread(&format!("lasting {number:02}"))?;
        say(&*stores.a, &thread, &["x"]).await?;
        lasting.insert(thread);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (store, stop) = (either(&stores, writer), Arc::clone(&stop));
            BackgroundTask::start(async move {
                for round in (0..).take_while(|_| !stop.load(Ordering::Acquire)) {
                    let thread = thread(&format!("lasting {:02} then {writer}", round % 20))?;
                    say(&*store, &thread, &["x"]).await?;
                    store.clear(&thread, None).await?;
                    tokio::task::yield_now().await;
                }
                CaseResult::Ok(())
            })
        })
        .collect();
    let mut visits = Vec::new();
    for limit in [1, 2, 3, 7] {
        visits.push((limit, list_all(&*stores.b, limit).await));
    }
    stop.store(true, Ordering::Release);
    for writer in writers {
        writer.end().await??;
    }
    for (limit, listed) in visits {
        let visited: Vec<_> =
            listed?.into_iter().map(|info| info.thread).filter(|thread| lasting.contains(thread)).collect();
        expect::equal(&format!("visits in pages of {limit}"), &visited, &lasting.iter().cloned().collect())?;
    }
    Ok(())
}

/// HIST-062.
pub(super) async fn an_agent_lists_its_own_threads_only(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let threads = write_pairs(&*stores.a).await?;
    for agent in
        ["a", "A", "a!", "a:", "aa", "b", "\u{e9}", "\u{1f980}", "e\u{301}", "aaa", "%", "_", "*", "B"]
    {
        let own: Vec<_> = threads.iter().filter(|thread| thread.agent.as_str() == agent).cloned().collect();
        for limit in [1, 2, 3, 100] {
            let mut listed = Vec::new();
            let mut request = PageRequest::first(limit);
            loop {
                let (items, next) = page(&*stores.b, Some(agent), request).await?;
                listed.extend(items);
                expect::that(listed.len() <= own.len(), format!("{own:?}"), &listed)?;
                let Some(next) = next else { break };
                request = PageRequest::after(next, limit);
            }
            expect::equal(&format!("the threads of {agent:?} in pages of {limit}"), &listed, &own)?;
        }
    }
    Ok(())
}

/// HIST-062: from any start of the page.
pub(super) async fn an_agents_page_may_begin_at_another_agents_thread(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let threads = write_pairs(&*stores.a).await?;
    for agent in ["a", "b", "aa"] {
        for (other, session) in PAIRS {
            let start = Thread::new(other, session)?;
            let expected: Vec<_> = threads
                .iter()
                .filter(|thread| thread.agent.as_str() == agent && **thread > start)
                .cloned()
                .collect();
            let (listed, next) =
                page(&*stores.b, Some(agent), PageRequest::after(start.clone(), 100)).await?;
            expect::equal(&format!("the threads of {agent:?} after {start:?}"), &listed, &expected)?;
            expect::equal("the next page", &next, &None)?;
        }
    }
    Ok(())
}

/// HIST-063, for every way in which a thread becomes empty except expiry.
pub(super) async fn a_thread_without_messages_is_not_listed(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let kept = thread("kept")?;
    say(&*stores.a, &kept, &["x"]).await?;
    let names =
        ["cleared", "its run cleared", "replaced by nothing", "subscribed to", "read", "refused a fork"];
    for name in names {
        let thread = thread(name)?;
        match name {
            "subscribed to" => drop(stores.a.subscribe(&thread, Seq::ZERO).await?),
            "read" => drop(stores.a.tail(&thread, None, 5).await?),
            "refused a fork" => {
                drop(stores.a.fork(&super::support::thread("absent")?, &thread, None, None).await);
            }
            _ => {
                let mut batch = numbered("m", 2);
                for message in &mut batch {
                    message.run = Some(run("r")?);
                }
                let up_to = append(&*stores.a, &thread, batch).await?.last;
                match name {
                    "cleared" => drop(stores.a.clear(&thread, None).await?),
                    "its run cleared" => drop(stores.a.clear_run(&thread, &run("r")?, None).await?),
                    _ => drop(replace_now(&*stores.a, &thread, up_to, &[]).await?),
                }
            }
        }
        reads_empty(&*stores.b, &thread).await?;
    }
    for limit in [1, 2, 100] {
        let listed: Vec<_> = list_all(&*stores.b, limit).await?.into_iter().map(|info| info.thread).collect();
        expect::equal("the threads", &listed, &vec![kept.clone()])?;
    }
    say(&*stores.b, &thread("cleared")?, &["again"]).await?;
    expect::equal("number of threads after one was written again", &list_all(&*stores.a, 10).await?.len(), &2)
}

/// HIST-064.
pub(super) async fn listed_counts_are_those_of_thread_info(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let threads = write_pairs(&*stores.a).await?;
    let [cleared, replaced, tagged] = ["cleared", "replaced", "tagged"].map(thread);
    let (cleared, replaced, tagged) = (cleared?, replaced?, tagged?);
    for thread in [&cleared, &replaced, &tagged] {
        let mut batch = numbered("message ", 4);
        if let Some(first) = batch.first_mut() {
            first.run = Some(run("r")?);
        }
        append(&*stores.a, thread, batch).await?;
    }
    stores.a.clear(&cleared, None).await?;
    say(&*stores.a, &cleared, &["after the clear"]).await?;
    replace_now(&*stores.a, &replaced, Seq::new(3), &["é", "ß", "s", "t"]).await?;
    stores.a.clear_run(&tagged, &run("r")?, None).await?;
    let listed = list_all(&*stores.b, 3).await?;
    expect::equal("number of listed threads", &listed.len(), &(threads.len() + 3))?;
    for info in listed {
        expect::equal("the listed counts", &info, &stores.b.thread_info(&info.thread).await?)?;
    }
    let (_, replaced_info) = (tagged, stores.b.thread_info(&replaced).await?);
    expect::equal("messages and bytes", &(replaced_info.messages, replaced_info.bytes), &(5, 15))
}
