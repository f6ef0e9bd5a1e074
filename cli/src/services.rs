//! `larder services`: starts and stops the live services that the backends are checked against.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitCode, Stdio};

use crate::service::{SERVICES, Service};
use clap::{Parser, ValueEnum};

use crate::{interrupt, output, service};

/// Arguments of `larder services`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// What to do with them.
    action: Action,
    /// Which of them; none means all. `kill` takes at least one.
    #[arg(value_name = "NAME", value_parser = script_of)]
    names: Vec<&'static str>,
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
    /// End them as a crash does.
    Kill,
}

/// The script of a service, by its own name or by the service's name in reports.
fn script_of(name: &str) -> Result<&'static str, String> {
    let named = |service: &&Service| service.script == name || service.name == name;
    SERVICES.iter().find(named).map(|service| service.script).ok_or_else(|| {
        let names: Vec<&str> = SERVICES.iter().map(|service| service.script).collect();
        format!("there are {}", names.join(", "))
    })
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Status => "status",
            Self::Env => "env",
            Self::Kill => "kill",
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(reason) => return output::trouble(reason),
    };
    if args.action == Action::Kill && args.names.is_empty() {
        return output::trouble("kill takes the names of the services that it ends");
    }
    let script = script(&folder, args.native);
    match Command::new(&script).arg(args.action.word()).args(&args.names).status() {
        Ok(status) => match status.code().map(u8::try_from) {
            Some(Ok(code)) => ExitCode::from(code),
            // Ended by a signal.
            _ => ExitCode::FAILURE,
        },
        Err(error) => output::trouble(format_args!("cannot run {}: {error}", script.display())),
    }
}

/// Has no image, so it runs without a container among those that do.
const WITHOUT_IMAGE: &str = "s3s";

/// Containers where Docker answers, unless some service that has an image already runs without them: whatever started it
/// has to be what stops it.
fn script(folder: &Path, native: bool) -> PathBuf {
    let run = folder.join("run");
    let with_image = SERVICES.iter().map(|service| service.script).filter(|name| *name != WITHOUT_IMAGE);
    let some_run = || matches!(exit_code(Command::new(&run).arg("status").args(with_image)), Some(0 | 4));
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

fn folder() -> Result<PathBuf, String> {
    let folder = service::scripts();
    if !folder.is_dir() {
        return Err(format!("no workspace with the services' scripts at {}", folder.display()));
    }
    Ok(folder)
}

/// Starts what is missing, works beside it, and stops what was started, however the work ends: Ctrl-C and SIGTERM drop
/// it, once the services have been started where they come before. What the work itself starts is its own to stop. It is
/// told why where the services cannot be started.
///
/// # Errors
/// Those of the work; a sentence where it was interrupted, or what was started could not be stopped.
pub(crate) async fn beside(
    work: impl AsyncFnOnce(Result<&Running, String>) -> Result<ExitCode, String>,
) -> Result<ExitCode, String> {
    let mut stopped = pin!(interrupt::stopped()?);
    let mut starting = tokio::task::spawn_blocking(Running::start);
    let (running, in_time) = tokio::select! {
        started = &mut starting => (started, true),
        () = &mut stopped => (starting.await, false),
    };
    let cannot = |error: &dyn std::fmt::Display| format!("cannot start the services: {error}");
    let running = running.map_err(|error| cannot(&error))?.map_err(|reason| cannot(&reason));
    let done = if in_time {
        interrupt::unless(stopped, work(running.as_ref().map_err(Clone::clone))).await
    } else {
        interrupt::told()
    };
    if let Ok(running) = running {
        let stopped = tokio::task::spawn_blocking(move || running.stop()).await;
        stopped.map_err(|error| format!("cannot stop the services: {error}"))??;
    }
    done
}

/// The services as a run needs them.
#[derive(Debug)]
pub struct Running {
    script: PathBuf,
    /// Those that this run started, and so has to stop.
    started: Vec<&'static str>,
    /// The variables that name those which run.
    pub variables: Vec<(String, String)>,
}

impl Running {
    /// Starts what neither runs yet nor is named by the environment. What cannot be started has no variable afterwards;
    /// its script has said why.
    ///
    /// # Errors
    /// A sentence where the scripts cannot be run at all.
    pub fn start() -> Result<Self, String> {
        let folder = folder()?;
        let script = script(&folder, false);
        let ours = |service: &&Service| {
            std::env::var_os(service.variable).is_none() && folder.join(service.script).is_file()
        };
        let wanted: Vec<&str> = SERVICES.iter().filter(ours).map(|service| service.script).collect();
        let mut running = Self { script, started: Vec::new(), variables: Vec::new() };
        if wanted.is_empty() {
            return Ok(running);
        }
        for &name in &wanted {
            if exit_code(running.command(Action::Status).arg(name)) != Some(0) {
                running.started.push(name);
            }
        }
        let said = |error| format!("cannot run {}: {error}", running.script.display());
        if !running.started.is_empty() {
            running
                .command(Action::Up)
                .args(&running.started)
                .stdout(Stdio::null())
                .status()
                .map_err(said)?;
        }
        // Those that do not run say so once more; `up` has said why.
        let env = running.command(Action::Env).args(&wanted).stderr(Stdio::null()).output().map_err(said)?;
        let text =
            String::from_utf8(env.stdout).map_err(|_| "the services' variables are no text".to_owned())?;
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        running.variables = text.lines().filter_map(pair).collect();
        Ok(running)
    }

    fn command(&self, action: Action) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(action.word()).stdin(Stdio::null());
        command
    }

    /// The URL of a service: the environment's, else that of the one that runs.
    pub(crate) fn url(&self, service: &Service) -> Option<String> {
        let ours = || self.variables.iter().find(|(name, _)| name == service.variable);
        std::env::var(service.variable).ok().or_else(|| ours().map(|(_, url)| url.clone()))
    }

    /// The services that have no URL.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        SERVICES.iter().filter(|service| self.url(service).is_none()).map(|service| service.name).collect()
    }

    /// Stops what this run started.
    pub fn stop(&self) -> Result<(), String> {
        if self.started.is_empty() {
            return Ok(());
        }
        match exit_code(self.command(Action::Down).args(&self.started)) {
            Some(0) => Ok(()),
            _ => Err(format!("{} down failed", self.script.display())),
        }
    }
}
