//! The `larder` command: checks backends against the contract, and runs the workspace's tests.

mod check;
mod contract;
mod output;
mod services;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The storage layer under agent runtimes, and the suite that proves its backends equal.
#[derive(Debug, Parser)]
#[command(name = "larder", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the conformance suite against backends: those named by URL, or memory, SQLite and files in a temporary folder.
    Check(check::Args),
    /// Print the contract as one page, or check that CONTRACT.md is that page.
    Contract(contract::Args),
    /// Start or stop the live services that backends are checked against, in containers or without.
    Services(services::Args),
    /// Run the tests of the whole workspace.
    Test(test::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Contract(args) => contract::run(&args),
        Command::Services(args) => services::run(&args),
        Command::Test(args) => test::run(&args),
    }
}
