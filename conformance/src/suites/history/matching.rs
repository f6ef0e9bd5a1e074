//! Reads of the newest messages that match a filter of authors and roles.

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    AgentId, AgentRole, ChatMessage, MessageFilter, Replacement, Seq, StoredMessage, Thread,
};

use super::support::{Stores, all, append, last, messages, numbered, replace_now, run, seqs, texts, thread};
use crate::case::{CaseResult, Failure};
use crate::context::Context;
use crate::expect;
use crate::suites::ids::{hostile, hostile_pairs};

fn agent(id: &str) -> CaseResult<AgentId> {
    Ok(AgentId::new(id)?)
}

fn role(name: &str) -> CaseResult<AgentRole> {
    Ok(AgentRole::new(name)?)
}

/// Returns a message whose text is its author and role.
fn by(id: &str, played: Option<&str>) -> CaseResult<ChatMessage> {
    let text = played.map_or_else(|| id.to_owned(), |played| format!("{id}/{played}"));
    Ok(ChatMessage::assistant(text).with_author(agent(id)?, played.map(role).transpose()?))
}

fn only(id: &str) -> CaseResult<MessageFilter> {
    Ok(MessageFilter::new().include_agent(agent(id)?))
}

/// Returns the newest messages that the filter keeps, computed from the whole thread.
fn kept(
    thread: &Thread,
    stored: &[StoredMessage],
    filter: &MessageFilter,
    before: Option<Seq>,
    limit: usize,
) -> Vec<StoredMessage> {
    let considered = stored.iter().filter(|stored| before.is_none_or(|before| stored.seq < before));
    let kept: Vec<_> = considered.filter(|stored| filter.keeps(thread, &stored.message)).collect();
    kept.iter().skip(kept.len().saturating_sub(limit)).map(|stored| (*stored).clone()).collect()
}

/// Writes messages of each author, alone and in roles, and one message without an author.
async fn with_authors(stores: &Stores) -> CaseResult<(Thread, Vec<StoredMessage>)> {
    let thread = thread("authors")?;
    let batch = vec![
        by("a", Some("x"))?,
        by("a", None)?,
        by("b", Some("x"))?,
        ChatMessage::user("none"),
        by("c", Some("y"))?,
        by("assistant", None)?,
        by("x", Some("a"))?,
    ];
    append(&*stores.a, &thread, batch).await?;
    let stored = all(&*stores.b, &thread).await?;
    Ok((thread, stored))
}

/// Checks that the filter keeps exactly these of the messages above.
async fn keeps(stores: &Stores, thread: &Thread, filter: &MessageFilter, expected: &[&str]) -> CaseResult {
    let found = stores.b.tail_matching(thread, filter, None, 100).await?.messages;
    expect::equal(&format!("what {filter:?} keeps"), &texts(&found), &expected.to_vec())
}

/// HIST-090.
pub(super) async fn the_limit_counts_messages_that_pass_the_filter(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("limit")?;
    // In runs of different lengths, and with holes among the numbers.
    for number in 1..=60 {
        let mut batch =
            vec![by("rare", None)?.with_run(run(if number % 7 == 0 { "hole" } else { "stays" })?)];
        for other in 0..number % 11 {
            batch.push(by(if other % 2 == 0 { "often" } else { "rarely" }, Some("rare"))?);
        }
        append(&*stores.a, &thread, batch).await?;
    }
    stores.a.clear_run(&thread, &run("hole")?, None).await?;
    let stored = all(&*stores.b, &thread).await?;
    for limit in [1, 2, 3, 10, 50, 52, 53, 100, PAGE_ITEMS_MAX] {
        for filter in [only("rare")?, MessageFilter::new().exclude_agent(agent("often")?)] {
            let found = stores.b.tail_matching(&thread, &filter, None, limit).await?.messages;
            let expected = kept(&thread, &stored, &filter, None, limit);
            expect::equal(&format!("the newest {limit} of {filter:?}"), &found, &expected)?;
        }
    }
    Ok(())
}

