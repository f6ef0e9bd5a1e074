//! The `larder` command: checks backends against the contract, runs the workspace's tests, and moves and
//! shows stored data.
//!
//! The binary `larder` calls [`run`] with the backends of its build. Your own backend gets the same command
//! in three lines:
//!
//! ```no_run
//! # fn main() -> std::process::ExitCode {
//! // let registry = larder::Registry::default().with(MyDriver);
//! # let registry = larder::Registry::default();
//! larder_cli::run(&registry)
//! # }
//! ```
//!
//! The modules hidden from this documentation exist for the tests and benchmarks of the repository, and can
//! change in any release.

mod check;
mod contract;
mod doctor;
#[doc(hidden)]
pub mod durable;
mod edges;
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
mod new_backend;
mod opening;
#[doc(hidden)]
pub mod output;
mod relayed;
#[doc(hidden)]
pub mod service;
#[doc(hidden)]
pub mod services;
mod test;
mod thread;
mod trouble;
#[doc(hidden)]
pub mod url;
mod verify;
mod window;
mod worker;
mod workers;
mod writer;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use larder::Registry;

/// A storage layer for agent runtimes, and the conformance suite for its backends.
#[derive(Debug, Parser)]
#[command(name = "larder", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the conformance suite against backends.
    ///
    /// Without a URL, the backends are memory, SQLite and files in a temporary folder. With `--live`, every
    /// live service is checked as well.
    Check(check::Args),
    /// Print the contract as one page, or check that CONTRACT.md is up to date.
    Contract(contract::Args),
    /// Copy everything from one backend to another.
    ///
    /// Running an interrupted copy again resumes it.
    Copy(moving::copy::Args),
    /// Diagnose a backend: version, durability, permissions, disk space, clock.
    ///
    /// The command does not change the backend. The exit code is 0 if nothing failed, 1 with `--strict` if a
    /// check gave a warning, and 2 if a check failed or a URL is invalid.
    Doctor(doctor::Args),
    /// Write the whole content of a backend into an archive.
    Dump(moving::dump::Args),
    /// Delete a namespace, or the data of an agent or a session, and verify the deletion.
    Erase(moving::erase::Args),
    /// Write a thread as a transcript.
    ///
    /// The transcript has one JSON message per line and is the same from every backend.
    Export(export::Args),
    /// Append a transcript to a thread, all or none.
    ///
    /// Running it again adds nothing.
    Import(import::Args),
    /// Show the contents of a namespace: threads, collections, boards and sizes.
    ///
    /// The command only reads. It refuses a file that opening would create or upgrade, and a Postgres schema
    /// of another version.
    Inspect(inspect::Args),
    /// Load an archive into a backend.
    ///
    /// Running an interrupted load again resumes it.
    Load(moving::load::Args),
    /// Serve conversations, a memory graph, notes and tasks to models as an MCP server.
    ///
    /// The server uses standard input and output, or streamable HTTP.
    #[cfg(feature = "mcp")]
    Mcp(mcp::Args),
    /// Run the suite against faulty stores, and print which clauses detect each defect.
    Mutants(mutants::Args),
    /// Write a crate for a new backend.
    ///
    /// The crate contains the methods of one contract as stubs, a harness, and the suite as its test.
    NewBackend(new_backend::Args),
    /// Start or stop the live services that backends are checked against, in containers or without.
    Services(services::Args),
    /// Run the tests of the whole workspace.
    Test(test::Args),
    /// Read everything in a backend, and name what is damaged: checksums, counters, indexes, references.
    ///
    /// The command changes nothing without `--repair`. The exit code is 0 if nothing is damaged, 1 if a fault
    /// was found, and 2 if the backend cannot be read or has no verification.
    Verify(verify::Args),
    /// Show the part of a thread that a model would read, and why.
    Window(window::Args),
    /// Run the clients of the level `concurrent`, as `larder check` requests on standard input.
    #[command(hide = true)]
    Worker,
    /// Write to a backend and report each write until this process is killed, for the level `durable`.
    #[command(hide = true)]
    Writer(writer::Args),
}

/// Runs the command with the arguments of this process and the backends of a registry, and returns its exit
/// code.
///
/// Call it from `main` and do nothing else there: the levels `concurrent` and `durable` start the running
/// program again with other arguments. Invalid arguments and `--help` end the process.
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
        Command::NewBackend(args) => new_backend::run(&args),
        Command::Services(args) => services::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Verify(args) => verify::run(registry, &args),
        Command::Window(args) => window::run(registry, &args),
        Command::Worker => worker::run(registry),
        Command::Writer(args) => writer::run(registry, &args),
    }
}
