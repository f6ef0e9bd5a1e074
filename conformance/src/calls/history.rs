//! The methods of [`HistoryProvider`].

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, Appended, ChatMessage, FencingToken, HistoryEvent, HistoryProvider,
    HistoryProviderExt, IdempotencyKey, MessageFilter, MessageUpdate, PageRequest, Removal, Replacement,
    Result, Revision, RunId, Seq, Thread, Ttl,
};

use super::{World, calls};

fn thread() -> Result<Thread> {
    Thread::new("agent", "session")
}

fn keyed() -> Result<AppendOptions> {
    Ok(AppendOptions::default().with_idempotency_key(IdempotencyKey::new("once")?))
}

/// Returns the batch of the key `once`.
fn batch(text: &str) -> Result<Vec<ChatMessage>> {
    let run = RunId::new("run")?;
    let author = (AgentId::new("author")?, Some(AgentRole::new("critic")?));
    Ok(vec![
        ChatMessage::system(format!("instructions {text}")),
        ChatMessage::user(format!("question {text}")).with_run(run.clone()),
        ChatMessage::assistant(format!("answer {text}")).with_run(run).with_author(author.0, author.1),
        ChatMessage::user(format!("thanks {text}")),
    ])
}

pub(super) async fn lay_out(store: &dyn HistoryProvider, world: World) -> Result<()> {
    let text = world.text();
    if world.is_theirs() {
        // Makes the sequence numbers of this namespace larger.
        for _ in 0..2 {
            store.append(&thread()?, ChatMessage::user(text).with_run(RunId::new("run")?)).await?;
        }
        for (agent, session) in [("agent", "their"), ("their", "session"), ("agent", "copy")] {
            store.append(&Thread::new(agent, session)?, ChatMessage::user(text)).await?;
        }
    }
    store.append_many(&thread()?, batch(text)?, keyed()?).await?;
    store.append(&Thread::new("agent", "second")?, ChatMessage::user(text)).await?;
    store.append(&Thread::new("other", "session")?, ChatMessage::user(text)).await?;
    Ok(())
}

/// Repeats the append with the key and returns its result.
pub(super) async fn witness(store: &dyn HistoryProvider) -> Result<Appended> {
    store.append_many(&thread()?, batch(World::Theirs.text())?, keyed()?).await
}

/// Returns the first events of a subscription.
async fn events(store: &dyn HistoryProvider, after: Seq, count: usize) -> Result<Vec<HistoryEvent>> {
    store.subscribe(&thread()?, after).await?.take(count).try_collect().await
}

