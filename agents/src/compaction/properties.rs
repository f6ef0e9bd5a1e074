//! Properties of every strategy, over random transcripts.
//!
//! A usual run checks more than 100,000 distinct transcripts. `LARDER_PROPERTY_CASES` sets the number for
//! each property. A failure prints its seed and the command that runs only that seed, with
//! `LARDER_PROPERTY_SEED`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::FutureExt;
use larder_kernel::{
    ChatMessage, CompactionStrategy, Origin, Reach, Role, Seq, ToolCall, ToolResult, Window, WindowMessage,
};

use super::truncation::chars_of;
use super::*;
use crate::tokens::{TokenCounter, tokens_of};

mod strategies;
mod transcript;
mod valid;

pub(crate) use valid::valid_for_providers;

/// A counter with one token per character.
#[derive(Debug)]
pub(crate) struct Chars;

impl TokenCounter for Chars {
    fn name(&self) -> &str {
        "chars"
    }

    fn count(&self, text: &str) -> u64 {
        larder_kernel::check::size(text.chars().count())
    }
}

type Checked = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn compact(strategy: &dyn CompactionStrategy, window: &Window) -> Window {
    strategy.compact(window.clone()).now_or_never().unwrap().unwrap()
}

/// Returns the index in `input` of each message of `output`. Fails if the order differs or a message is new.
fn places(input: &Window, output: &Window) -> Result<Vec<usize>, String> {
    let known: HashMap<Origin, usize> =
        input.messages.iter().enumerate().map(|(place, message)| (message.origin, place)).collect();
    let places: Option<Vec<usize>> =
        output.messages.iter().map(|message| known.get(&message.origin).copied()).collect();
    let places = places.ok_or("a message that was not given")?;
    ensure(places.is_sorted_by(|left, right| left < right), || "another order".to_owned())?;
    Ok(places)
}

/// Checks that a message is unchanged, or has only parts removed or results truncated.
fn only_shortened(given: &Arc<ChatMessage>, kept: &Arc<ChatMessage>) -> Checked {
    if Arc::ptr_eq(given, kept) {
        return Ok(());
    }
    ensure(given != kept, || "copied without need".to_owned())?;
    let mut calls = given.tool_calls.iter();
    ensure(kept.tool_calls.iter().all(|call| calls.any(|given| given == call)), || {
        "another call".to_owned()
    })?;
    let mut results = given.tool_results.iter();
    let same = |given: &ToolResult, kept: &ToolResult| {
        let cut = kept.content.rfind('[').is_some_and(|at| given.content.starts_with(&kept.content[..at]));
        given.call_id == kept.call_id
            && given.is_error == kept.is_error
            && (given.content == kept.content || (cut && !given.is_error))
    };
    let results_kept = kept.tool_results.iter().all(|kept| results.any(|given| same(given, kept)));
    ensure(results_kept, || "another result".to_owned())?;
    let mut rest = ChatMessage::clone(kept);
    rest.tool_calls.clone_from(&given.tool_calls);
    rest.tool_results.clone_from(&given.tool_results);
    rest.token_count = given.token_count;
    ensure(rest == **given, || "more than calls and results changed".to_owned())
}

/// Returns the index of the call of a result, by exhaustive search.
fn call_place(input: &Window, place: usize, id: &str) -> Option<usize> {
    let calls = |message: &WindowMessage| message.message.tool_calls.iter().any(|call| call.id == id);
    (0..=place).rev().find(|place| calls(&input.messages[*place]))
}

fn may_run(input: &Window, place: usize) -> bool {
    (place + 1..input.messages.len()).all(|later| {
        let message = &input.messages[later].message;
        message.tool_calls.is_empty()
            && !message.tool_results.is_empty()
            && (message.role == Role::Tool || message.text.trim().is_empty())
            && message
                .tool_results
                .iter()
                .all(|result| call_place(input, later, &result.call_id) == Some(place))
    })
}

/// Checks that every result has its call, and that every call has the results that `input` has.
fn pairs_are_whole(input: &Window, output: &Window) -> Checked {
    let kept: HashMap<usize, &ChatMessage> = places(input, output)?
        .into_iter()
        .zip(output.messages.iter().map(|message| &*message.message))
        .collect();
    for (place, message) in &kept {
        for result in &message.tool_results {
            let asked = call_place(input, *place, &result.call_id).and_then(|call| kept.get(&call));
            let asked =
                asked.is_some_and(|asked| asked.tool_calls.iter().any(|call| call.id == result.call_id));
            ensure(asked, || format!("result {} at {place} without its call", result.call_id))?;
        }
        for call in &message.tool_calls {
            let mut answered = false;
            for later in *place..input.messages.len() {
                let count = |message: &ChatMessage| {
                    message.tool_results.iter().filter(|result| result.call_id == call.id).count()
                };
                let given = count(&input.messages[later].message);
                if given == 0 || call_place(input, later, &call.id) != Some(*place) {
                    continue;
                }
                answered = true;
                let stays = kept.get(&later).map_or(0, |message| count(message));
                ensure(stays == given, || format!("call {} at {place} without a result", call.id))?;
            }
            ensure(answered || may_run(input, *place), || {
                format!("call {} at {place} does not run", call.id)
            })?;
        }
    }
    Ok(())
}

