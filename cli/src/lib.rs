//! The `larder` command: checks backends against the contract, runs the workspace's tests, and moves and shows
//! conversations.
//!
//! The binary `larder` calls [`run`] with the backends of its build. A backend of your own has the same command in three
//! lines:
//!
//! ```no_run
//! # fn main() -> std::process::ExitCode {
//! // let registry = larder::Registry::default().with(MyDriver);
//! # let registry = larder::Registry::default();
//! larder_cli::run(&registry)
//! # }
//! ```
//!
//! The modules that are hidden from these pages are for the tests and benchmarks of the
//! repository, and can change in any release.

mod check;
mod contract;
mod doctor;
#[doc(hidden)]
pub mod durable;
mod export;
#[cfg(all(doctest, feature = "full"))]
mod guide;
mod import;
mod inspect;
mod interrupt;
#[doc(hidden)]
pub mod layered;
mod levels;
mod live;
#[cfg(feature = "mcp")]
mod mcp;
mod moving;
mod mutants;
#[doc(hidden)]
pub mod output;
mod relayed;
#[doc(hidden)]
pub mod service;
#[doc(hidden)]
pub mod services;
mod test;
mod thread;
#[doc(hidden)]
pub mod url;
mod window;
mod worker;
mod workers;
mod writer;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use larder::Registry;

/// The storage layer under agent runtimes, and the suite that proves its backends equal.
#[derive(Debug, Parser)]
#[command(name = "larder", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the conformance suite against backends: those named by URL, or memory, SQLite and files in a temporary folder;
    /// with `--live`, against every live service as well.
    Check(check::Args),
    /// Print the contract as one page, or check that CONTRACT.md is that page.
    Contract(contract::Args),
    /// Copy everything from one backend to another; running it again goes on where it was.
    Copy(moving::copy::Args),
    /// Look at places before programs trust them: versions, durability, rights, room, clocks. Nothing there is changed.
    Doctor(doctor::Args),
    /// Write everything that a backend holds into an archive.
    Dump(moving::dump::Args),
    /// Remove everything that a namespace holds, or what belongs to an agent or a session, and see that nothing is left.
    Erase(moving::erase::Args),
    /// Write a thread as a transcript: JSON, one message a line, the same from every backend.
    Export(export::Args),
    /// Append a transcript to a thread, whole or not at all; running it again adds nothing.
    Import(import::Args),
    /// Show what a namespace holds: threads, collections, boards and sizes.
    Inspect(inspect::Args),
    /// Fill a backend from an archive; running it again goes on where it was.
    Load(moving::load::Args),
    /// Serve conversations, a memory graph, notes and tasks to models: an MCP server over standard input and output, or over
    /// streamable HTTP.
    #[cfg(feature = "mcp")]
    Mcp(mcp::Args),
    /// Run the suite against stores that are wrong on purpose, and print which clause caught which.
    Mutants(mutants::Args),
    /// Start or stop the live services that backends are checked against, in containers or without.
    Services(services::Args),
    /// Run the tests of the whole workspace.
    Test(test::Args),
    /// Show what the model would read of a thread, and why.
    Window(window::Args),
    /// Play clients of the level `concurrent`, as `larder check` asks on standard input.
    #[command(hide = true)]
    Worker,
    /// Write to a place until this process is killed, and say so: what the level `durable` runs.
    #[command(hide = true)]
    Writer(writer::Args),
}

/// Runs the command with the arguments of this process and the backends of a registry, and returns its exit code.
///
/// Call it from `main` and do nothing else there: the levels `concurrent` and `durable` start the running program again, with
/// other arguments. Arguments that cannot be read end the process, as does `--help`.
pub fn run(registry: &Registry) -> ExitCode {
    match Cli::parse().command {
        Command::Check(args) => check::run(registry, &args),
        Command::Contract(args) => contract::run(&args),
        Command::Copy(args) => moving::copy::run(registry, &args),
        Command::Doctor(args) => doctor::run(registry, &args),
        Command::Dump(args) => moving::dump::run(registry, &args),
        Command::Erase(args) => moving::erase::run(registry, &args),
        Command::Export(args) => export::run(registry, &args),
        Command::Import(args) => import::run(registry, &args),
        Command::Inspect(args) => inspect::run(registry, &args),
        Command::Load(args) => moving::load::run(registry, &args),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(registry, &args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Services(args) => services::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Window(args) => window::run(registry, &args),
        Command::Worker => worker::run(registry),
        Command::Writer(args) => writer::run(registry, &args),
    }
}
