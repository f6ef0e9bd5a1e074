//! Checks of each strategy against its own rule, by exhaustive computation.

use super::*;

fn tokens(window: &Window) -> u64 {
    window.messages.iter().map(|message| tokens_of(&Chars, &message.message)).sum()
}

/// Proves: RAVI-6
#[test]
fn sliding_window() {
    for_each_transcript(Property::SlidingWindow, |random, input| {
        let max = 1 + random.below(12);
        let strategy = SlidingWindow::new(max).unwrap();
        let output = keeps_the_rules(&strategy, input)?;
        pairs_are_whole(input, &output)?;
        reads_no_further(&strategy, input, &output)?;
        is_stable(&strategy, &output)?;
        ensure(output.messages.len() <= max, || "too many".to_owned())?;
        // No content of the newest messages is lost.
        let head = if max > 1 { groups::summary_head(&input.messages) } else { 0 };
        let newest = suffix(input, Reach::Messages(max - head));
        let kept: Vec<Origin> = output.messages.iter().map(|message| message.origin).collect();
        for message in newest.messages.iter().filter(|message| !message.message.text.trim().is_empty()) {
            let summary_without_room = matches!(message.origin, Origin::Summary(_)) && head == 0;
            let tool_alone = message.message.role == Role::Tool;
            let stays = kept.contains(&message.origin) || summary_without_room || tool_alone;
            ensure(stays, || "lost a part of the conversation".to_owned())?;
        }
        Ok(())
    });
}

/// Proves: RAVI-7
#[test]
fn tool_result_truncation() {
    for_each_transcript(Property::ToolResultTruncation, |random, input| {
        let max = 1 + random.below(20);
        let strategy = ToolResultTruncation::new(max).unwrap();
        let output = keeps_the_rules(&strategy, input)?;
        is_stable(&strategy, &output)?;
        let results = |window: &Window| -> Vec<ToolResult> {
            window.messages.iter().flat_map(|message| message.message.tool_results.clone()).collect()
        };
        for (given, kept) in results(input).iter().zip(results(&output)) {
            let (before, after) = (given.content.chars().count(), kept.content.chars().count());
            let whole = given.content == kept.content;
            ensure(whole || !given.is_error && before > max, || "cut a short result".to_owned())?;
            let marker = kept.content.rfind('[').map_or(0, |at| kept.content[at..].chars().count());
            let short = kept.is_error || after <= max + marker.max("[99 chars truncated]".len());
            ensure(short, || format!("{after} characters of {before}"))?;
        }
        // The result for a message is the same alone and among others.
        for (message, kept) in input.messages.iter().zip(&output.messages) {
            let alone = Window::new(vec![message.clone()]);
            let same = compact(&strategy, &alone).messages[0] == *kept;
            ensure(same, || "looked beyond the message".to_owned())?;
        }
        Ok(())
    });
}

/// Proves: RAVI-8
#[test]
fn selective_tool_call() {
    for_each_transcript(Property::SelectiveToolCall, |random, input| {
        let max = 1 + random.below(4);
        let strategy = SelectiveToolCall::new(max).unwrap();
        let output = keeps_the_rules(&strategy, input)?;
        pairs_are_whole(input, &output)?;
        is_stable(&strategy, &output)?;
        let calling = |window: &Window| -> Vec<Origin> {
            let calls = window.messages.iter().filter(|message| !message.message.tool_calls.is_empty());
            calls.map(|message| message.origin).collect()
        };
        let paired = Window::new(pair_tool_calls(input.messages.clone()));
        let mut groups = calling(&paired);
        let newest = groups.split_off(groups.len().saturating_sub(max));
        ensure(calling(&output) == newest, || "not the newest groups".to_owned())?;
        let kept: Vec<Origin> = output.messages.iter().map(|message| message.origin).collect();
        let plain = input.messages.iter().filter(|message| {
            message.message.tool_calls.is_empty() && message.message.tool_results.is_empty()
        });
        for message in plain {
            ensure(kept.contains(&message.origin), || "dropped what calls no tool".to_owned())?;
        }
        Ok(())
    });
}

/// Proves: RAVI-10
#[test]
fn truncation() {
    for_each_transcript(Property::Truncation, |random, input| {
        let messages = (!random.one_in(3)).then(|| 1 + random.below(12));
        let chars = (messages.is_none() || random.one_in(2)).then(|| {
            let most = [6, 120][random.below(2)];
            1 + random.below(most)
        });
        let strategy =
            Truncation::try_from(TruncationConfig { max_messages: messages, max_chars: chars }).unwrap();
        let output = keeps_the_rules(&strategy, input)?;
        pairs_are_whole(input, &output)?;
        reads_no_further(&strategy, input, &output)?;
        is_stable(&strategy, &output)?;
        let count = |window: &[WindowMessage]| -> u64 {
            window.iter().map(|message| chars_of(&message.message)).sum()
        };
        let within = |window: &[WindowMessage]| {
            messages.is_none_or(|max| window.len() <= max)
                && chars.is_none_or(|max| count(window) <= u64::try_from(max).unwrap())
        };
        ensure(within(&output.messages), || "over the ceiling".to_owned())?;
        if groups::summary_head(&input.messages) == 0 {
            // The longest run of newest messages under the ceiling, then paired.
            let start = (0..=input.messages.len()).find(|start| within(&input.messages[*start..]));
            let expected = pair_tool_calls(input.messages[start.unwrap()..].to_vec());
            ensure(output.messages == expected, || "not all that fits".to_owned())?;
        }
        Ok(())
    });
}

