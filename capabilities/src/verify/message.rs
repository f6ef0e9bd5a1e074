//! The check of a stored message.

use std::sync::Arc;

use larder_kernel::{AgentRole, ChatMessage, RunId};

/// A stored message: its body, and what its backend stores next to the body.
pub(crate) struct Columns<'r> {
    pub(crate) body: &'r [u8],
    pub(crate) bytes: i64,
    pub(crate) run: Option<&'r str>,
    pub(crate) author: &'r str,
    pub(crate) role: &'r str,
}

impl Columns<'_> {
    /// Decodes the message, or returns the observation if it is damaged.
    pub(crate) fn check(&self) -> Result<Arc<ChatMessage>, String> {
        let message = crate::message::decode(self.body).ok_or("its body is damaged")?;
        let measured = message.size_bytes();
        if usize::try_from(self.bytes) != Ok(measured) {
            return Err(format!("its row says {} bytes; its body has {measured}", self.bytes));
        }
        let author = message.author.as_ref();
        let role = author.and_then(|author| author.role.as_ref());
        let matches = self.run == message.run.as_ref().map(RunId::as_str)
            && self.author == author.map_or("", |author| author.agent.as_str())
            && self.role == role.map_or("", AgentRole::as_str);
        if matches {
            Ok(message)
        } else {
            Err("its row names another run or author than its body".to_owned())
        }
    }
}
