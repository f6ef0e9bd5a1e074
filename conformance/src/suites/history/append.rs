//! Appends: the stored data, its numbers and its order.

use larder_kernel::limits::{BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX};
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobKey, BlobRef, ChatMessage, Metadata, Role, Seq, Timestamp,
    ToolCall, ToolResult,
};

use super::support::{
    all, append, bodies, bytes, counts, messages, numbered, replace_now, run, say, seqs, texts, thread,
};
use crate::case::{CaseResult, implemented};
use crate::context::Context;
use crate::expect;

/// Returns one message for each way in which messages can differ.
fn varied() -> CaseResult<Vec<ChatMessage>> {
    let call =
        ToolCall::new("call 1", "weather", "{\"city\": \"Oslo\",\r\n \"n\": 1e16, \"n\": -0.0} not JSON");
    let failed = ToolResult::error("call\u{1f980}", "\u{0}\u{1}\u{7f}\u{feff} e\u{301} \u{e9} \u{10ffff}");
    let blob = BlobRef::new(BlobKey::new("reports/Ä b%20.png")?)
        .with_content_type("image/png".to_owned())
        .with_size_bytes(u64::from(u32::MAX) + 1);
    let bare_blob = BlobRef::new(BlobKey::new("x")?);
    let metadata = Metadata::new()
        .with(
            "nested",
            serde_json::json!({"list": [1, 1.5, "1", true, null, {"": ""}], "Case": "é", "case": "e\u{301}"}),
        )
        .with("large", i64::MIN)
        .with("unsigned", u64::MAX)
        .with("tiny", 5e-324)
        .with("precise", 0.1 + 0.2);
    Ok(vec![
        ChatMessage::system("You are terse.").with_token_count(0),
        ChatMessage::user("trailing space \n\n ").with_run(run("run/1")?).with_token_count(u32::MAX),
        ChatMessage::assistant("").with_tool_call(call).with_tool_call(ToolCall::new("2", "n", "")),
        ChatMessage::tool([ToolResult::new("call 1", ""), failed]),
        ChatMessage::user("files").with_blob(blob).with_blob(bare_blob).with_metadata(metadata),
        ChatMessage::assistant("as an agent")
            .with_author(AgentId::new("critic")?, Some(AgentRole::new("Reviewer")?))
            .with_created_at(Timestamp::from_micros(1_234_567)?),
        ChatMessage::assistant("no part").with_author(AgentId::new("Critic")?, None),
        ChatMessage::new(Role::User, "").with_created_at(Timestamp::from_micros(-62_135_596_800_000_001)?),
    ])
}

/// HIST-001, for every field.
pub(super) async fn messages_read_back_equal_in_every_field(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("varied")?, varied()?);
    append(&*stores.a, &thread, written.clone()).await?;
    for store in [&stores.a, &stores.b] {
        let count = written.len();
        expect::equal("page_after", &bodies(&all(&**store, &thread).await?), &written)?;
        expect::equal(
            "get_messages",
            &bodies(&store.get_messages(&thread, 0, count).await?.messages),
            &written,
        )?;
        let tail = implemented(store.tail(&thread, None, count).await)?;
        expect::equal(
            "tail",
            &tail.map_or_else(|| written.clone(), |tail| bodies(&tail.messages)),
            &written,
        )?;
    }
    Ok(())
}

/// HIST-001, for text that differs in ways that databases fold away.
pub(super) async fn text_is_kept_byte_for_byte(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("text")?;
    let written = messages(&[
        "",
        " ",
        "\u{e9}",
        "e\u{301}",
        "a\r\nb\rc\n",
        "\\u0041 \\n \\",
        "'; DROP TABLE x; -- $$ %s {} ?1 :name",
        "\u{feff}bom",
        "\u{d7ff}\u{e000}\u{ffff}\u{1f468}\u{200d}\u{1f469}",
        "null",
        "{\"role\":\"system\"}",
        "1.0",
    ]);
    append(&*stores.a, &thread, written.clone()).await?;
    expect::equal("the messages", &bodies(&all(&*stores.b, &thread).await?), &written)
}

/// HIST-001, for the largest batch: its end is not lost.
pub(super) async fn the_largest_batch_is_stored_completely_and_in_order(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("batch")?, numbered("m", BATCH_MESSAGES_MAX));
    append(&*stores.a, &thread, written.clone()).await?;
    expect::equal("the messages", &bodies(&all(&*stores.b, &thread).await?), &written)
}