/// Proves: ALQ-2
#[test]
fn max_tokens() {
    for_each_transcript(Property::MaxTokens, |random, input| {
        let budget = i64::try_from(random.below(200)).unwrap() - 1;
        let conditions = if random.one_in(3) { vec!["tool != sum".to_owned()] } else { Vec::new() };
        let config = MaxTokensConfig { memory_max_tokens: budget, conditions };
        let strategy = MaxTokens::new(&config, Arc::new(Chars)).unwrap();
        let output = keeps_the_rules(&strategy, input)?;
        pairs_are_whole(input, &output)?;
        reads_no_further(&strategy, input, &output)?;
        let Ok(budget) = u64::try_from(budget) else {
            return ensure(output.messages.is_empty(), || "included something".to_owned());
        };
        ensure(tokens(&output) <= budget, || "over the budget".to_owned())?;
        if !config.conditions.is_empty() {
            return Ok(());
        }
        is_stable(&strategy, &output)?;
        if groups::summary_head(&input.messages) == 0 {
            // The longest run of newest messages within the budget that begins with a human turn or at the
            // start of the thread.
            let fits = |start: usize| {
                let newest = Window::new(input.messages[start..].to_vec());
                tokens(&newest) <= budget
            };
            let begins = |start: usize| {
                start == 0
                    || input.messages.get(start).is_none_or(|message| {
                        message.message.role == Role::User && message.message.tool_results.is_empty()
                    })
            };
            let start = (0..=input.messages.len()).find(|start| begins(*start) && fits(*start));
            let expected = pair_tool_calls(input.messages[start.unwrap()..].to_vec());
            ensure(output.messages == expected, || "not all that fits".to_owned())?;
        }
        Ok(())
    });
}

fn any_strategy(random: &mut transcript::Random) -> Arc<dyn CompactionStrategy> {
    match random.below(6) {
        0 => Arc::new(SlidingWindow::new(1 + random.below(20)).unwrap()),
        1 | 2 => Arc::new(ToolResultTruncation::new(1 + random.below(20)).unwrap()),
        3 => Arc::new(SelectiveToolCall::new(1 + random.below(4)).unwrap()),
        4 => Arc::new(Truncation::chars(1 + random.below(200)).unwrap()),
        _ => {
            let memory_max_tokens = i64::try_from(random.below(300)).unwrap();
            let config = MaxTokensConfig { memory_max_tokens, ..MaxTokensConfig::default() };
            Arc::new(MaxTokens::new(&config, Arc::new(Chars)).unwrap())
        }
    }
}

/// Proves: RAVI-5
#[test]
fn pipelines() {
    for_each_transcript(Property::Pipelines, |random, input| {
        let input = Window::new(pair_tool_calls(input.messages.clone()));
        let pipeline: Pipeline = (0..random.below(4)).map(|_| any_strategy(random)).collect();
        let output = keeps_the_rules(&pipeline, &input)?;
        pairs_are_whole(&input, &output)?;
        let mut one_by_one = input.clone();
        for strategy in pipeline.strategies() {
            one_by_one = compact(&**strategy, &one_by_one);
        }
        ensure(output == one_by_one, || "not one after the other".to_owned())?;
        // A reach applies to the input of the first strategy that sets one.
        let (each, rest) = pipeline.strategies().split_at(pipeline.each_len());
        let seen = compact(&Pipeline::from(each.to_vec()), &input);
        let near = suffix(&seen, pipeline.reach());
        ensure(compact(&Pipeline::from(rest.to_vec()), &near) == output, || "not far enough".to_owned())?;
        if let Reach::Messages(_) = pipeline.reach() {
            reads_no_further(&pipeline, &input, &output)?;
        }
        Ok(())
    });
}

/// Proves: RAVI-11
#[test]
fn token_budget_composed() {
    for_each_transcript(Property::TokenBudgetComposed, |random, input| {
        let input = Window::new(pair_tool_calls(input.messages.clone()));
        let budget = 1 + u64::try_from(random.below(300)).unwrap();
        let steps: Pipeline = (0..random.below(4)).map(|_| any_strategy(random)).collect();
        let strategy = TokenBudgetComposed::new(budget, Arc::new(Chars), steps).unwrap();
        let output = keeps_the_rules(&strategy, &input)?;
        pairs_are_whole(&input, &output)?;
        reads_no_further(&strategy, &input, &output)?;
        let mut expected = input.clone();
        for step in strategy.strategies() {
            if tokens(&expected) > budget {
                expected = compact(&**step, &expected);
            }
        }
        ensure(output == expected, || "not only until it fits".to_owned())?;
        let last_resort =
            Pipeline::from(strategy).then(Truncation::chars(usize::try_from(budget).unwrap()).unwrap());
        ensure(tokens(&compact(&last_resort, &input)) <= budget, || "over the budget".to_owned())
    });
}
