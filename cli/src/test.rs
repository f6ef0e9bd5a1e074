//! `larder test`: the tests of the whole workspace, live services included.
//!
//! A whole run with every service ends with a check of the table of promises: each test that it names has run
//! and passed.

mod results;
mod table;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process_group};

use results::Results;

use crate::services::{self, Running};
use crate::{interrupt, output};

/// The time after the end of the tests in which their output ends too.
const OUTPUT_ENDS: Duration = Duration::from_secs(30);

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
fn browser() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/browser/install");
    if let Err(error) = Command::new(&script).stdin(Stdio::null()).stdout(Stdio::null()).status() {
        output::note(format_args!("cannot run {}: {error}", script.display()));
    }
}

async fn cargo_test(args: &Args, running: Option<&Running>, complete: bool) -> Result<ExitCode, String> {
    let command = |more: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.args(["test", "--workspace", "--all-features"]).args(more).stdin(Stdio::null());
        if let Some(running) = running {
            command.envs(running.variables.iter().cloned());
            if complete {
                command.env("LARDER_SERVICES", "required");
            }
        }
        command
    };
    if !args.cargo.is_empty() {
        let mut selected = command(&[]);
        selected.args(&args.cargo);
        return ended(selected, |child| child.wait().map(|status| (status, ()))).await.map(|(code, ())| code);
    }
    // The build has the terminal; only the output of the tests goes through a pipe.
    let (built, ()) = ended(command(&["--no-run"]), |child| child.wait().map(|status| (status, ()))).await?;
    if built != ExitCode::SUCCESS {
        return Ok(built);
    }
    // One run shows every failure, not only those of the first test binary that fails.
    let (mut whole, (reader, writer)) = (command(&["--no-fail-fast"]), pipe()?);
    let errors = writer.try_clone().map_err(|error| format!("cannot make a pipe: {error}"))?;
    whole.stdout(writer).stderr(errors);
    // The lines are read, so they have no colors.
    whole.env("CARGO_TERM_COLOR", "never");
    let (code, results) = ended(whole, move |child| {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(read(reader)));
        let status = child.wait()?;
        // A process that outlives its test would keep the output open forever.
        let late = |_| std::io::Error::other("a process that a test has left keeps its output open");
        Ok((status, receiver.recv_timeout(OUTPUT_ENDS).map_err(late)??))
    })
    .await?;
    if code == ExitCode::SUCCESS && running.is_some() && complete {
        return check_promises(&results);
    }
    output::note(format_args!("the table of promises is checked after a whole run with all services"));
    // The reasons are printed again at the end, because the output of other test binaries follows them.
    Ok(if code == ExitCode::SUCCESS { code } else { output::finish(results.failures(), code) })
}

fn pipe() -> Result<(PipeReader, PipeWriter), String> {
    std::io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))
}

/// Prints the output of the tests and returns their results.
fn read(output: PipeReader) -> std::io::Result<Results> {
    let mut results = Results::default();
    let mut line = Vec::new();
    let mut output = BufReader::new(output);
    let mut shown = std::io::stdout();
    while output.read_until(b'\n', &mut line)? > 0 {
        shown.write_all(&line)?;
        shown.flush()?;
        results.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(results)
}

/// Checks that each proof in the table of promises has run and passed.
fn check_promises(results: &Results) -> Result<ExitCode, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/promises.md");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = table::rows(&text)?;
    let unproven = results.unproven(&rows);
    if unproven.is_empty() {
        output::note(format_args!("{} promises: every test that proves them ran and passed", rows.len()));
        return Ok(ExitCode::SUCCESS);
    }
    for line in unproven {
        output::trouble(format_args!("{line}"));
    }
    Ok(ExitCode::FAILURE)
}

/// Runs a command in its own process group, and `wait` on a thread that may block.
async fn ended<T: Send + 'static>(
    mut command: Command,
    wait: impl FnOnce(&mut Child) -> std::io::Result<(ExitStatus, T)> + Send + 'static,
) -> Result<(ExitCode, T), String> {
    // Only the process group forwards signals, so that cargo and its tests receive each signal once.
    let mut child = command.process_group(0).spawn().map_err(|error| format!("cannot run cargo: {error}"))?;
    // Drops this process's ends of the pipe, so that the reader sees the end of the output.
    drop(command);
    let _group = Group::of(&child);
    let waited = tokio::task::spawn_blocking(move || wait(&mut child)).await;
    match waited.map_err(|error| error.to_string())? {
        Ok((status, value)) if status.success() => Ok((ExitCode::SUCCESS, value)),
        Ok((_, value)) => Ok((ExitCode::FAILURE, value)),
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
