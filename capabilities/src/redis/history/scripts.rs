//! The scripts of a thread, which the server runs atomically.

use std::sync::LazyLock;

use super::super::script::Script;

/// A script that begins by reading the state of the thread.
macro_rules! on_thread {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("popped.lua"), include_str!("thread.lua"), include_str!($file)))
        });
    };
}

/// A script without shared functions.
macro_rules! alone {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    };
}

/// The full append first tries a short path, before the functions that other scripts need.
pub(super) static APPEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("append.lua"),
        include_str!("popped.lua"),
        include_str!("thread.lua"),
        include_str!("append_any.lua")
    ))
});

/// A removal of a thread, whose state it does not read.
pub(super) static DROP: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("popped.lua"), include_str!("drop.lua"))));

on_thread!(CLEAR, "clear.lua");
on_thread!(CLEAR_RUN, "clear_run.lua");
on_thread!(COMMIT, "commit.lua");
on_thread!(EVENTS, "events.lua");
on_thread!(MATCHING, "matching.lua");
on_thread!(REMOVE, "remove.lua");
on_thread!(REPLACE, "replace.lua");
on_thread!(RETIRE, "retire.lua");
on_thread!(SET_TTL, "set_ttl.lua");
on_thread!(SETTLE, "settle.lua");
on_thread!(SOURCE, "source.lua");
on_thread!(UPDATE, "update.lua");
on_thread!(WATCH, "watch.lua");

alone!(APPEND_ONE, "append_one.lua");
alone!(DISCARD, "discard.lua");
alone!(FORGET, "forget.lua");
alone!(REGISTER, "register.lua");
alone!(STAGE, "stage.lua");
