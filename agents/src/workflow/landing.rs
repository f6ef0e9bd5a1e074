//! The end of a chain of transitions: the text that the left state hands to the next ones.

use std::sync::Arc;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{ChatMessage, Result, Seq, Thread};

use super::carry::{CarryForward, STATES_MAX};
use super::record::{Carried, Chore, Record, Visit};
use super::run::Workflow;
use super::spec::Persistence;

impl Workflow {
    /// Ends a chain of transitions if it has reached a state with its own prompt: carries the conversation
    /// forward and leaves the turn's messages to be stored. Returns `true` if the record must be committed.
    /// The record must have its token.
    pub(crate) async fn land(
        &mut self,
        next: &mut Record,
        turn: &str,
        messages: &[ChatMessage],
    ) -> Result<bool> {
        let left = next.anchor.clone();
        if next.current == left || !self.state_of(&next.current)?.lands() {
            return Ok(false);
        }
        let draft = self.carry(next, &left, messages).await?;
        self.transient.draft(&next.token, draft);
        let persistent = self.is_persistent(&left)?;
        next.chore = match self.home(&left)? {
            Some(thread) if !persistent => Some(Chore::Clear { thread }),
            Some(thread) if !messages.is_empty() => {
                Some(Chore::Append { thread, turn: turn.to_owned(), messages: messages.to_vec() })
            }
            _ => None,
        };
        next.anchor = next.current.clone();
        Ok(true)
    }

    /// Summarizes the conversation of a visit. Adds the summary of a persistent state to the record, and
    /// returns that of a transient one.
    async fn carry(
        &self,
        next: &mut Record,
        left: &Visit,
        messages: &[ChatMessage],
    ) -> Result<Option<Carried>> {
        let Some(carry_forward) = self.options.carry_forward() else { return Ok(None) };
        let persistent = self.is_persistent(left)?;
        let goes_on = |carried: &Carried| carried.visit.state == left.state;
        let earlier = next.carried.iter().position(goes_on).filter(|_| persistent);
        let earlier = earlier.map(|at| next.carried.remove(at));
        let after = earlier.as_ref().and_then(|earlier| earlier.up_to).unwrap_or(Seq::MIN);
        let (mut said, last) = match self.home(left)? {
            Some(thread) => self.said_since(&thread, after).await?,
            None => (self.local_of(left).to_vec(), after),
        };
        said.extend_from_slice(messages);
        if said.is_empty() {
            next.carried.extend(earlier);
            return Ok(None);
        }
        let before = earlier.as_ref().map(|earlier| earlier.text.as_str());
        let (text, verbatim) = carry_forward.text(&left.state, before, &said).await?;
        if !persistent {
            return Ok(Some(Carried { visit: left.clone(), text, verbatim, up_to: None }));
        }
        // The position of a thread before its first message is 0.
        let up_to = Some(last.max(Seq::ZERO));
        next.carried.push(Carried { visit: left.clone(), text, verbatim, up_to });
        while next.carried.len() > carry_forward.states_max() {
            next.carried.remove(0);
            next.carried_left_out += 1;
        }
        Ok(None)
    }

    /// Returns the texts that a state receives about earlier ones, oldest first, and the number of texts that
    /// were left out.
    pub(crate) fn earlier(&self, source: &Visit) -> Result<(Vec<&Carried>, u64)> {
        let persistent = self.is_persistent(source)?;
        let own = |carried: &Carried| persistent && carried.visit.state == source.state;
        let stored = self.record.carried.iter().filter(|carried| !own(carried));
        let mut earlier: Vec<&Carried> = stored.chain(self.transient.summaries()).collect();
        earlier.sort_by_key(|carried| carried.visit.number);
        let mut left_out = self.record.carried_left_out + self.transient.left_out();
        while earlier.len() > self.states_max() {
            earlier.remove(0);
            left_out += 1;
        }
        Ok((earlier, left_out))
    }

    /// Returns the largest number of earlier states whose texts a state receives.
    pub(crate) fn states_max(&self) -> usize {
        self.options.carry_forward().map_or(STATES_MAX, CarryForward::states_max)
    }

    pub(crate) fn is_persistent(&self, visit: &Visit) -> Result<bool> {
        Ok(self.state_of(visit)?.persistence() == Persistence::Persistent)
    }

    /// Returns the messages stored after a position, and the position of the last one.
    async fn said_since(&self, thread: &Thread, mut after: Seq) -> Result<(Vec<ChatMessage>, Seq)> {
        let mut said = Vec::new();
        loop {
            let page = self.history.page_after(thread, after, PAGE_ITEMS_MAX).await?;
            let Some(last) = page.messages.last() else { return Ok((said, after)) };
            after = last.seq;
            let ended = page.next(PAGE_ITEMS_MAX).is_none();
            said.extend(page.messages.into_iter().map(|stored| Arc::unwrap_or_clone(stored.message)));
            if ended {
                return Ok((said, after));
            }
        }
    }

    /// Returns the conversation of a visit that only this handle holds.
    pub(crate) fn local_of(&self, visit: &Visit) -> &[ChatMessage] {
        match &self.local {
            Some((local, messages)) if local == visit => messages,
            _ => &[],
        }
    }
}
