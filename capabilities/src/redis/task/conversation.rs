//! The keys of a conversation. Its boards share a slot, so that settling it is one step.

use bytes::Bytes;
use larder_kernel::{AgentId, BoardId, ConversationId};

use crate::redis::index::Index;
use crate::redis::key::Entity;
use crate::redis::script::Call;

/// The parts of a board, in the order in which scripts expect their keys.
pub(super) const BOARD_PARTS: [&str; 7] = ["board", "tasks", "state", "results", "order", "leases", "lapsed"];

/// A conversation on the server.
pub(super) struct Conversation {
    entity: Entity,
}

impl Conversation {
    pub(super) fn new(index: &Index, conversation: &ConversationId) -> Self {
        Self { entity: index.entity(conversation.as_str()) }
    }

    /// Returns the prefix of every key of the conversation.
    pub(super) fn prefix_of(entity: &Entity) -> Bytes {
        entity.part("")
    }

    pub(super) fn prefix(&self) -> Bytes {
        Self::prefix_of(&self.entity)
    }

    /// Creates a call with the key of the agents that have boards.
    pub(super) fn call(&self) -> Call {
        Call::new().key(self.entity.part("boards"))
    }

    /// Creates the call of a script that builds the keys of boards. In addition to the key of the agents that
    /// have boards, the call names a key that never exists. While a cluster moves the slot, it runs a script
    /// only if all named keys are present; otherwise the script could miss boards on the other server.
    pub(super) fn call_to_all(&self) -> Call {
        self.call().key(self.entity.part("never"))
    }

    /// Creates a call with the keys of a board and of the numbers of deleted boards.
    pub(super) fn call_to_list(&self, agent: &AgentId) -> Call {
        self.with_board(Call::new(), agent).key(self.entity.part("meta"))
    }

    /// Creates a call with the keys of the numbers of deleted boards, of the agents that have boards, and of
    /// a board.
    pub(super) fn call_to_delete(&self, agent: &AgentId) -> Call {
        self.with_board(Call::new().key(self.entity.part("meta")).key(self.entity.part("boards")), agent)
    }

    /// Adds a board's keys to a call. The agent is the last part of a key, so no agent can be taken for
    /// another part.
    pub(super) fn with_board(&self, call: Call, agent: &AgentId) -> Call {
        let prefix = self.prefix();
        BOARD_PARTS.iter().fold(call, |call, part| {
            let key = [&prefix[..], part.as_bytes(), b":", agent.as_str().as_bytes()].concat();
            call.key(Bytes::from(key))
        })
    }
}

/// Creates a call with the keys of a board.
pub(super) fn board_call(index: &Index, board: &BoardId) -> Call {
    Conversation::new(index, &board.conversation).with_board(Call::new(), &board.agent)
}
