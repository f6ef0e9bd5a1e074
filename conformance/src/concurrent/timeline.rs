//! Prints a history for people: one line for each call, with its span as a bar.

use super::check::{RecordOf, Refusal, Reply, Shrunk};
use super::subject::Subject;

/// The maximum width of the bars, in characters.
const WIDTH_MAX: usize = 60;

/// Returns the history as text.
pub(crate) fn timeline<S: Subject>(shrunk: &Shrunk<S>) -> String {
    let mut moments: Vec<u64> = shrunk.history.iter().map(|record| record.called).collect();
    moments.extend(shrunk.history.iter().filter_map(|record| record.answered));
    moments.sort_unstable();
    moments.dedup();
    let step = if moments.len() * 2 > WIDTH_MAX { 1 } else { 2 };
    let column = |at: u64| moments.partition_point(|moment| *moment < at) * step;
    let end = moments.len() * step;
    let mut text = format!("at first: {}\n", S::show_state(&shrunk.initial));
    for (index, record) in shrunk.history.iter().enumerate() {
        let (from, to) = (column(record.called), record.answered.map_or(end, column));
        let tip = if record.answered.is_some() { '|' } else { '>' };
        let bar = format!("{}|{}{tip}", " ".repeat(from), "-".repeat(to.saturating_sub(from + 1)));
        let mark = if index == shrunk.at { "  <- no order explains this" } else { "" };
        text.push_str(&format!(
            "client {} handle {} {bar:<width$} {} => {}{mark}\n",
            record.client,
            record.handle,
            S::show_op(&record.op),
            show_reply::<S>(&record.op, &record.reply),
            width = end + 1,
        ));
    }
    text
}

/// Describes every call of the history in order. The cause of a wrong search may be a call that the shrunk
/// history omits.
pub(crate) fn whole<S: Subject>(history: &[RecordOf<S>]) -> String {
    let mut sorted: Vec<&RecordOf<S>> = history.iter().collect();
    sorted.sort_by_key(|record| record.called);
    let start = sorted.first().map_or(0, |record| record.called);
    let mut text = "the whole history:\n".to_owned();
    for record in sorted {
        let end = record.answered.map_or_else(String::new, |at| (at - start).to_string());
        text.push_str(&format!(
            "client {} handle {} {}..{end} {} => {}\n",
            record.client,
            record.handle,
            record.called - start,
            S::show_op(&record.op),
            show_reply::<S>(&record.op, &record.reply),
        ));
    }
    text
}

/// Describes a reply.
pub(crate) fn show_reply<S: Subject>(op: &S::Op, reply: &Reply<S::Answer>) -> String {
    match reply {
        Reply::Answered(answer) => S::show_answer(op, answer),
        Reply::Refused(Refusal::NotFound) => "NotFound".to_owned(),
        Reply::Refused(Refusal::AlreadyExists) => "AlreadyExists".to_owned(),
        Reply::Refused(Refusal::Conflict) => "Conflict".to_owned(),
        Reply::Refused(Refusal::Missing(error) | Refusal::Other(error)) => error.clone(),
        Reply::Unknown => "no answer yet".to_owned(),
    }
}
