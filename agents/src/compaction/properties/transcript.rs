//! Random transcripts, valid and invalid.

use super::*;

/// The random choices of a transcript.
pub(super) struct Random {
    numbers: larder_kernel::random::Random,
    /// `true` if most texts of the transcript are empty.
    terse: bool,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let seed = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6c61_7264_6572;
        Self { numbers: larder_kernel::random::Random::new(seed), terse: false }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.numbers.below(bound)
    }

    pub(super) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

const PIECES: &[&str] =
    &["a", "word ", "é", "🦀", "漢字", "\u{0}", "\n", "e\u{301}", "[5 chars truncated]", "👩‍👩‍👧"];

fn text(random: &mut Random) -> String {
    let pieces = match random.below(5) {
        1 => 12,
        0 => 0,
        _ if random.terse => 0,
        _ => 3,
    };
    (0..pieces).map(|_| PIECES[random.below(PIECES.len())]).collect()
}

/// Returns an id: sometimes a reused one, sometimes a new one.
fn id(random: &mut Random, fresh: &mut u32) -> String {
    *fresh += 1;
    if random.one_in(4) {
        ["a", "b", "a-2", "", "b:0"][random.below(5)].to_owned()
    } else {
        format!("id-{fresh}")
    }
}

fn call(random: &mut Random, open: &mut Vec<String>, fresh: &mut u32) -> ChatMessage {
    let said = if random.one_in(3) { text(random) } else { String::new() };
    let mut message = ChatMessage::assistant(said);
    for _ in 0..1 + random.below(4) {
        let id = id(random, fresh);
        open.push(id.clone());
        message = message.with_tool_call(ToolCall::new(id, ["find", "sum"][random.below(2)], text(random)));
    }
    message
}

/// Returns results of some of the open calls, and rarely of another call.
fn results(random: &mut Random, open: &mut Vec<String>) -> Vec<ToolResult> {
    let mut results = Vec::new();
    for _ in 0..1 + random.below(3) {
        let id = match open.len() {
            waiting if waiting > 0 && !random.one_in(12) => {
                let place = random.below(waiting);
                if random.one_in(10) { open[place].clone() } else { open.swap_remove(place) }
            }
            // A call that has a result, that comes later, or that is none.
            _ => ["a", "b", "", "id-3", "id-5", "nobody's"][random.below(6)].to_owned(),
        };
        let content = text(random);
        let is_error = random.one_in(5);
        results.push(ToolResult::new(id, content).with_is_error(is_error));
    }
    results
}

fn message(random: &mut Random, open: &mut Vec<String>, fresh: &mut u32) -> ChatMessage {
    let choice = if open.is_empty() { random.below(9) } else { random.below(16) };
    let message = match choice {
        0 | 1 => ChatMessage::user(text(random)),
        2 | 3 => ChatMessage::assistant(text(random)),
        4 => ChatMessage::system(text(random)),
        5..=8 => call(random, open, fresh),
        9 => {
            let mut message = ChatMessage::user(text(random));
            message.tool_results = results(random, open);
            message
        }
        10 => {
            let mut message = call(random, open, fresh);
            message.tool_results = results(random, open);
            message
        }
        _ => ChatMessage::tool(results(random, open)),
    };
    if random.one_in(2) {
        let tokens = u32::try_from(Chars.count_message(&message)).unwrap();
        return message.with_token_count(tokens);
    }
    message
}

pub(super) fn transcript(random: &mut Random) -> Window {
    let (mut open, mut fresh) = (Vec::new(), 0);
    random.terse = random.one_in(4);
    let length = random.below(28);
    let mut messages: Vec<WindowMessage> = (0..length)
        .map(|place| {
            let seq = Seq::new(10 + i64::try_from(place).unwrap());
            let message = Arc::new(message(random, &mut open, &mut fresh));
            WindowMessage::new(Origin::Stored(seq), message)
        })
        .collect();
    if random.one_in(8) {
        messages.insert(0, WindowMessage::summary(Seq::new(9), ChatMessage::system(text(random))));
    }
    Window::new(messages)
}

/// Formats a transcript for a failure message.
pub(super) fn shape(window: &Window) -> Vec<String> {
    let shape = |message: &ChatMessage| {
        let calls: Vec<&str> = message.tool_calls.iter().map(|call| &*call.id).collect();
        let results: Vec<&str> = message.tool_results.iter().map(|result| &*result.call_id).collect();
        format!("{} {:?} calls {calls:?} results {results:?}", message.role.as_str(), message.text)
    };
    window.messages.iter().map(|message| shape(&message.message)).collect()
}
