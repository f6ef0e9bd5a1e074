//! The replies of the scripted model: one for each turn of each task, chosen by the content of the request.
//!
//! The server keeps no state. Equal requests get equal replies from any process, so an interrupted run
//! continues as if it had not been interrupted.

use larder::model::{ScriptedReply, ScriptedRequest};
use serde_json::{Value, json};

/// The dimensions of the scripted embeddings.
pub(crate) const DIMENSIONS: usize = 64;

/// The facts that a summary should preserve: a word to search for, and the sentence for it.
const FACTS: [(&str, &str); 6] = [
    ("weekend in Bergen", "The person plans a weekend in Bergen for two who like the sea."),
    ("Bryggen", "Bryggen is the old wharf; the fish market is next to it."),
    ("Fløyen", "The funicular to Fløyen starts in the middle of the town."),
    ("Fjellskål", "Fjellskål sells the catch of the day at the fish market."),
    ("Hotel Havn", "Hotel Havn is at the wharf and has a room with a view of the sea."),
    ("umbrella", "It rains often; an umbrella is no luxury."),
];

/// Returns the reply to a request.
pub(super) fn reply(request: &ScriptedRequest) -> ScriptedReply {
    if request.path.ends_with("/embeddings") {
        return embeddings(&request.body);
    }
    let first = request.body["messages"][0]["content"].as_str().unwrap_or_default();
    match turn(first) {
        Some((task, turn)) => answer(task, turn),
        None => ScriptedReply::answer(&summary(&request.body)),
    }
}

/// Returns the task and the turn that the instructions name; `None` for a request for a summary.
fn turn(instructions: &str) -> Option<(&str, u64)> {
    let (_, named) = instructions.rsplit_once("Task: ")?;
    let (task, rest) = named.split_once("; turn: ")?;
    Some((task, rest.trim_end_matches('.').parse().ok()?))
}

fn answer(task: &str, turn: u64) -> ScriptedReply {
    match (task, turn) {
        ("plan", 0) => calls(&[
            ("delegate", json!({"id": "harbour", "title": "Find the sights at the harbour of Bergen."})),
            ("delegate", json!({"id": "food", "title": "Find a place for fish in Bergen."})),
        ]),
        ("plan", _) => said("I asked the scout about the harbour and about a place for fish in Bergen."),
        ("harbour", 0) => calls(&[("read_guide", json!({"place": "Bryggen"}))]),
        ("harbour", 1) => calls(&[
            (
                "remember",
                json!({"id": "wharf", "text": "Bryggen is the old wharf of Bergen, houses of wood from the \
                    time of the Hansa."}),
            ),
            (
                "remember",
                json!({"id": "view", "text": "The funicular to Fløyen takes six minutes and gives the best \
                    view of the town and the sea."}),
            ),
            ("relate", json!({"from": "Bryggen", "kind": "next_to", "to": "Fish market"})),
            ("relate", json!({"from": "Bryggen", "kind": "near", "to": "Fløyen funicular"})),
        ]),
        ("harbour", _) => {
            said("See Bryggen first, the old wharf, and then take the funicular to Fløyen for the view.")
        }
        ("food", 0) => calls(&[
            ("neighbors", json!({"place": "Bryggen"})),
            ("read_guide", json!({"place": "Fish market"})),
        ]),
        ("food", 1) => calls(&[
            (
                "remember",
                json!({"id": "fish", "text": "Fjellskål at the fish market serves the catch of the day; book \
                    before noon."}),
            ),
            ("relate", json!({"from": "Fjellskål", "kind": "in", "to": "Fish market"})),
        ]),
        ("food", _) => said("Fjellskål, at the fish market next to Bryggen, serves the catch of the day."),
        ("sleep", 0) => calls(&[
            ("recall", json!({"about": "old wharf houses"})),
            ("find_room", json!({"hotel": "Hotel Haven"})),
        ]),
        ("sleep", 1) => calls(&[("find_room", json!({"hotel": "Hotel Havn"}))]),
        ("sleep", 2) => calls(&[("relate", json!({"from": "Hotel Havn", "kind": "near", "to": "Bryggen"}))]),
        ("sleep", _) => said("Hotel Havn has a room with a view of the sea, near Bryggen."),
        ("write", 0) => calls(&[
            ("neighbors", json!({"place": "Fish market"})),
            ("recall", json!({"about": "view of the town and the sea"})),
        ]),
        ("write", _) => said(
            "Saturday: Bryggen, then fish at Fjellskål. Sunday: the funicular to Fløyen. Sleep at Hotel \
             Havn, and take an umbrella.",
        ),
        _ => said("I have nothing to add."),
    }
}

fn said(text: &str) -> ScriptedReply {
    ScriptedReply::answer(text)
}

fn calls(calls: &[(&str, Value)]) -> ScriptedReply {
    let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    ScriptedReply::message(&message, "tool_calls")
}

/// Returns all facts in the text to summarize, which includes an earlier summary.
fn summary(body: &Value) -> String {
    let text = body["messages"].to_string();
    let facts = FACTS.iter().filter(|(word, _)| text.contains(word));
    facts.map(|(_, fact)| *fact).collect::<Vec<_>>().join(" ")
}

/// Returns embeddings by words: texts that share words are near each other.
fn embeddings(body: &Value) -> ScriptedReply {
    let texts = body["input"].as_array().into_iter().flatten().filter_map(Value::as_str);
    ScriptedReply::embeddings(&texts.map(embedding).collect::<Vec<_>>())
}

fn embedding(text: &str) -> Vec<f32> {
    let mut values = vec![0.01; DIMENSIONS];
    for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| word.len() > 3) {
        let hash = word
            .to_lowercase()
            .bytes()
            .fold(5_381_usize, |hash, byte| hash.wrapping_mul(33).wrapping_add(usize::from(byte)));
        values[hash % DIMENSIONS] += 1.0;
    }
    values
}
