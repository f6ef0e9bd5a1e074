//! Erasure on request, with a check that nothing remains.

use super::source::lacking;
use larder_kernel::storage::history::fence_of;
use larder_kernel::{AgentId, BoardId, Contract, PageRequest, Result, SessionId, StoreSet, Thread};

use super::source::Source;
use super::totals::count;

const PAGE: usize = 500;

/// The result of an erasure in one contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Erased {
    /// The contract.
    pub contract: Contract,
    /// The number of records before the erasure. For a partial erasure it is the number of threads or boards.
    pub before: u64,
    /// The number of records that a scan found afterwards. If it is not 0, another writer is active.
    pub left: u64,
}

/// Removes all data of the stores, including every counter and key, and scans them to check that nothing
/// remains.
///
/// # Errors
/// The errors of the stores. Repeat the call to complete the erasure.
pub async fn erase(side: &StoreSet) -> Result<Vec<Erased>> {
    let source = Source::Stores(side.clone());
    let mut erased = Vec::new();
    for contract in side.contracts() {
        let before = count(&source, contract).await?;
        side.store(contract).ok_or_else(|| lacking(contract))?.erase().await?;
        erased.push(Erased { contract, before, left: count(&source, contract).await? });
    }
    Ok(erased)
}

/// A selector of threads and boards. They must match all fields that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Whose {
    /// Selects this agent.
    pub agent: Option<AgentId>,
    /// Selects threads of this session, and boards of the conversation with that name.
    pub session: Option<SessionId>,
}

impl Whose {
    fn has_thread(&self, thread: &Thread) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == thread.agent)
            && self.session.as_ref().is_none_or(|session| *session == thread.session)
    }

    fn has_board(&self, board: &BoardId) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == board.agent)
            && self.session.as_ref().is_none_or(|session| session.as_str() == board.conversation.as_str())
    }

    /// Sets [`agent`](Self::agent).
    #[must_use]
    pub fn with_agent(mut self, agent: impl Into<Option<AgentId>>) -> Self {
        self.agent = agent.into();
        self
    }

    /// Sets [`session`](Self::session).
    #[must_use]
    pub fn with_session(mut self, session: impl Into<Option<SessionId>>) -> Self {
        self.session = session.into();
        self
    }
}

/// Clears the threads and deletes the boards of an agent or a session, and lists them again to check that
/// none remains.
///
/// Only these two contracts have agents and sessions. The counters of a thread stay, and so do the keys of
/// its appends. Only the erasure of a namespace removes them.
///
/// # Errors
/// The errors of the stores. Repeat the call to complete the erasure.
pub async fn erase_of(side: &StoreSet, whose: &Whose) -> Result<Vec<Erased>> {
    let mut erased = Vec::new();
    if side.contracts().contains(&Contract::History) {
        let before = threads(side, whose, true).await?;
        let left = threads(side, whose, false).await?;
        erased.push(Erased { contract: Contract::History, before, left });
    }
    if side.contracts().contains(&Contract::Tasks) {
        let before = boards(side, whose, true).await?;
        let left = boards(side, whose, false).await?;
        erased.push(Erased { contract: Contract::Tasks, before, left });
    }
    Ok(erased)
}

/// Counts the threads, and clears each if `clear` is set.
async fn threads(side: &StoreSet, whose: &Whose, clear: bool) -> Result<u64> {
    let store = side.history()?;
    let (mut found, mut page) = (0, PageRequest::first(PAGE));
    loop {
        let listed = store.list_threads(whose.agent.as_ref(), page).await?;
        for info in listed.items.iter().filter(|info| whose.has_thread(&info.thread)) {
            found += 1;
            if clear {
                let cleared = store.clear(&info.thread, None).await;
                // An erasure is the decision of the operator, so it also clears a thread that is fenced.
                match cleared.as_ref().err().and_then(fence_of) {
                    Some(fence) => store.clear(&info.thread, Some(fence)).await?,
                    None => cleared?,
                };
            }
        }
        let Some(next) = listed.next else { return Ok(found) };
        page = PageRequest::after(next, PAGE);
    }
}

/// Counts the boards, and deletes each if `delete` is set.
async fn boards(side: &StoreSet, whose: &Whose, delete: bool) -> Result<u64> {
    let store = side.tasks()?;
    let (mut found, mut page) = (0, PageRequest::first(PAGE));
    loop {
        let listed = store.list_boards(None, page).await?;
        for board in listed.items.iter().filter(|board| whose.has_board(&board.id)) {
            found += 1;
            if delete {
                store.delete_board(&board.id).await?;
            }
        }
        let Some(next) = listed.next else { return Ok(found) };
        page = PageRequest::after(next, PAGE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_kernel::{
        AppendOptions, ChatMessage, ErrorKind, FencingToken, HistoryProvider, HistoryProviderExt, Namespace,
    };

    use super::*;
    use crate::storage::{InMemoryHistoryProvider, MemoryBackend};
    use crate::transfer::{Existing, Watch, copy};

    fn store() -> Arc<InMemoryHistoryProvider> {
        Arc::new(InMemoryHistoryProvider::open(&MemoryBackend::new(), Namespace::new("n").unwrap()))
    }

    async fn fenced(thread: &Thread) -> Arc<InMemoryHistoryProvider> {
        let (store, options) = (store(), AppendOptions::default().with_fence(FencingToken::new(7)));
        store.append_many(thread, vec![ChatMessage::user("1")], options).await.unwrap();
        store
    }

    #[tokio::test]
    async fn an_erasure_also_clears_a_fenced_thread() {
        let thread = Thread::new("a", "s").unwrap();
        let store = fenced(&thread).await;
        let side = StoreSet::new().with_history(store.clone());
        let whose = Whose::default().with_agent(thread.agent.clone());
        let erased = erase_of(&side, &whose).await.unwrap();
        assert_eq!((erased[0].before, erased[0].left), (1, 0));
        // The fence stays, because the writers did not give it up.
        let refused = store.append(&thread, ChatMessage::user("2")).await.unwrap_err();
        assert_eq!((refused.kind(), fence_of(&refused)), (ErrorKind::Conflict, Some(FencingToken::new(7))));
    }

    #[tokio::test]
    async fn a_copy_does_not_carry_the_fence() {
        let thread = Thread::new("a", "s").unwrap();
        let source = Source::from(StoreSet::new().with_history(fenced(&thread).await));
        let target = store();
        let side = StoreSet::new().with_history(target.clone());
        let history = [Contract::History];
        let copied = copy(&source, &side, &history, Existing::Refuse, &Watch::nobody()).await.unwrap();
        assert!(copied[0].is_equal());
        target.append(&thread, ChatMessage::user("2")).await.unwrap();
        assert_eq!(target.count_messages(&thread).await.unwrap(), 2);
    }
}
