//! Filters that keep the wrong messages.

use std::collections::BTreeMap;

use larder_kernel::{ChatMessage, MessageFilter, MessageSelector, Thread};

use super::super::serve::lock;
use super::{Defect, Wrong};

impl Wrong {
    /// Returns `true` if a wrong filter keeps a message of this author; the author is empty if the message
    /// names none.
    pub(super) fn keeps(&self, thread: &Thread, filter: &MessageFilter, message: &ChatMessage) -> bool {
        let author = message.author.as_ref();
        let forgotten = lock(&self.memory.forks).contains(&self.place_of(thread));
        let author = author.filter(|_| self.defect != Defect::ForkForgetsAuthors || !forgotten);
        let name = |text: &str| match self.defect {
            Defect::AuthorsFolded => text.to_lowercase(),
            Defect::AuthorsCut => text.chars().take(40).collect(),
            _ => text.to_owned(),
        };
        let agent = author.map_or_else(String::new, |author| name(author.agent.as_str()));
        let role = author.and_then(|author| author.role.as_ref()).map(|role| name(role.as_str()));
        let matches = |selector: &MessageSelector| match selector {
            MessageSelector::Agent(_) if agent.is_empty() && self.defect == Defect::UnnamedIsNobodys => false,
            MessageSelector::Agent(of) if agent.is_empty() => *of == thread.agent,
            MessageSelector::Agent(of) => name(of.as_str()) == agent,
            MessageSelector::Role(of) if self.defect == Defect::RoleIsAgent => name(of.as_str()) == agent,
            MessageSelector::Role(_) if self.defect == Defect::RoleIgnored => false,
            MessageSelector::Role(of) => Some(name(of.as_str())) == role,
            _ => unreachable!("the suite selects by agent and role"),
        };
        let (included, excluded) = selectors(filter);
        let is_in = included.as_ref().is_none_or(|included| match self.defect {
            Defect::IncludeWantsAll => included.iter().all(matches),
            _ => included.iter().any(matches),
        });
        let is_out = excluded.iter().any(matches);
        match self.defect {
            Defect::ExcludeIgnored => is_in,
            Defect::IncludeWins => is_in && (included.is_some() || !is_out),
            Defect::EmptyKeepsNothing => is_in && !is_out && !filter.is_empty(),
            _ => is_in && !is_out,
        }
    }
}

/// Returns the included selectors of a filter, if it has any, and the excluded ones, read from its JSON form.
fn selectors(filter: &MessageFilter) -> (Option<Vec<MessageSelector>>, Vec<MessageSelector>) {
    let kinds: Vec<BTreeMap<String, Vec<MessageSelector>>> =
        serde_json::to_value(filter).and_then(serde_json::from_value).unwrap_or_default();
    let of = |kind: &str| kinds.iter().find_map(|kinds| kinds.get(kind).cloned());
    (of("include"), of("exclude").unwrap_or_default())
}
