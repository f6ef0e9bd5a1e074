//! `larder test`: the tests of the whole workspace, live services included.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

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
    let runtime = match output::runtime() {
        Ok(runtime) => runtime,
        Err(reason) => return output::trouble(reason),
    };
    // Ctrl-C reaches cargo as well; this process waits for it and stops the services then.
    let interrupts = runtime.spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let code = test(args);
    interrupts.abort();
    code
}

fn test(args: &Args) -> ExitCode {
    let running = if args.no_services { None } else { start() };
    let missing = running.as_ref().map_or_else(Vec::new, Running::missing);
    let in_ci = std::env::var_os("CI").is_some();
    let refused = match &running {
        None if in_ci && !args.no_services => Some("the live services".to_owned()),
        Some(_) if in_ci && !missing.is_empty() => Some(missing.join(", ")),
        _ => None,
    };
    let code = match refused {
        Some(names) => {
            output::trouble(format_args!("a CI run needs {names}; --no-services says that it does not"))
        }
        None => {
            browser();
            cargo_test(args, running.as_ref(), missing.is_empty())
        }
    };
    if let Some(Err(reason)) = running.map(|running| running.stop()) {
        return output::trouble(reason);
    }
    code
}

/// Has the browser installed in which the report's page is tested, where that can be done. Where not, the script has said
/// why, and the tests that need it are shown as ignored, or fail in CI.
fn browser() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/install");
    if let Err(error) = Command::new(&script).stdin(Stdio::null()).stdout(Stdio::null()).status() {
        output::note(format_args!("cannot run {}: {error}", script.display()));
    }
}

fn cargo_test(args: &Args, running: Option<&Running>, complete: bool) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--all-features"]).args(&args.cargo);
    if let Some(running) = running {
        command.envs(running.variables.iter().cloned());
        if complete {
            command.env("LARDER_SERVICES", "required");
        }
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => output::trouble(format_args!("cannot run cargo: {error}")),
    }
}

fn start() -> Option<Running> {
    match Running::start() {
        Ok(running) => {
            let missing = running.missing();
            if !missing.is_empty() {
                let names = missing.join(", ");
                output::trouble(format_args!("not there: {names}; their tests are shown as ignored"));
            }
            Some(running)
        }
        Err(reason) => {
            output::trouble(format_args!("{reason}; the tests of the live services are shown as ignored"));
            None
        }
    }
}
