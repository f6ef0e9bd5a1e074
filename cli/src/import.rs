//! `larder import`: appends a transcript to a thread.

mod database;
mod encoding;
mod format;
mod source;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use larder::{Registry, Stores};
use larder_kernel::{AppendOptions, Contract, HistoryProvider, IdempotencyKey, check};

use crate::opening::Access;
use crate::output;
use crate::thread::Place;
use format::Format;
use source::{Choice, Source, Survey};

/// Arguments of `larder import`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Transcript with one JSON message per line, a JSON list of messages or conversations, or a SQLite
    /// database of the OpenAI Agents SDK or of LangGraph; `-` reads standard input.
    file: PathBuf,
    /// URL of the backend, such as `sqlite:./larder.db`.
    #[arg(long, value_name = "URL")]
    to: String,
    #[command(flatten)]
    place: Place,
    /// Refuse any other format. Formats without a published definition are experimental.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Conversation to import from a file with several: its number from 1, or its id.
    #[arg(long, value_name = "NUMBER|ID")]
    conversation: Option<String>,
    /// Replace halves of surrogate pairs, which are not characters, with U+FFFD.
    #[arg(long)]
    lossy: bool,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::report(import(registry, args))
}

async fn import(registry: &Registry, args: &Args) -> Result<String, String> {
    let (conversation, lossy) = (args.conversation.clone(), args.lossy);
    let source = Source::open(&args.file, Choice { format: args.format, conversation, lossy })?;
    // Every line is validated before the first write, so a file with an invalid line changes nothing.
    let survey = source.survey()?;
    if survey.messages == 0 {
        return Ok(format!("{} has no messages{}", source.name(), changes(&survey)));
    }
    let stores = args.place.open(registry, &args.to, &[Contract::History], Access::Write).await?;
    let imported = import_into(&stores, args, &source, &survey).await;
    stores.close().await;
    imported
}

async fn import_into(
    stores: &Stores,
    args: &Args,
    source: &Source,
    survey: &Survey,
) -> Result<String, String> {
    let history = stores.history().map_err(|error| error.to_string())?;
    let added = append(history.provider(), args, source, survey).await?;
    let held = history.thread_info(&args.place.thread).await.map_err(|error| error.to_string())?.messages;
    let name = args.place.name();
    let before = survey.messages - added;
    let known = if before > 0 { format!("; {before} were imported earlier") } else { String::new() };
    let changes = changes(survey);
    Ok(format!(
        "imported {added} of {} messages into {name}{known}; the thread has {held}{changes}",
        survey.messages
    ))
}

/// Returns the counts of changes and omissions.
fn changes(survey: &Survey) -> String {
    let report = survey.report;
    let counts = [
        (
            report.paired_results,
            "result without an id was paired with the open call before it",
            "results without an id were paired with the open call before them",
        ),
        (
            report.replaced_surrogates + survey.replaced,
            "half of a surrogate pair was replaced with U+FFFD",
            "halves of surrogate pairs were replaced with U+FFFD",
        ),
        (
            report.log_entries,
            "entry of the log has no message and was skipped",
            "entries of the log have no message and were skipped",
        ),
        (
            report.document_fields,
            "field next to the messages was skipped",
            "fields next to the messages were skipped",
        ),
        (
            report.kept_parts,
            "part has no field in a message and is kept in the metadata",
            "parts have no field in a message and are kept in the metadata",
        ),
        (
            report.skipped_messages,
            "empty message, or message of another branch, was skipped",
            "empty messages, or messages of other branches, were skipped",
        ),
    ];
    let counts = counts.into_iter().filter(|(count, _, _)| *count > 0);
    let said = counts.map(|(count, one, many)| format!("; {count} {}", if count == 1 { one } else { many }));
    said.collect()
}

/// Appends the file in batches and returns the number of new messages. The key of each batch depends on the
/// content of the file and the batch's position, so a repeated import writes nothing twice.
async fn append(
    history: &Arc<dyn HistoryProvider>,
    args: &Args,
    source: &Source,
    survey: &Survey,
) -> Result<u64, String> {
    let thread = &args.place.thread;
    let before = history.thread_info(thread).await.map_err(|error| error.to_string())?.last;
    let bar = progress_bar(survey.messages);
    let (mut done, mut added) = (0, 0);
    let mut batches = source.batches()?;
    for expected in &survey.digests {
        let batch = batches.next()?.filter(|batch| batch.digest == *expected);
        let batch =
            batch.ok_or_else(|| format!("{} changed during the import; run it again", source.name()))?;
        let count = check::size(batch.messages.len());
        // The conversations of one file are different imports.
        let conversation = match survey.report.chosen_conversation {
            0 => String::new(),
            number => format!(":{number}"),
        };
        let key = format!("larder-import-1:{}:{done}{conversation}", survey.digest());
        let key = IdempotencyKey::new(key);
        let options = AppendOptions::default().with_idempotency_key(key.map_err(|error| error.to_string())?);
        let appended = history.append_many(thread, batch.messages, options).await.map_err(|error| {
            let total = survey.messages;
            format!("stopped after {done} of {total} messages: {error} (run it again to continue)")
        })?;
        done += count;
        added += if appended.first > before { count } else { 0 };
        bar.inc(count);
    }
    bar.finish_and_clear();
    Ok(added)
}

/// Returns a progress bar on standard error, which is hidden unless that is a terminal.
fn progress_bar(messages: u64) -> ProgressBar {
    let bar = ProgressBar::new(messages);
    if let Ok(style) = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} messages {elapsed}") {
        bar.set_style(style);
    }
    bar
}