/// Returns the part of a window that a reach covers, after the summary of the rest.
fn suffix(window: &Window, reach: Reach) -> Window {
    let head = groups::summary_head(&window.messages);
    let (summary, rest) = window.messages.split_at(head);
    let mut measured = 0;
    let until = |limit: u64, measure: &dyn Fn(&ChatMessage) -> u64, measured: &mut u64| {
        let enough = rest.iter().rposition(|message| {
            *measured += measure(&message.message);
            *measured > limit
        });
        enough.unwrap_or(0)
    };
    let start = match reach {
        Reach::Messages(count) => rest.len().saturating_sub(count),
        Reach::Tokens(tokens) => until(tokens, &|message| tokens_of(&Chars, message), &mut measured),
        _ => 0,
    };
    let messages = summary.iter().chain(&rest[start..]).cloned().collect();
    Window::new(messages).with_thread(window.thread.clone())
}

/// Checks the rules that every strategy must follow for any input.
fn keeps_the_rules(strategy: &dyn CompactionStrategy, input: &Window) -> Result<Window, String> {
    let output = compact(strategy, input);
    for (place, kept) in places(input, &output)?.into_iter().zip(&output.messages) {
        only_shortened(&input.messages[place].message, &kept.message)?;
    }
    if !strategy.drops() {
        ensure(output.messages.len() == input.messages.len(), || "dropped a message".to_owned())?;
    }
    ensure(output.thread == input.thread, || "another thread".to_owned())?;
    provider_receives(&output)?;
    Ok(output)
}

/// Checks the window that a provider receives after any strategy. It contains every call with a result, and
/// every text of the conversation.
fn provider_receives(output: &Window) -> Checked {
    let closed = close_tool_calls(&output.messages);
    valid_for_providers(&closed)?;
    ensure(close_tool_calls(&closed) == closed, || "closed twice is not closed once".to_owned())?;
    let said = |messages: &[WindowMessage]| -> Vec<String> {
        let messages = messages.iter().filter(|message| message.message.role != Role::Tool);
        let texts = messages.map(|message| message.message.text.trim().to_owned());
        let mut texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        texts.sort();
        texts
    };
    ensure(said(&output.messages) == said(&closed), || "lost a part of the conversation".to_owned())?;
    let answered = |messages: &[WindowMessage]| {
        let mut answered = 0;
        for (place, message) in messages.iter().enumerate() {
            for call in message.message.tool_calls.iter().map(|call| &call.id).collect::<HashSet<_>>() {
                let repeats =
                    |message: &WindowMessage| message.message.tool_calls.iter().any(|c| c.id == *call);
                let until = messages[place + 1..].iter().position(repeats);
                let until = until.map_or(messages.len(), |until| place + 1 + until);
                let results = messages[place..until].iter().flat_map(|message| &message.message.tool_results);
                let results = results.filter(|result| result.call_id == *call).count();
                let calls = message.message.tool_calls.iter().filter(|known| known.id == *call).count();
                answered += results.min(calls);
            }
        }
        answered
    };
    ensure(answered(&output.messages) == answered(&closed), || "lost a call with its result".to_owned())
}

fn reads_no_further(strategy: &dyn CompactionStrategy, input: &Window, output: &Window) -> Checked {
    let near = suffix(input, strategy.reach());
    ensure(compact(strategy, &near) == *output, || format!("{:?} is not far enough", strategy.reach()))
}

fn is_stable(strategy: &dyn CompactionStrategy, output: &Window) -> Checked {
    ensure(compact(strategy, output) == *output, || "the second time changed more".to_owned())
}

/// The checked properties. Each has its own transcripts.
#[derive(Debug, Clone, Copy)]
enum Property {
    SlidingWindow,
    ToolResultTruncation,
    SelectiveToolCall,
    Truncation,
    MaxTokens,
    Pipelines,
    TokenBudgetComposed,
}

const PROPERTIES: u64 = Property::TokenBudgetComposed as u64 + 1;
/// The number of transcripts per property in a usual run.
const CASES: u64 = 15_000;
/// The documented minimum of a usual run.
const _: () = assert!(PROPERTIES * CASES >= 100_000);
/// The number of seeds reserved for one property. No other property uses them.
const SEEDS: u64 = 1_000_000_000;

fn for_each_transcript(property: Property, check: impl Fn(&mut transcript::Random, &Window) -> Checked) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("LARDER_PROPERTY_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = property as u64 * SEEDS;
            first..first + number("LARDER_PROPERTY_CASES").unwrap_or(CASES)
        }
    };
    for seed in seeds {
        let mut random = transcript::Random::new(seed);
        let window = transcript::transcript(&mut random);
        let before =
            (seed % 16 == 0).then(|| serde_json::to_string(&window.clone().into_messages()).unwrap());
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&mut random, &window)))
            .unwrap_or_else(|_| Err("panicked".to_owned()));
        let checked = checked.and_then(|()| {
            let after =
                before.is_some().then(|| serde_json::to_string(&window.clone().into_messages()).unwrap());
            ensure(before == after, || "the transcript changed".to_owned())
        });
        if let Err(reason) = checked {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            panic!(
                "seed {seed}: {reason}\n{:#?}\nagain: LARDER_PROPERTY_SEED={seed} cargo test -p \
                 larder-agents --lib {test}",
                transcript::shape(&window)
            );
        }
    }
}
