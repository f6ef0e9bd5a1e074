//! Filters by author.

use std::fmt::Write as _;

use larder_kernel::{AgentId, AgentRole, ChatMessage, HistoryProvider, MessageFilter, Thread};

use super::names::{At, agent, thread as shown};
use super::{History, Message};
use crate::model::compare::{Checked, same};
use crate::model::recorder::{Recorder, optional, owned_id};
use crate::model::rng::{Rng, valid};

/// The agents and roles to include and to exclude.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct Authors(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    keeps: bool,
    named: Named,
}

#[derive(Debug, Clone)]
enum Named {
    Agent(AgentId),
    Role(AgentRole),
}

/// Draws up to three agents and roles, sometimes more than the limit.
pub(super) fn draw(rng: &mut Rng<'_>) -> Authors {
    let count = rng.of(&[1_usize, 1, 1, 2, 2, 3, 0]);
    let mut terms: Vec<Term> = (0..count).map(|_| term(rng)).collect();
    if rng.one_in(24) {
        terms.resize_with(larder_kernel::limits::MESSAGE_FILTER_TERMS_MAX + 1, || term(rng));
    }
    Authors(terms)
}

fn term(rng: &mut Rng<'_>) -> Term {
    let (keeps, role) = [(true, false), (false, false), (true, true), (false, true)][rng.below(4)];
    let named = if role { Named::Role(valid(AgentRole::new(rng.id()))) } else { Named::Agent(agent(rng)) };
    Term { keeps, named }
}

impl Authors {
    pub(super) fn all_but(agent: &AgentId) -> Self {
        Self(vec![Term { keeps: false, named: Named::Agent(agent.clone()) }])
    }

    fn filter(&self) -> MessageFilter {
        self.0.iter().fold(MessageFilter::new(), |filter, term| match (term.keeps, &term.named) {
            (true, Named::Agent(agent)) => filter.include_agent(agent.clone()),
            (true, Named::Role(role)) => filter.include_role(role.clone()),
            (false, Named::Agent(agent)) => filter.exclude_agent(agent.clone()),
            (false, Named::Role(role)) => filter.exclude_role(role.clone()),
        })
    }

    /// Returns the filter in Rust.
    fn shown(&self) -> String {
        let mut text = "MessageFilter::new()".to_owned();
        for term in &self.0 {
            let word = if term.keeps { "include" } else { "exclude" };
            let _ = match &term.named {
                Named::Agent(agent) => write!(text, ".{word}_agent({})", owned_id(agent)),
                Named::Role(role) => write!(text, ".{word}_role({})", owned_id(role)),
            };
        }
        text
    }

    /// Returns `true` if the message matches some include selector, or there are none, and no exclude
    /// selector.
    fn keep(&self, thread: &Thread, message: &ChatMessage) -> bool {
        let is_named = |term: &Term| match &term.named {
            Named::Agent(agent) => match &message.author {
                Some(author) => author.agent == *agent,
                None => thread.agent == *agent,
            },
            Named::Role(role) => match &message.author {
                Some(author) => author.role.as_ref() == Some(role),
                None => false,
            },
        };
        let (keeping, dropping): (Vec<&Term>, Vec<&Term>) = self.0.iter().partition(|term| term.keeps);
        (keeping.is_empty() || keeping.into_iter().any(is_named)) && !dropping.into_iter().any(is_named)
    }

    /// Returns the clause that determines the result.
    fn clause(&self, before: bool, limit: usize) -> &'static str {
        match (&self.0[..], before) {
            _ if self.0.is_empty() || limit == 0 => "HIST-096",
            (_, true) => "HIST-095",
            ([Term { named: Named::Role(_), .. }], _) => "HIST-092",
            ([Term { keeps: true, .. }], _) => "HIST-090",
            _ => "HIST-091",
        }
    }
}

impl History {
    pub(super) async fn tail_matching(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, authors, before, limit): (&Thread, &Authors, Option<At>, usize),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let before = before.map(|at| held.seq(at));
        let clause = authors.clause(before.is_some(), limit);
        recorder.call(clause, |_| {
            let before = optional(before, |seq| format!("Seq::new({seq})"));
            format!("tail_matching({}, &{}, {before}, {limit})", shown(thread), authors.shown())
        });
        let wanted = |held: &&Message| {
            before.is_none_or(|before| held.seq < before.get()) && authors.keep(thread, &held.message)
        };
        let messages = held.messages.iter().filter(wanted).rev().take(limit);
        let filter = authors.filter();
        let expected = match filter.check("history.tail_matching") {
            Err(refusal) => Err(refusal.into()),
            Ok(()) => super::read::limited("history.tail_matching", limit, || held.newest(messages)),
        };
        same(recorder, clause, &store.tail_matching(thread, &filter, before, limit).await, &expected)
    }
}
