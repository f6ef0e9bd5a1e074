//! `larder test`: the tests of the whole workspace, live services included.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use clap::Parser;

use crate::output;
use crate::services::Running;

/// Arguments of `larder test`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Start no services; their tests are shown as ignored.
    #[arg(long)]
    no_services: bool,
    /// Passed on to `cargo test`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let running = if args.no_services { None } else { start() };
    if running.is_none() && !args.no_services && std::env::var_os("CI").is_some() {
        return output::trouble("a CI run needs the live services; --no-services says that it does not");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--all-features"]).args(&args.cargo);
    if let Some(running) = &running {
        command.envs(running.variables.iter().cloned()).env("LARDER_SERVICES", "required");
    }
    let status = command.status();
    if let Some(Err(reason)) = running.map(|running| running.stop()) {
        return output::trouble(reason);
    }
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => output::trouble(format_args!("cannot run cargo: {error}")),
    }
}

fn start() -> Option<Running> {
    match Running::start() {
        Ok(running) => Some(running),
        Err(reason) => {
            output::trouble(format_args!("{reason}; the tests of the live services are shown as ignored"));
            None
        }
    }
}