calls! { History, history;
    "append_many" => |store| {
        store.append_many(&thread()?, batch("more")?, AppendOptions::default()).await
    }
    "append_many/with_a_used_key" => |store| { store.append_many(&thread()?, batch("mine")?, keyed()?).await }
    "append_many/to_a_new_thread" => |store| {
        let ttl = AppendOptions::default().with_ttl(Ttl::sliding(Duration::from_secs(3_600)));
        store.append_many(&Thread::new("agent", "their")?, batch("new")?, ttl).await
    }
    "append_many/on_the_last_number" => |store| {
        let options = AppendOptions::default().with_if_last(Seq::new(4));
        store.append_many(&thread()?, batch("more")?, options).await
    }
    "append_many/on_another_number" => |store| {
        let options = AppendOptions::default().with_if_last(Seq::new(6));
        store.append_many(&thread()?, batch("more")?, options).await
    }
    "append_many/with_a_token" => |store| {
        let options = AppendOptions::default().with_fence(FencingToken::new(3));
        store.append_many(&thread()?, batch("more")?, options).await
    }
    "append_many/with_a_lower_token" => |store| {
        let fence = |number| AppendOptions::default().with_fence(FencingToken::new(number));
        store.append_many(&thread()?, batch("more")?, fence(3)).await?;
        store.append_many(&thread()?, batch("never")?, fence(2)).await
    }
    "get_messages" => |store| { store.get_messages(&thread()?, 1, 10).await }
    "tail" => |store| { store.tail(&thread()?, None, 10).await }
    "tail/before" => |store| { store.tail(&thread()?, Some(Seq::new(4)), 10).await }
    "tail_matching" => |store| {
        let filter = MessageFilter::new().include_agent(AgentId::new("author")?);
        store.tail_matching(&thread()?, &filter, None, 10).await
    }
    "tail_matching/without_an_agent" => |store| {
        let filter = MessageFilter::new().exclude_agent(AgentId::new("author")?);
        store.tail_matching(&thread()?, &filter, Some(Seq::new(9)), 10).await
    }
    "page_after" => |store| { store.page_after(&thread()?, Seq::new(1), 10).await }
    "thread_info" => |store| { store.thread_info(&thread()?).await }
    "clear" => |store| { store.clear(&thread()?, None).await }
    "clear/with_a_token" => |store| { store.clear(&thread()?, Some(FencingToken::new(3))).await }
    "clear_run" => |store| { store.clear_run(&thread()?, &RunId::new("run")?, None).await }
    "remove" => |store| { store.remove(&thread()?, Removal::numbers([2, 3, 9].map(Seq::new))).await }
    "remove/after" => |store| { store.remove(&thread()?, Removal::after(Seq::new(2))).await }
    "remove/newest" => |store| { store.remove(&thread()?, Removal::newest(2)).await }
    "remove/with_a_key" => |store| {
        store.remove(&thread()?, Removal::newest(2).with_idempotency_key(IdempotencyKey::new("pop")?)).await
    }
    "remove/on_another_number" => |store| {
        store.remove(&thread()?, Removal::newest(2).with_if_last(Seq::new(6))).await
    }
    "remove/of_nothing" => |store| { store.remove(&Thread::new("agent", "their")?, Removal::newest(2)).await }
    "update" => |store| {
        let update = MessageUpdate::appended(Seq::new(3), ChatMessage::assistant("a new answer"));
        store.update(&thread()?, update.with_idempotency_key(IdempotencyKey::new("update")?)).await
    }
    "update/of_another_revision" => |store| {
        let update = MessageUpdate::new(Seq::new(3), Revision::new(5), ChatMessage::assistant("never"));
        store.update(&thread()?, update).await
    }
    "update/of_nothing" => |store| {
        let update = MessageUpdate::appended(Seq::new(1), ChatMessage::assistant("never"));
        store.update(&Thread::new("agent", "their")?, update).await
    }
    "fork" => |store| { store.fork(&thread()?, &Thread::new("agent", "copy")?, None, None).await }
    "fork/up_to" => |store| {
        store.fork(&thread()?, &Thread::new("new", "copy")?, Some(Seq::new(3)), None).await
    }
    "fork/of_nothing" => |store| {
        store.fork(&Thread::new("their", "session")?, &Thread::new("new", "copy")?, None, None).await
    }
    "replace" => |store| {
        let summary = vec![ChatMessage::system("summary"), ChatMessage::system("of it")];
        store.replace(&thread()?, Replacement::new(Seq::new(2), summary).with_seen(Seq::new(4))).await
    }
    "list_threads" => |store| { store.list_threads(None, PageRequest::default()).await }
    "list_threads/of_an_agent" => |store| {
        store.list_threads(Some(&AgentId::new("agent")?), PageRequest::default()).await
    }
    "list_threads/after" => |store| { store.list_threads(None, PageRequest::after(thread()?, 10)).await }
    "set_ttl" => |store| {
        store.set_ttl(&thread()?, Some(Ttl::fixed(Duration::from_secs(3_600))), None).await
    }
    "set_ttl/of_nothing" => |store| {
        let hour = Ttl::fixed(Duration::from_secs(3_600));
        store.set_ttl(&Thread::new("agent", "their")?, Some(hour), None).await
    }
    "subscribe" => |store| { events(store, Seq::ZERO, 4).await }
    "subscribe/live" => |store| {
        let mut events = store.subscribe(&thread()?, Seq::new(4)).await?;
        let batch = vec![ChatMessage::user("live"), ChatMessage::user("more")];
        store.append_many(&thread()?, batch, AppendOptions::default()).await?;
        Ok((events.next().await.transpose()?, events.next().await.transpose()?))
    }
}