/// HIST-002.
pub(super) async fn a_batch_gets_contiguous_numbers_and_returns_first_and_last(
    context: Context,
) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("numbers")?;
    say(&*stores.a, &thread, &["before", "before too"]).await?;
    for (handle, count) in [(&stores.a, 1), (&stores.b, 5), (&stores.a, 300), (&stores.b, 2)] {
        let already = all(&*stores.b, &thread).await?.len();
        let answer = append(&**handle, &thread, numbered("m", count)).await?;
        let stored = all(&*stores.a, &thread).await?;
        let batch = stored.get(already..).unwrap_or_default();
        let contiguous: Vec<i64> = (answer.first.get()..=answer.last.get()).collect();
        expect::equal("the batch's numbers", &seqs(batch), &contiguous)?;
        expect::equal("the batch", &texts(batch), &texts_of(&numbered("m", count)))?;
    }
    Ok(())
}

fn texts_of(messages: &[ChatMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.text.as_str()).collect()
}

/// HIST-003: a batch with an invalid last message stores no other message.
pub(super) async fn a_batch_with_one_invalid_message_stores_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (fresh, used) = (thread("fresh")?, thread("used")?);
    say(&*stores.a, &used, &["kept"]).await?;
    for thread in [&fresh, &used] {
        let mut batch = numbered("m", 20);
        batch.push(ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX + 1)));
        let result = stores.a.append_many(thread, batch, AppendOptions::default()).await;
        expect::invalid("a batch with one message too large", result, "message")?;
    }
    expect::equal("the fresh thread", &all(&*stores.b, &fresh).await?, &Vec::new())?;
    expect::equal("the used thread", &texts(&all(&*stores.b, &used).await?), &vec!["kept"])?;
    expect::equal("the next number", &say(&*stores.b, &used, &["next"]).await?.first, &Seq::new(2))
}

/// HIST-005: across appends, clears, run clears, replacements and forks.
pub(super) async fn numbers_only_increase_across_all_operations(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, other) = (thread("grows")?, thread("source")?);
    say(&*stores.a, &other, &["x", "y"]).await?;
    let mut greatest = say(&*stores.a, &thread, &["a", "b", "c"]).await?.last;
    let mut grown = async |what: &str, store: &dyn larder_kernel::HistoryProvider| {
        let batch = vec![ChatMessage::user("next").with_run(run("r")?), ChatMessage::user("too")];
        let answer = append(store, &thread, batch).await?;
        let holds = answer.first > greatest;
        expect::that(holds, format!("after {what}: a number above {greatest}"), answer)?;
        greatest = answer.last;
        CaseResult::Ok(())
    };
    grown("an append", &*stores.b).await?;
    stores.b.clear_run(&thread, &run("r")?, None).await?;
    grown("the clear of a run", &*stores.a).await?;
    // The newest message is removed, so that a store that counts the existing messages would repeat its
    // number.
    let newest = ChatMessage::user("newest").with_run(run("newest")?);
    let newest = append(&*stores.a, &thread, vec![newest]).await?.last;
    stores.a.clear_run(&thread, &run("newest")?, None).await?;
    grown("the clear of the newest message", &*stores.b).await?;
    expect::that(
        last_of(&all(&*stores.b, &thread).await?) > newest,
        "numbers above the cleared one",
        newest,
    )?;
    let up_to = last_of(&all(&*stores.b, &thread).await?);
    replace_now(&*stores.b, &thread, up_to, &[]).await?;
    grown("an empty replacement of everything", &*stores.a).await?;
    stores.a.clear(&thread, None).await?;
    grown("a clear", &*stores.b).await?;
    stores.b.clear(&thread, None).await?;
    stores.a.fork(&other, &thread, None, None).await?;
    grown("a fork into the cleared thread", &*stores.b).await
}

fn last_of(stored: &[larder_kernel::StoredMessage]) -> Seq {
    stored.last().map_or(Seq::ZERO, |stored| stored.seq)
}

/// HIST-006.
pub(super) async fn the_first_message_of_each_thread_has_number_1(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (session, store) in [("one", &stores.a), ("two", &stores.b), ("three", &stores.a)] {
        let answer = say(&**store, &thread(session)?, &["first", "second"]).await?;
        expect::equal("the answer", &(answer.first.get(), answer.last.get()), &(1, 2))?;
        expect::equal("the numbers", &seqs(&all(&*stores.b, &thread(session)?).await?), &vec![1, 2])?;
    }
    Ok(())
}

