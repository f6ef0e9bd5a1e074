//! Pipelines over stored threads: what each strategy leaves of a conversation with calls of tools.

use larder_agents::compaction::{SelectiveToolCall, TokenBudgetComposed};

use super::*;

/// Stores six interactions, each of a question, a call, its result and an answer. The results have 501
/// characters, and the fourth is an error.
async fn conversation(history: &CountingHistory) {
    for number in 0..6 {
        let id = format!("c{number}");
        let text = "x".repeat(501);
        let result = if number == 3 { ToolResult::error(&id, text) } else { ToolResult::new(&id, text) };
        let messages = vec![
            ChatMessage::user(format!("q{number} word word")),
            ChatMessage::assistant("").with_tool_call(ToolCall::new(&id, "look", "{}")),
            ChatMessage::tool([result]),
            ChatMessage::assistant(format!("a{number}")),
        ];
        history.append_many(&thread(), messages, AppendOptions::default()).await.unwrap();
    }
}

/// Returns the places of the stored messages in a window, from 1 on.
fn places(window: &Window) -> Vec<i64> {
    let place = |origin: &Origin| match origin {
        Origin::Stored(seq) => Some(seq.get()),
        _ => None,
    };
    window.messages.iter().filter_map(|message| place(&message.origin)).collect()
}

async fn window(config: &ContextConfig, pipeline: impl Into<Pipeline>) -> Window {
    let config = config.clone().with_counter(Arc::new(Words)).with_pipeline(pipeline);
    AgentContext::new(config).unwrap().get_prompt_window(&session()).await.unwrap()
}

fn results(window: &Window) -> Vec<usize> {
    let results = window.messages.iter().flat_map(|message| &message.message.tool_results);
    results.map(|result| result.content.len()).collect()
}

/// Proves: ALQ-2, RAVI-5, RAVI-6, RAVI-7, RAVI-8, RAVI-10, RAVI-11
pub(crate) async fn each_strategy_leaves_its_part_of_a_stored_thread(backend: &Backend) {
    let (history, config) = open(backend).await;
    conversation(&history).await;
    let before = history.all_messages(&thread()).await.unwrap();
    let first = before[0].seq.get();
    let all: Vec<i64> = (first..first + 24).collect();
    assert_eq!(places(&window(&config, Pipeline::new()).await), all);
    assert_eq!(places(&window(&config, SlidingWindow::new(4).unwrap()).await), all[20..]);

    // 501 characters are cut to 500, and an error stays.
    let cut = window(&config, ToolResultTruncation::default()).await;
    let marked = 500 + "[1 chars truncated]".len();
    assert_eq!(results(&cut), [marked, marked, marked, 501, marked, marked]);
    assert!(cut.messages[2].message.tool_results[0].content.ends_with("x[1 chars truncated]"));

    // The first of six groups leaves with its result.
    let selected = places(&window(&config, SelectiveToolCall::default()).await);
    let kept: Vec<i64> =
        all.iter().copied().filter(|place| ![first + 1, first + 2].contains(place)).collect();
    assert_eq!(selected, kept);

    assert_eq!(places(&window(&config, Truncation::messages(5).unwrap()).await), all[19..]);
    assert_eq!(places(&window(&config, Truncation::chars(2).unwrap()).await), all[23..]);

    // A whole interaction has 8 words: 3, a call of 2, a result of 2 and 1 for the answer.
    let tokens: u64 =
        before[..4].iter().map(|stored| larder_agents::tokens::tokens_of(&Words, &stored.message)).sum();
    let budget = usize::try_from(2 * tokens).unwrap();
    assert_eq!(places(&window(&config, max_tokens(budget, Arc::new(Words))).await), all[16..]);
    assert_eq!(places(&window(&config, max_tokens(budget - 1, Arc::new(Words))).await), all[20..]);

    // The second strategy runs only if the window is still over its budget.
    let composed = |budget: u64| {
        let steps =
            Pipeline::new().then(SlidingWindow::new(12).unwrap()).then(SlidingWindow::new(4).unwrap());
        TokenBudgetComposed::new(budget, Arc::new(Words), steps).unwrap()
    };
    assert_eq!(places(&window(&config, composed(6 * tokens)).await), all);
    assert_eq!(places(&window(&config, composed(6 * tokens - 1)).await), all[12..]);
    assert_eq!(places(&window(&config, composed(3 * tokens - 1)).await), all[20..]);

    // The order decides: the calls that leave first make room for older messages.
    let steps = || (SelectiveToolCall::new(1).unwrap(), SlidingWindow::new(8).unwrap());
    let (selective, sliding) = steps();
    let kept = places(&window(&config, Pipeline::new().then(selective).then(sliding)).await);
    assert_eq!(kept, [12, 15, 16, 19, 20, 21, 22, 23].map(|place| all[place]));
    let (selective, sliding) = steps();
    let kept = places(&window(&config, Pipeline::new().then(sliding).then(selective)).await);
    assert_eq!(kept, [16, 19, 20, 21, 22, 23].map(|place| all[place]));
    assert_eq!(history.all_messages(&thread()).await.unwrap(), before, "the transcript stays as it is");
}
