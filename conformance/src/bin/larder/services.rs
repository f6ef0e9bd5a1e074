//! `larder services`: starts and stops the live services that the backends are checked against.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Parser, ValueEnum};

use crate::output;

/// Arguments of `larder services`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// What to do with all of them.
    action: Action,
    /// Use no containers, even where Docker answers.
    #[arg(long)]
    native: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Action {
    /// Start those that do not run, installing them first where there are no containers.
    Up,
    /// Stop them; their data stays.
    Down,
    /// Say which of them run; exit code 3 if none does, 4 if only some do.
    Status,
    /// Print the variables with their URLs, one NAME=value a line.
    Env,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Status => "status",
            Self::Env => "env",
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("services");
    if !folder.is_dir() {
        return output::trouble(format_args!(
            "no workspace with the services' scripts at {}",
            folder.display()
        ));
    }
    let script = script(&folder, args.native);
    match Command::new(&script).arg(args.action.word()).status() {
        Ok(status) => match status.code().map(u8::try_from) {
            Some(Ok(code)) => ExitCode::from(code),
            // Ended by a signal.
            _ => ExitCode::FAILURE,
        },
        Err(error) => output::trouble(format_args!("cannot run {}: {error}", script.display())),
    }
}

/// Containers where Docker answers, unless some service already runs without them: whatever started it has to be what
/// stops it.
fn script(folder: &Path, native: bool) -> PathBuf {
    let run = folder.join("run");
    let some_run = || matches!(exit_code(Command::new(&run).arg("status")), Some(0 | 4));
    if native || some_run() || !docker_answers() {
        return run;
    }
    folder.join("containers")
}

fn docker_answers() -> bool {
    let info = ["info", "--format", "{{.ServerVersion}}"];
    [&info[..], &["compose", "version"]]
        .into_iter()
        .all(|args| exit_code(Command::new("docker").args(args)) == Some(0))
}

fn exit_code(command: &mut Command) -> Option<i32> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok()?.code()
}

/// The services as a test run needs them.
#[derive(Debug)]
pub(crate) struct Running {
    script: PathBuf,
    /// Whether this run started them, and so has to stop them.
    started: bool,
    /// The variables that name them.
    pub(crate) variables: Vec<(String, String)>,
}

impl Running {
    /// Starts what does not run yet.
    ///
    /// # Errors
    /// A sentence where the services cannot be started.
    pub(crate) fn start() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("services");
        let script = script(&folder, false);
        let started = exit_code(Command::new(&script).arg(Action::Status.word())) != Some(0);
        let said = |error| format!("cannot run {}: {error}", script.display());
        let up = Command::new(&script).arg(Action::Up.word()).stdout(Stdio::null()).status().map_err(said)?;
        if !up.success() {
            return Err(format!("{} up failed", script.display()));
        }
        let said = |error| format!("cannot run {}: {error}", script.display());
        let env = Command::new(&script).arg(Action::Env.word()).output().map_err(said)?;
        let text =
            String::from_utf8(env.stdout).map_err(|_| "the services' variables are no text".to_owned())?;
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self { script, started, variables: text.lines().filter_map(pair).collect() })
    }

    /// Stops what this run started.
    pub(crate) fn stop(&self) -> Result<(), String> {
        if self.started && exit_code(Command::new(&self.script).arg(Action::Down.word())) != Some(0) {
            return Err(format!("{} down failed", self.script.display()));
        }
        Ok(())
    }
}