/// HIST-006: reads and failed calls use no number.
pub(super) async fn a_thread_that_was_only_read_begins_at_1(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("looked at")?;
    expect::equal("last", &super::support::last(&*stores.a, &thread).await?, &Seq::ZERO)?;
    expect::equal("cleared", &stores.a.clear(&thread, None).await?, &0)?;
    expect::equal("cleared of a run", &stores.b.clear_run(&thread, &run("r")?, None).await?, &0)?;
    let _events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    expect::equal("the first number", &say(&*stores.a, &thread, &["x"]).await?.first, &Seq::new(1))
}

/// HIST-012.
pub(super) async fn order_ignores_created_at(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("clocks")?;
    let micros = [5_000_000, 1, 5_000_000, -7, 4_102_444_800_000_000, 0, 2, 1];
    let mut written = Vec::new();
    for (number, micros) in micros.into_iter().enumerate() {
        let message =
            ChatMessage::user(format!("m{number}")).with_created_at(Timestamp::from_micros(micros)?);
        written.push(message);
    }
    for (number, batch) in written.chunks(3).enumerate() {
        append(&*super::support::either(&stores, number), &thread, batch.to_vec()).await?;
    }
    expect::equal("page_after", &bodies(&all(&*stores.b, &thread).await?), &written)?;
    expect::equal(
        "get_messages",
        &bodies(&stores.b.get_messages(&thread, 0, 100).await?.messages),
        &written,
    )?;
    expect::equal("tail", &bodies(&stores.a.tail(&thread, None, 100).await?.messages), &written)?;
    let newest: Vec<_> = written.iter().skip(6).cloned().collect();
    expect::equal("tail of 2", &bodies(&stores.b.tail(&thread, None, 2).await?.messages), &newest)
}

/// HIST-014: the exact limit of a message is allowed, of text and of metadata.
pub(super) async fn a_message_of_the_maximum_size_is_stored(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("large")?;
    let text = "0123456789abcdéf".repeat(MESSAGE_BYTES_MAX / 17 + 1);
    let cut = (0..=MESSAGE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut large = ChatMessage::user(&text[..cut]);
    large.text.push_str(&"z".repeat(MESSAGE_BYTES_MAX - cut));
    let metadata = Metadata::new().with("k", &text[..cut - 1]);
    let images = ChatMessage::user("").with_metadata(metadata);
    let written = vec![ChatMessage::user("before"), large, images, ChatMessage::user("after")];
    append(&*stores.a, &thread, written.clone()).await?;
    let stored = bodies(&all(&*stores.b, &thread).await?);
    expect::that(stored == written, "the largest message to read back equal", lengths(&stored))?;
    let Some(info) = counts(&*stores.b, &thread).await? else { return Ok(()) };
    expect::equal("bytes", &info.bytes, &bytes(&written)?)
}

fn lengths(messages: &[ChatMessage]) -> Vec<usize> {
    messages.iter().map(|message| message.text.len()).collect()
}

/// HIST-014: the exact limit of a batch is allowed.
pub(super) async fn a_batch_of_the_maximum_size_is_stored(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("large batch")?;
    let written: Vec<_> =
        ["a", "b", "c", "d"].map(|text| ChatMessage::user(text.repeat(MESSAGE_BYTES_MAX))).into();
    append(&*stores.a, &thread, written.clone()).await?;
    let stored = bodies(&all(&*stores.b, &thread).await?);
    expect::that(stored == written, "the largest batch to read back equal", lengths(&stored))
}

/// HIST-014: NUL and every other character of UTF-8.
pub(super) async fn text_arguments_and_results_may_contain_any_character(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("any character")?;
    let every: String =
        (0..=0x3000).chain(0xfe00..=0xffff).chain(0x1_f600..=0x1_f640).filter_map(char::from_u32).collect();
    let written = vec![
        ChatMessage::user("\0"),
        ChatMessage::user("a\0b\0"),
        ChatMessage::user(every.clone()),
        ChatMessage::assistant("\0").with_tool_call(ToolCall::new("c", "t", format!("\0{every}"))),
        ChatMessage::tool([ToolResult::new("c", format!("{every}\0"))]),
    ];
    append(&*stores.a, &thread, written.clone()).await?;
    expect::equal("the messages", &bodies(&all(&*stores.b, &thread).await?), &written)
}
