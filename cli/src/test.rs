//! `larder test`: the tests of the whole workspace, live services included.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::services::{self, Running};
use crate::{interrupt, output};

/// Arguments of `larder test`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Start no services, and show their tests as ignored.
    #[arg(long)]
    no_services: bool,
    /// Arguments for `cargo test`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    if args.no_services {
        return output::on_runtime(async {
            interrupt::unless(interrupt::stopped()?, test(args, None)).await
        });
    }
    output::on_runtime(services::beside(async |running| match running {
        Ok(running) => test(args, Some(running)).await,
        Err(reason) => {
            output::trouble(format_args!("{reason}; the tests of the live services are shown as ignored"));
            refused_in_ci("the live services")?;
            test(args, None).await
        }
    }))
}

async fn test(args: &Args, running: Option<&Running>) -> Result<ExitCode, String> {
    let missing = running.map_or_else(Vec::new, Running::missing).join(", ");
    if !missing.is_empty() {
        output::trouble(format_args!("missing: {missing}; their tests are shown as ignored"));
        refused_in_ci(&missing)?;
    }
    browser();
    cargo_test(args, running, missing.is_empty()).await
}

fn refused_in_ci(missing: &str) -> Result<(), String> {
    if std::env::var_os("CI").is_none() {
        return Ok(());
    }
    Err(format!("a CI run needs {missing} (use --no-services to run without live services)"))
}

/// Installs the browser for the tests of the report's page, if possible. Otherwise the script prints the
/// reason, and the tests that need the browser are ignored, or fail in CI.
/// why, and the tests that need it are shown as ignored, or fail in CI.
fn browser() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/browser/install");
    if let Err(error) = Command::new(&script).stdin(Stdio::null()).stdout(Stdio::null()).status() {
        output::note(format_args!("cannot run {}: {error}", script.display()));
    }
}

async fn cargo_test(args: &Args, running: Option<&Running>, complete: bool) -> Result<ExitCode, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--all-features"]).args(&args.cargo).stdin(Stdio::null());
    if let Some(running) = running {
        command.envs(running.variables.iter().cloned());
        if complete {
            command.env("LARDER_SERVICES", "required");
        }
    }
    // Only the process group forwards signals, so that cargo and its tests receive each signal once.
    let mut child = command.process_group(0).spawn().map_err(|error| format!("cannot run cargo: {error}"))?;
    let _group = Group::of(&child);
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    match ended.map_err(|error| error.to_string())? {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => Err(format!("cannot wait for cargo: {error}")),
    }
}

/// The process group of a command, which is terminated on drop.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            // The group is empty if the command has ended.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }
}
