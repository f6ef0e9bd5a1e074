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
    /// The action to run.
    action: Action,
    /// Names of services; the default is all. `kill` needs at least one name.
    #[arg(value_name = "NAME", value_parser = script_of)]
    names: Vec<&'static str>,
    /// Use no containers, even if Docker is available.
    #[arg(long)]
    native: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Action {
    /// Start the services that do not run; without containers, install them first.
    Up,
    /// Stop the services and keep their data.
    Down,
    /// Show which services run; exit with 3 if none runs, and with 4 if only some run.
    Status,
    /// Print the variables with the URLs, one NAME=value per line.
    Env,
    /// Kill the services, as a crash does.
    Kill,
}

/// Returns the script of a service, by the script's name or by the service's name in reports.
fn script_of(name: &str) -> Result<&'static str, String> {
    let named = |service: &&Service| service.script == name || service.name == name;
    SERVICES.iter().find(named).map(|service| service.script).ok_or_else(|| {
        let names: Vec<&str> = SERVICES.iter().map(|service| service.script).collect();
        format!("unknown service; the services are {}", names.join(", "))
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
        return output::trouble("`kill` needs the names of services; for example `kill postgres`");
    }
    let script = script(&folder, args.native);
    match Command::new(&script).arg(args.action.word()).args(&args.names).status() {
        Ok(status) => match status.code().map(u8::try_from) {
            Some(Ok(code)) => ExitCode::from(code),
            // The script was ended by a signal.
            _ => ExitCode::FAILURE,
        },
        Err(error) => output::trouble(format_args!("cannot run {}: {error}", script.display())),
    }
}

/// The services without an image. They run natively even if the other services run in containers.
const WITHOUT_IMAGE: [&str; 2] = ["s3s", "valkey"];

/// Returns the script for containers if Docker is available. If a service with an image already runs
/// natively, returns the native script, because only that script can stop the service.
fn script(folder: &Path, native: bool) -> PathBuf {
    let run = folder.join("run");
    let with_image =
        SERVICES.iter().map(|service| service.script).filter(|name| !WITHOUT_IMAGE.contains(name));
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

/// Starts the missing services, runs the work, and stops the started services, even if the work fails. Ctrl-C
/// and SIGTERM drop the work; if they arrive during the start, the start completes first. The work must stop
/// the services that it starts. If the services cannot be started, the work receives the reason.
///
/// # Errors
/// The error of the work; a message after an interruption, or if the started services cannot be stopped.
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

/// The services of a run.
#[derive(Debug)]
pub struct Running {
    script: PathBuf,
    /// The services that this run started and must stop.
    started: Vec<&'static str>,
    /// The environment variables of the running services.
    pub variables: Vec<(String, String)>,
}

impl Running {
    /// Starts every service that neither runs nor has a URL in the environment. A service that cannot be
    /// started has no variable afterwards; its script has printed the reason.
    ///
    /// # Errors
    /// A message if the scripts cannot run at all.
    pub fn start() -> Result<Self, String> {
        let folder = match folder() {
            Ok(folder) => folder,
            // An installed command has no scripts, but its environment can name servers.
            Err(_) if SERVICES.iter().any(|service| std::env::var_os(service.variable).is_some()) => {
                return Ok(Self { script: PathBuf::new(), started: Vec::new(), variables: Vec::new() });
            }
            Err(reason) => return Err(reason),
        };
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
        // Discards the messages about services that do not run; `up` has already printed them.
        let env = running.command(Action::Env).args(&wanted).stderr(Stdio::null()).output().map_err(said)?;
        let text =
            String::from_utf8(env.stdout).map_err(|_| "the services' variables are not UTF-8".to_owned())?;
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        running.variables = text.lines().filter_map(pair).collect();
        Ok(running)
    }

    fn command(&self, action: Action) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(action.word()).stdin(Stdio::null());
        command
    }

    /// Returns the URL of a service: the environment's, or else that of the running service.
    pub(crate) fn url(&self, service: &Service) -> Option<String> {
        let ours = || self.variables.iter().find(|(name, _)| name == service.variable);
        std::env::var(service.variable).ok().or_else(|| ours().map(|(_, url)| url.clone()))
    }

    /// Returns the content of a service's image if it was built in place of the published one.
    pub(crate) fn label(&self, service: &Service) -> Option<String> {
        let own = self.variables.iter().any(|(name, _)| name == service.variable);
        if !own || !self.script.ends_with("containers") {
            return None;
        }
        let output = Command::new(&self.script).args(["label", service.script]).output().ok()?;
        let label = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (!label.is_empty()).then_some(label)
    }

    /// Returns the services without a URL.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        SERVICES.iter().filter(|service| self.url(service).is_none()).map(|service| service.name).collect()
    }

    /// Stops the services that this run started.
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