/// HIST-090.
pub(super) async fn matching_messages_are_found_however_old(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("far")?;
    append(&*stores.a, &thread, vec![by("rare", None)?; 3]).await?;
    for _ in 0..6 {
        append(&*stores.a, &thread, vec![by("often", Some("x"))?; 1_000]).await?;
    }
    append(&*stores.a, &thread, vec![by("late", None)?]).await?;
    let excluding = MessageFilter::new().exclude_role(role("x")?);
    for (filter, limit, expected) in [
        (only("rare")?, 2, vec![2, 3]),
        (only("rare")?, 5, vec![1, 2, 3]),
        (only("rare")?.include_agent(agent("late")?), 2, vec![3, 6_004]),
        (excluding.clone(), 3, vec![2, 3, 6_004]),
        (excluding, 100, vec![1, 2, 3, 6_004]),
        (only("nobody")?, 5, vec![]),
    ] {
        let found = stores.b.tail_matching(&thread, &filter, None, limit).await?.messages;
        expect::equal(&format!("the newest {limit} of {filter:?}"), &seqs(&found), &expected)?;
    }
    Ok(())
}

/// HIST-091.
pub(super) async fn include_and_exclude_selectors_combine(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = with_authors(&stores).await?;
    let none = MessageFilter::new;
    for (filter, expected) in [
        (none().include_agent(agent("a")?).include_agent(agent("c")?), &["a/x", "a", "c/y"][..]),
        (none().include_agent(agent("a")?).include_role(role("y")?), &["a/x", "a", "c/y"]),
        (none().exclude_agent(agent("a")?), &["b/x", "none", "c/y", "assistant", "x/a"]),
        (none().exclude_agent(agent("a")?).exclude_role(role("y")?), &["b/x", "none", "assistant", "x/a"]),
        (none().include_agent(agent("a")?).exclude_role(role("x")?), &["a"]),
        (none().exclude_role(role("x")?).include_agent(agent("a")?), &["a"]),
        (none().exclude_agent(agent("a")?).include_agent(agent("a")?), &[]),
        (
            none().include_role(role("x")?).exclude_agent(agent("b")?).include_agent(agent("c")?),
            &["a/x", "c/y"],
        ),
        (none().include_agent(agent("nobody")?), &[]),
        (none().include_agent(agent("a")?).exclude_agent(agent("nobody")?), &["a/x", "a"]),
    ] {
        keeps(&stores, &thread, &filter, expected).await?;
    }
    let nothing: MessageFilter =
        serde_json::from_str(r#"[{"include":[]}]"#).map_err(|error| Failure::Engine(error.to_string()))?;
    keeps(&stores, &thread, &nothing, &[]).await
}

/// HIST-091.
pub(super) async fn a_filter_of_the_maximum_size_is_accepted(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = with_authors(&stores).await?;
    let long = |number: usize| format!("{number}{}", "x".repeat(500));
    let mut filter = only("b")?;
    for number in 0..31 {
        filter = filter.include_agent(agent(&long(number))?).exclude_role(role(&long(number))?);
    }
    keeps(&stores, &thread, &filter.exclude_role(role("y")?), &["b/x"]).await
}

/// HIST-092.
pub(super) async fn a_role_matches_every_agent_in_that_role(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = with_authors(&stores).await?;
    for (filter, expected) in [
        (MessageFilter::new().include_role(role("x")?), &["a/x", "b/x"][..]),
        (MessageFilter::new().include_role(role("a")?), &["x/a"]),
        (MessageFilter::new().include_role(role("assistant")?), &[]),
        (MessageFilter::new().exclude_role(role("x")?), &["a", "none", "c/y", "assistant", "x/a"]),
        (MessageFilter::new().include_agent(agent("x")?), &["x/a"]),
    ] {
        keeps(&stores, &thread, &filter, expected).await?;
    }
    Ok(())
}

/// HIST-093.
pub(super) async fn a_message_without_an_author_belongs_to_the_threads_agent(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_authors(&stores).await?;
    let own = only(thread.agent.as_str())?;
    keeps(&stores, &thread, &own, &["none", "assistant"]).await?;
    let others = MessageFilter::new().exclude_agent(thread.agent.clone());
    keeps(&stores, &thread, &others, &["a/x", "a", "b/x", "c/y", "x/a"]).await?;
    keeps(&stores, &thread, &own.clone().include_role(role("y")?), &["none", "c/y", "assistant"]).await?;
    // The same messages in a thread of another agent.
    let of_a = Thread { agent: agent("a")?, session: thread.session.clone() };
    append(&*stores.a, &of_a, stored.iter().map(|stored| (*stored.message).clone()).collect()).await?;
    keeps(&stores, &of_a, &only("a")?, &["a/x", "a", "none"]).await?;
    keeps(&stores, &of_a, &own, &["assistant"]).await
}

/// HIST-094.
pub(super) async fn authors_and_roles_match_byte_by_byte(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("bytes")?;
    let mut names = hostile();
    names.extend(hostile_pairs().into_iter().flat_map(|(one, other)| [one, other]));
    names.sort();
    names.dedup();
    let mut batch = Vec::new();
    for name in &names {
        batch.push(ChatMessage::user(format!("agent {name}")).with_author(agent(name)?, None));
        let plays = Some(role(name)?);
        batch.push(ChatMessage::user(format!("role {name}")).with_author(agent("player")?, plays));
    }
    for part in batch.chunks(500) {
        append(&*stores.a, &thread, part.to_vec()).await?;
    }
    // Any two names are apart in one of the groupings, so that each group finds a name that it confuses.
    let side = names.len().isqrt() + 1;
    let apart = (0..side).map(|first| names.iter().skip(first).step_by(side).collect());
    let mut groups: Vec<Vec<&String>> = names.chunks(side).map(|group| group.iter().collect()).collect();
    groups.extend(apart);
    // Names alone, since a store can have another path for a filter of one name.
    groups.extend(names.iter().step_by(9).map(|name| vec![name]));
    for group in groups {
        let (mut agents, mut roles) = (MessageFilter::new(), MessageFilter::new());
        for name in &group {
            agents = agents.include_agent(agent(name)?);
            roles = roles.include_role(role(name)?);
        }
        for (filter, kind) in [(agents, "agent"), (roles, "role")] {
            let expected: Vec<_> = group.iter().map(|name| format!("{kind} {name}")).collect();
            let expected: Vec<_> = expected.iter().map(String::as_str).collect();
            keeps(&stores, &thread, &filter, &expected).await?;
        }
    }
    let rest: Vec<_> = names.iter().take(60).collect();
    let without = rest
        .iter()
        .try_fold(only("player")?, |filter, name| Ok::<_, Failure>(filter.exclude_role(role(name)?)))?;
    let found = stores.b.tail_matching(&thread, &without, None, PAGE_ITEMS_MAX).await?.messages;
    let expected: Vec<String> = names.iter().skip(60).map(|name| format!("role {name}")).collect();
    expect::equal(
        "the remaining messages without some roles",
        &texts(&found),
        &expected.iter().map(String::as_str).collect(),
    )
}

/// HIST-095.
pub(super) async fn before_considers_only_smaller_numbers_that_pass(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("before")?;
    let mut batch = Vec::new();
    for number in 0..90 {
        batch.push(by(["a", "b", "c", "a"][number % 4], [None, Some("x"), Some("y")][number % 3])?);
    }
    append(&*stores.a, &thread, batch).await?;
    let replacement = vec![by("b", None)?, by("a", Some("x"))?, by("a", None)?, by("c", None)?];
    let seen = last(&*stores.a, &thread).await?;
    stores.a.replace(&thread, Replacement::new(Seq::new(2), replacement).with_seen(seen)).await?;
    let stored = all(&*stores.b, &thread).await?;
    let filters = [only("a")?, only("c")?.include_role(role("x")?), only("a")?.exclude_role(role("x")?)];
    for filter in &filters {
        for before in [i64::MIN, -2, -1, 0, 1, 2, 3, 40, 41, 42, 90, 91, i64::MAX].map(Seq::new) {
            let found = stores.b.tail_matching(&thread, filter, Some(before), 3).await?.messages;
            let expected = kept(&thread, &stored, filter, Some(before), 3);
            expect::equal(&format!("3 of {filter:?} before {before}"), &found, &expected)?;
        }
        for step in [1, 7] {
            let mut walked: Vec<StoredMessage> = Vec::new();
            loop {
                let before = walked.first().map(|first| first.seq);
                let mut part = stores.b.tail_matching(&thread, filter, before, step).await?.messages;
                if part.is_empty() {
                    break;
                }
                part.append(&mut walked);
                walked = part;
            }
            let expected = kept(&thread, &stored, filter, None, usize::MAX);
            expect::equal(&format!("{filter:?} in steps of {step}"), &walked, &expected)?;
        }
    }
    Ok(())
}

/// HIST-096.
pub(super) async fn an_empty_filter_passes_everything(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_authors(&stores).await?;
    let none = MessageFilter::new();
    for limit in [1, 3, 7, 8, PAGE_ITEMS_MAX] {
        for before in [None, Some(Seq::new(5))] {
            let found = stores.b.tail_matching(&thread, &none, before, limit).await?.messages;
            expect::equal(
                &format!("the newest {limit}"),
                &found,
                &kept(&thread, &stored, &none, before, limit),
            )?;
        }
    }
    for filter in [none, only("a")?, MessageFilter::new().exclude_role(role("x")?)] {
        for before in [None, Some(Seq::new(5))] {
            let found = stores.b.tail_matching(&thread, &filter, before, 0).await?.messages;
            expect::equal(&format!("none of {filter:?}"), &found, &Vec::new())?;
        }
    }
    Ok(())
}

/// HIST-097.
pub(super) async fn forks_and_replacements_keep_their_authors(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, _) = with_authors(&stores).await?;
    let target = Thread::new("target", "fork")?;
    stores.a.fork(&source, &target, None, None).await?;
    keeps(&stores, &target, &only("a")?, &["a/x", "a"]).await?;
    keeps(&stores, &target, &MessageFilter::new().include_role(role("x")?), &["a/x", "b/x"]).await?;
    // A message without an author now belongs to another agent.
    keeps(&stores, &target, &only("target")?, &["none"]).await?;
    keeps(&stores, &target, &only("assistant")?, &["assistant"]).await?;

    let replacement = vec![by("a", Some("z"))?, ChatMessage::user("summary"), by("b", None)?];
    let seen = last(&*stores.a, &target).await?;
    stores.a.replace(&target, Replacement::new(Seq::new(3), replacement).with_seen(seen)).await?;
    keeps(&stores, &target, &only("a")?, &["a/z"]).await?;
    keeps(&stores, &target, &only("b")?, &["b"]).await?;
    keeps(&stores, &target, &only("target")?, &["summary", "none"]).await?;
    keeps(&stores, &target, &MessageFilter::new().include_role(role("z")?), &["a/z"]).await?;
    keeps(&stores, &source, &only("a")?, &["a/x", "a"]).await?;
    append(&*stores.a, &target, numbered("n", 2)).await?;
    replace_now(&*stores.a, &target, Seq::new(7), &["all"]).await?;
    keeps(&stores, &target, &only("a")?, &[]).await?;
    keeps(&stores, &target, &only("target")?, &["all", "n1", "n2"]).await
}

/// HIST-034.
pub(super) async fn cleared_messages_pass_no_filter(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = with_authors(&stores).await?;
    stores.a.clear(&thread, None).await?;
    keeps(&stores, &thread, &only("a")?, &[]).await?;
    append(&*stores.a, &thread, vec![by("b", None)?]).await?;
    append(&*stores.a, &thread, messages(&["new"])).await?;
    keeps(&stores, &thread, &MessageFilter::new().exclude_agent(agent("a")?), &["b", "new"]).await
}
