//! The conversation stores of agent frameworks, on the same server and with messages of the same size: a
//! comparison without targets.

use std::path::Path;
use std::process::Command;

use larder_kernel::Thread;

use super::figure::{Figure, Subject, Unit, in_rounds};
use super::history::Conversations;
use super::pgbench::run;
use super::postgres::{VARIABLE, connect, settings};
use super::{Outcome, Plan};

/// The variable with the peer's database URL. Arguments would be visible in process lists.
const URL: &str = "LARDER_BENCH_PEER_URL";
/// The lengths of the threads.
const SIZES: [u32; 2] = [50, 5_000];
/// Rounds: the peer starts again and fills its thread in each round.
const ROUNDS: usize = 3;

/// A framework's store, and the names of its figures.
struct Framework {
    requirements: &'static str,
    script: &'static str,
    /// The peer's name, before its version.
    peer: &'static str,
    /// Append and read, for each size.
    names: [[&'static str; 2]; 2],
}

const OPENAI_AGENTS: Framework = Framework {
    requirements: "openai-agents",
    script: "openai_session.py",
    peer: "OpenAI Agents SDK, SQLiteSession",
    names: [
        ["openai-agents-append-50", "openai-agents-last-50-of-50"],
        ["openai-agents-append-5000", "openai-agents-last-50-of-5000"],
    ],
};

const LANGGRAPH: Framework = Framework {
    requirements: "langgraph",
    script: "langgraph_saver.py",
    peer: "langgraph-checkpoint-postgres, PostgresSaver",
    names: [
        ["langgraph-append-50", "langgraph-last-50-of-50"],
        ["langgraph-append-5000", "langgraph-last-50-of-5000"],
    ],
};

const AGNO: Framework = Framework {
    requirements: "agno",
    script: "agno_session.py",
    peer: "agno, PostgresDb, runs of one message",
    names: [["agno-append-50", "agno-last-50-of-50"], ["agno-append-5000", "agno-last-50-of-5000"]],
};

/// The sessions of the OpenAI Agents SDK, in SQLite.
pub(super) async fn openai_agents(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("sessions-beside.db").display());
    let file = plan.scratch.join("openai-agents.db");
    let settings = "journal_mode=wal synchronous=full on both sides";
    beside(plan, &OPENAI_AGENTS, &url, settings, |command, round| {
        // A separate file for each round, because the sessions have the same names.
        command.arg(file.with_extension(format!("{round}.db")));
    })
    .await
}

/// LangGraph's saver, in Postgres.
pub(super) async fn langgraph(plan: &Plan) -> Outcome<Vec<Figure>> {
    in_postgres(plan, &LANGGRAPH).await
}

/// Agno's sessions, in Postgres.
pub(super) async fn agno(plan: &Plan) -> Outcome<Vec<Figure>> {
    in_postgres(plan, &AGNO).await
}

async fn in_postgres(plan: &Plan, framework: &Framework) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let settings = settings(&mut connect(&url).await?).await?;
    beside(plan, framework, &url, &settings, |command, _| {
        command.env(URL, &url);
    })
    .await
}

/// The times of one side for each size: microseconds of an append and of a read.
type Taken = Vec<[f64; 2]>;

async fn beside(
    plan: &Plan,
    framework: &Framework,
    url: &str,
    settings: &str,
    address: impl Fn(&mut Command, usize),
) -> Outcome<Vec<Figure>> {
    let mut conversations = Conversations::open(url).await?;
    let mut version = String::new();
    let rounds = in_rounds(
        plan.rounds.min(ROUNDS),
        async |round| ours(plan, &mut conversations, round).await,
        async |round| {
            if round == 0 {
                // A peer starts again for each round, so a warm-up has no effect.
                return Ok(vec![[f64::NAN; 2]; SIZES.len()]);
            }
            let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run"));
            command.args([framework.requirements, framework.script]);
            address(&mut command, round);
            let (found, taken) = theirs(command.args(SIZES.map(|size| size.to_string())))?;
            version = found;
            Ok(taken)
        },
    )
    .await;
    // Removes the data after a failure, too.
    conversations.erase().await?;
    let rounds = rounds?;
    let mut figures = Vec::new();
    for (size, (length, names)) in SIZES.iter().zip(framework.names).enumerate() {
        for (call, (name, what)) in names.into_iter().zip(["append", "last 50"]).enumerate() {
            let pairs: Vec<(f64, f64)> =
                rounds.iter().map(|(ours, theirs)| (ours[size][call], theirs[size][call])).collect();
            let subject = Subject {
                name,
                what: format!("{what} in a thread of {length} messages of 1 KB, one caller"),
                peer: format!("{} {version}, in Python", framework.peer),
                settings: settings.to_owned(),
                unit: Unit::Micros,
                target: None,
            };
            figures.push(subject.figure(&pairs));
        }
    }
    Ok(figures)
}

async fn ours(plan: &Plan, conversations: &mut Conversations, round: usize) -> Outcome<Taken> {
    let calls = plan.size(200, 20);
    let mut taken = Taken::new();
    for size in SIZES {
        let thread = Thread::new("bench", format!("beside-{size}-{round}"))?;
        conversations.fill(&thread, size).await?;
        let append = conversations.append(&thread, calls).await?;
        taken.push([append, conversations.last_50(&thread, calls).await?]);
    }
    Ok(taken)
}

/// Returns the peer's version and its times.
fn theirs(command: &mut Command) -> Outcome<(String, Taken)> {
    let said = run(command)?;
    let mut lines = said.trim().lines();
    let version = lines.next().ok_or("the peer printed no version")?.to_owned();
    let mut taken = Taken::new();
    for line in lines {
        let (append, read) = line.split_once(' ').ok_or("the peer printed no figures")?;
        taken.push([append.parse()?, read.parse()?]);
    }
    if taken.len() != SIZES.len() {
        return Err(format!("the peer printed {} lines of figures", taken.len()).into());
    }
    Ok((version, taken))
}
