//! `larder window`: what the model would read of a thread.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use larder_agents::compaction::{Pipeline, SummaryStore};
use larder_agents::context::{AgentContext, ContextConfig, WindowExplanation};
use larder_agents::session::{MemoryConfig, parse_config};
use larder_agents::tokens::{EstimatedTokenCounter, TokenCounter, counter_for};
use larder_kernel::{Origin, WindowMessage};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::output;
use crate::thread::{Place, printable};

/// How to print the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `larder window`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The backend, such as `sqlite:./larder.db`.
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    place: Place,
    /// The memory settings of an agent, as JSON; without them the window is the newest 100 messages.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Count tokens as this model does; without it they are estimated.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Say what was read, and what each strategy did.
    #[arg(long)]
    explain: bool,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    output::report(window(args))
}

async fn window(args: &Args) -> Result<String, String> {
    let profile = args.profile.as_deref().map(read_profile).transpose()?;
    let counter: Arc<dyn TokenCounter> = match &args.model {
        Some(model) => counter_for(model),
        None => Arc::new(EstimatedTokenCounter),
    };
    let stores = args.place.open(&args.from).await?;
    let history = stores.history().map_err(|error| error.to_string())?;
    let mut config = ContextConfig::new(history).with_counter(counter.clone());
    if let Ok(key_value) = stores.key_value() {
        config = config.with_summaries(SummaryStore::new(key_value).map_err(|error| error.to_string())?);
    }
    if let Some(profile) = &profile {
        let strategies = profile.short_term_strategies(&counter).map_err(|error| error.to_string())?;
        config = config.with_pipeline(Pipeline::from(strategies));
        if !profile.long_term().is_empty() {
            output::note(
                "looking at a window changes nothing: its long-term strategies are not run, and a summary that they \
                 made is shown",
            );
        }
    }
    let context = AgentContext::new(config).map_err(|error| error.to_string())?;
    let context = context.for_agent(args.place.thread.agent.clone());
    let explained = context.explain_window(&args.place.thread.session).await;
    let explained = explained.map_err(|error| error.to_string())?;
    match args.format {
        Format::Text => Ok(text(&explained, args.explain)),
        Format::Json => json_text(&explained, args.explain),
    }
}

fn read_profile(path: &Path) -> Result<MemoryConfig, String> {
    let name = printable(&path.display().to_string());
    let json = std::fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    parse_config(&json).map_err(|error| format!("{name}: {}", printable(error.message())))
}

fn text(explained: &WindowExplanation, explain: bool) -> String {
    let mut text = String::new();
    for message in &explained.window.messages {
        show(&mut text, message);
    }
    if explain {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&explained.to_string());
    }
    text.truncate(text.trim_end().len());
    text
}

/// Writing to a string cannot fail.
fn show(to: &mut String, WindowMessage { origin, message }: &WindowMessage) {
    let place = match origin {
        Origin::Stored(seq) => format!("#{seq}"),
        Origin::Summary(up_to) => format!("summary up to #{up_to}"),
        _ => "injected".to_owned(),
    };
    let _ = write!(to, "{place} {}:", message.role.as_str());
    said(to, &message.text);
    for call in &message.tool_calls {
        let _ = write!(to, "    call {} {}", printable(&call.id), printable(&call.name));
        said(to, &call.arguments);
    }
    for result in &message.tool_results {
        let failed = if result.is_error { " failed" } else { "" };
        let _ = write!(to, "    result of {}{failed}:", printable(&result.call_id));
        said(to, &result.content);
    }
    for blob in &message.blobs {
        let _ = writeln!(to, "    blob {}", printable(blob.key.as_str()));
    }
}

/// What is said, its further lines below.
fn said(to: &mut String, text: &str) {
    for (at, line) in text.split('\n').enumerate() {
        let before = if at > 0 {
            "    "
        } else if line.is_empty() {
            ""
        } else {
            " "
        };
        let _ = writeln!(to, "{before}{}", printable(line));
    }
}

fn json_text(explained: &WindowExplanation, explain: bool) -> Result<String, String> {
    let cannot = |error: serde_json::Error| format!("cannot write JSON: {error}");
    let mut messages = Vec::with_capacity(explained.window.messages.len());
    for message in &explained.window.messages {
        messages.push(seen(message).map_err(cannot)?);
    }
    let mut document = json!({"messages": messages, "size": explained.result});
    if explain {
        document["explanation"] = serde_json::to_value(explained).map_err(cannot)?;
    }
    serde_json::to_string_pretty(&document).map_err(cannot)
}

/// Where the message comes from, and of the message what a model is given.
fn seen(WindowMessage { origin, message }: &WindowMessage) -> serde_json::Result<Value> {
    let mut seen = match origin {
        Origin::Stored(seq) => json!({"origin": "stored", "seq": seq}),
        Origin::Summary(up_to) => json!({"origin": "summary", "up_to": up_to}),
        _ => json!({"origin": "injected"}),
    };
    seen["role"] = serde_json::to_value(message.role)?;
    seen["text"] = Value::from(message.text.as_str());
    if !message.tool_calls.is_empty() {
        seen["tool_calls"] = serde_json::to_value(&message.tool_calls)?;
    }
    if !message.tool_results.is_empty() {
        seen["tool_results"] = serde_json::to_value(&message.tool_results)?;
    }
    if !message.blobs.is_empty() {
        seen["blobs"] = serde_json::to_value(&message.blobs)?;
    }
    Ok(seen)
}
