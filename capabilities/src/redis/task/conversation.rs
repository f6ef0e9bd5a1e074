//! A conversation's keys. Its boards share a slot, so that settling it is one step.

use bytes::Bytes;
use larder_kernel::{AgentId, BoardId, ConversationId};

use crate::redis::index::Index;
use crate::redis::key::Entity;
use crate::redis::script::Call;

/// What a board consists of, in the order in which scripts expect the keys.
const BOARD_PARTS: [&str; 7] = ["board", "tasks", "state", "results", "order", "leases", "lapsed"];

/// A conversation inside the server.
pub(super) struct Conversation {
    entity: Entity,
}

impl Conversation {
    pub(super) fn new(index: &Index, conversation: &ConversationId) -> Self {
        Self { entity: index.entity(conversation.as_str()) }
    }

    /// What every key of the conversation begins with.
    pub(super) fn prefix_of(entity: &Entity) -> Bytes {
        entity.part("")
    }

    pub(super) fn prefix(&self) -> Bytes {
        Self::prefix_of(&self.entity)
    }

    /// A call that gets the agents that have boards.
    pub(super) fn call(&self) -> Call {
        Call::new().key(self.entity.part("boards"))
    }

    /// A call of a script that finds the keys of boards by itself. Beside the agents that have boards it names a key that is
    /// never there: while a cluster moves the slot, it runs a script only where all keys named are, and would not see that
    /// boards stayed behind or went ahead.
    pub(super) fn call_to_all(&self) -> Call {
        self.call().key(self.entity.part("never"))
    }

    /// A call that gets the numbers of boards that are gone, the agents that have boards, and a board.
    pub(super) fn call_to_delete(&self, agent: &AgentId) -> Call {
        self.with_board(Call::new().key(self.entity.part("meta")).key(self.entity.part("boards")), agent)
    }

    /// Adds a board's keys to a call. The agent stands last in a key, so no agent can be taken for a part.
    pub(super) fn with_board(&self, call: Call, agent: &AgentId) -> Call {
        let prefix = self.prefix();
        BOARD_PARTS.iter().fold(call, |call, part| {
            let key = [&prefix[..], part.as_bytes(), b":", agent.as_str().as_bytes()].concat();
            call.key(Bytes::from(key))
        })
    }
}

/// A call that gets a board.
pub(super) fn board_call(index: &Index, board: &BoardId) -> Call {
    Conversation::new(index, &board.conversation).with_board(Call::new(), &board.agent)
}
