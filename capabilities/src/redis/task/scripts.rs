//! The scripts, each with the functions that it shares with others.

use std::sync::LazyLock;

use crate::redis::script::Script;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $first:literal $(, $more:literal)*;)*) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!("lua/board.lua"),
                include_str!($first),
                $(include_str!($more),)*
            ))
        });)*
    };
}

scripts! {
    /// Makes a board with its first tasks.
    CREATE = "lua/append.lua", "lua/create.lua";
    /// Adds tasks at the end of a board.
    ADD = "lua/append.lua", "lua/add.lua";
    /// Reads a board without its tasks.
    GET_BOARD = "lua/shown_board.lua", "lua/get_board.lua";
    /// Reads a task.
    GET_TASK = "lua/get_task.lua";
    /// Reads some of a board's tasks.
    LIST_TASKS = "lua/list_tasks.lua";
    /// Reads some of a conversation's boards.
    LIST_BOARDS = "lua/shown_board.lua", "lua/list_boards.lua";
    /// Moves a task along the table.
    STEP = "lua/step.lua";
    /// Takes a task back to planned if it has a retry left.
    RETRY = "lua/retry.lua";
    /// Takes a task back to planned.
    FORCE = "lua/force.lua";
    /// Ends what a conversation left running.
    SETTLE = "lua/settle.lua";
    /// Gives out the first free task.
    CLAIM = "lua/claim.lua";
    /// Prolongs a lease.
    RENEW = "lua/renew.lua";
    /// Removes a board and keeps its numbers.
    DELETE = "lua/delete.lua";
    /// Removes a conversation.
    ERASE = "lua/erase.lua";
}
