//! `larder erase`: deletes data on request.

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;

use clap::Parser;
use larder::transfer::{Erased, Whose, erase, erase_of};
use larder::{Backend, Registry, redact_url};
use larder_kernel::{AgentId, Namespace, SessionId};

use super::{Unsupported, side};
use crate::opening::{self, Access};
use crate::output;
use crate::thread::{parse_namespace, printable};

/// Arguments of `larder erase`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of the backend, such as `sqlite:./larder.db`.
    url: String,
    /// Namespace; without --agent and --session, everything in it is deleted.
    #[arg(long, value_parser = parse_namespace)]
    namespace: Namespace,
    /// Delete only the threads and boards of this agent.
    #[arg(long, value_parser = parse_agent)]
    agent: Option<AgentId>,
    /// Delete only the threads of this session, and the boards of the conversation with this name.
    #[arg(long, value_parser = parse_session)]
    session: Option<SessionId>,
    /// Delete without confirmation.
    #[arg(long)]
    yes: bool,
}

fn parse_agent(text: &str) -> Result<AgentId, String> {
    AgentId::new(text).map_err(|error| error.to_string())
}

fn parse_session(text: &str) -> Result<SessionId, String> {
    SessionId::new(text).map_err(|error| error.to_string())
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    match may(args) {
        Ok(()) => output::on_runtime(Box::pin(run_erase(registry, args))),
        Err(reason) => output::trouble(reason),
    }
}

/// Checks that the user confirms the deletion.
fn may(args: &Args) -> Result<(), String> {
    if args.yes {
        return Ok(());
    }
    let refused = "nothing was erased (--yes erases without confirmation)";
    if !stdin().is_terminal() {
        return Err(refused.to_owned());
    }
    let (what, name) = (what(args), printable(args.namespace.as_str()));
    output::note(format_args!(
        "{what} in {} will be erased permanently; type {name} to confirm",
        redact_url(&args.url)
    ));
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(|error| format!("cannot read the confirmation: {error}"))?;
    if answer.trim_end_matches(['\r', '\n']) == args.namespace.as_str() {
        Ok(())
    } else {
        Err(refused.to_owned())
    }
}

fn what(args: &Args) -> String {
    let name = printable(args.namespace.as_str());
    match (&args.agent, &args.session) {
        (None, None) => format!("everything in the namespace {name}"),
        _ => format!("the selected threads and boards in the namespace {name}"),
    }
}

async fn run_erase(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let place = opening::backend(registry, &args.url, Access::Write).await?;
    let erased = erase_in(args, &place).await;
    place.close().await;
    erased
}

async fn erase_in(args: &Args, place: &Backend) -> Result<ExitCode, String> {
    let side = side(place, &args.url, &args.namespace, &[], Unsupported::Fails).await?;
    let whole = args.agent.is_none() && args.session.is_none();
    let erased = if whole {
        erase(&side).await
    } else {
        erase_of(&side, &Whose::default().with_agent(args.agent.clone()).with_session(args.session.clone()))
            .await
    };
    let erased = erased.map_err(|error| format!("{error} (run it again to complete the erasure)"))?;
    if erased.is_empty() {
        return Err(
            "the backend stores neither threads nor boards, so it has no data by agent; nothing was erased"
                .to_owned(),
        );
    }
    let left: u64 = erased.iter().map(|erased| erased.left).sum();
    let line = |Erased { contract, before, left, .. }: &Erased| {
        let unit = match contract.as_str() {
            _ if whole => "records",
            "history" => "threads",
            _ => "boards",
        };
        format!("{:<10} {before} {unit} erased, {left} left", contract.as_str())
    };
    let text: Vec<String> = erased.iter().map(line).collect();
    if left > 0 {
        output::note("the namespace changed during the erasure; run it again");
    }
    Ok(output::finish(text.join("\n"), ExitCode::from(u8::from(left > 0))))
}
