//! The scripts of tasks, each with the functions that it shares with others.

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
    /// Creates a board with its first tasks.
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
    /// Changes the status of a task as the transition table allows.
    STEP = "lua/step.lua";
    /// Resets a task to planned if it has a retry left.
    RETRY = "lua/retry.lua";
    /// Resets a task to planned.
    FORCE = "lua/force.lua";
    /// Ends the running tasks of a conversation.
    SETTLE = "lua/settle.lua";
    /// Assigns the first free task.
    CLAIM = "lua/claim.lua";
    /// Extends a lease.
    RENEW = "lua/renew.lua";
    /// Deletes a board and keeps its revision numbers.
    DELETE = "lua/delete.lua";
    /// Deletes a conversation.
    ERASE = "lua/erase.lua";
}
