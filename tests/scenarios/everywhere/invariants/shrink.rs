//! The search for a smaller combination that fails too.

use larder_agents::context::memory::LimitedWindow;
use larder_agents::session::{Ephemeral, HintOrder, Persistence, SessionProfile};

use super::case::{Case, End, Interaction, Reply, Turn};

/// Replaces a failing case by a smaller one that fails, until none of the smaller ones fails or `runs` cases
/// were tried. Returns it with its failure. `run` returns the failure of a case.
pub(super) async fn shrink(
    mut case: Case,
    mut failure: String,
    mut runs: usize,
    run: impl AsyncFn(&Case) -> Option<String>,
) -> (Case, String) {
    'smaller: loop {
        for smaller in smaller(&case) {
            if runs == 0 {
                return (case, failure);
            }
            runs -= 1;
            if let Some(again) = run(&smaller).await {
                (case, failure) = (smaller, again);
                continue 'smaller;
            }
        }
        return (case, failure);
    }
}

/// Returns the cases with one part less, the largest parts first.
fn smaller(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        found.push(smaller);
    };
    for kept in halves(&case.stored) {
        with(&|case| case.stored.clone_from(&kept));
    }
    for kept in one_less(&case.turns) {
        with(&|case| case.turns.clone_from(&kept));
    }
    for kept in one_less(&case.stored) {
        with(&|case| case.stored.clone_from(&kept));
    }
    for kept in one_less(&case.steps) {
        with(&|case| case.steps.clone_from(&kept));
    }
    settings(case, &mut with);
    for (place, step) in case.steps.iter().enumerate() {
        for step in step.smaller() {
            with(&|case| case.steps[place] = step.clone());
        }
    }
    for (place, turn) in case.turns.iter().enumerate() {
        for turn in turns(turn) {
            with(&|case| case.turns[place] = turn.clone());
        }
    }
    for (place, interaction) in case.stored.iter().enumerate() {
        for interaction in interactions(interaction) {
            with(&|case| case.stored[place] = interaction.clone());
        }
    }
    found
}

fn settings(case: &Case, with: &mut impl FnMut(&dyn Fn(&mut Case))) {
    if case.memory.is_some() {
        with(&|case| case.memory = None);
    }
    let read_only = LimitedWindow::new().without_max_bytes().read_only();
    if case.memory.as_ref().is_some_and(|memory| *memory != read_only) {
        with(&|case| case.memory = Some(read_only.clone()));
    }
    if case.summarizer.is_some() {
        with(&|case| case.summarizer = None);
    }
    if case.profile != SessionProfile::Everything {
        with(&|case| case.profile = SessionProfile::Everything);
    }
    if case.hints > 0 {
        with(&|case| case.hints -= 1);
    }
    if case.prompt_words > 0 {
        with(&|case| case.prompt_words = 0);
    }
    if case.configured {
        with(&|case| case.configured = false);
    }
    if case.hint_order != HintOrder::AfterSummary {
        with(&|case| case.hint_order = HintOrder::AfterSummary);
    }
    if case.ttl {
        with(&|case| case.ttl = false);
    }
    if case.ephemeral != Ephemeral::KeepsSession {
        with(&|case| case.ephemeral = Ephemeral::KeepsSession);
    }
}

fn turns(turn: &Turn) -> Vec<Turn> {
    let mut found = Vec::new();
    let mut with = |differs: bool, change: &dyn Fn(&mut Turn)| {
        if differs {
            let mut smaller = turn.clone();
            change(&mut smaller);
            found.push(smaller);
        }
    };
    with(turn.explained, &|turn| turn.explained = false);
    with(turn.forgetful, &|turn| turn.forgetful = false);
    with(turn.shared, &|turn| turn.shared = false);
    with(turn.model_fails, &|turn| turn.model_fails = false);
    with(turn.end != End::Completed, &|turn| turn.end = End::Completed);
    with(turn.persistence != Persistence::Incremental, &|turn| turn.persistence = Persistence::Incremental);
    with(turn.words > 1, &|turn| turn.words /= 2);
    match turn.end {
        End::Dropped(polls) if polls > 0 => with(true, &|turn| turn.end = End::Dropped(polls - 1)),
        End::Retried(polls) if polls > 0 => with(true, &|turn| turn.end = End::Retried(polls - 1)),
        _ => {}
    }
    found
}

fn interactions(interaction: &Interaction) -> Vec<Interaction> {
    let mut found = Vec::new();
    let mut with = |differs: bool, change: &dyn Fn(&mut Interaction)| {
        if differs {
            let mut smaller = interaction.clone();
            change(&mut smaller);
            found.push(smaller);
        }
    };
    with(!interaction.calls.is_empty(), &|interaction| {
        interaction.calls.pop();
    });
    if interaction.calls.iter().any(|call| call.reply != Reply::After) {
        with(true, &|interaction| interaction.calls.iter_mut().for_each(|call| call.reply = Reply::After));
    }
    with(interaction.by_other, &|interaction| interaction.by_other = false);
    with(interaction.question > 0, &|interaction| interaction.question = 0);
    with(interaction.answer > 0, &|interaction| interaction.answer = 0);
    found
}

/// Returns both halves of a list of four or more.
fn halves<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.len() < 4 {
        return Vec::new();
    }
    let (first, second) = items.split_at(items.len() / 2);
    vec![first.to_vec(), second.to_vec()]
}

fn one_less<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    let without = |gone: usize| {
        let mut kept = items.to_vec();
        kept.remove(gone);
        kept
    };
    (0..items.len()).map(without).collect()
}
