use super::*;
use crate::transcript::TranscriptReader;

const CHAT: &str = r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}"#;
const ITEM: &str = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
const ANTHROPIC: &str =
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}"#;
const GEMINI: &str = r#"{"role":"model","parts":[{"text":"hi"}]}"#;
const LOG: &str = r#"{"type":"user","sessionId":"s","message":{"role":"user","content":"hi"}}"#;
const ENTRY: &str = r#"{"type":"summary","leafUuid":"u"}"#;
const CHATGPT: &str = r#"{"mapping":{"a":{}},"current_node":"a"}"#;
const CLAUDE: &str = r#"{"chat_messages":[]}"#;
const SHAREGPT: &str = r#"{"conversations":[]}"#;

#[test]
fn a_chosen_format_refuses_the_others_with_the_field() {
    let all = [
        (CHAT, OpenAiChat),
        (ITEM, OpenAiResponses),
        (ANTHROPIC, Anthropic),
        (GEMINI, Gemini),
        (LOG, AgentLog),
        (ENTRY, AgentLog),
        (CHATGPT, ChatGpt),
        (CLAUDE, Claude),
        (SHAREGPT, ShareGpt),
    ];
    for (value, its) in all {
        for (format, name, _) in FORMATS {
            let read = TranscriptReader::new().format(format).read(value);
            if format == its {
                read.unwrap_or_else(|error| panic!("{format}: {error}: {value}"));
            } else {
                let error = read.unwrap_err();
                let message = error.message();
                assert!(
                    message.contains(name) && message.contains("so the value is not"),
                    "{message}: {value}"
                );
                assert!(error.field().is_some_and(|field| field != "line"), "{error}: {value}");
            }
        }
        TranscriptReader::new().read(value).unwrap();
    }
    // The messages of a request are checked one by one, without its instructions.
    let request = format!(r#"{{"system":"Be brief.","messages":[{ANTHROPIC}]}}"#);
    assert_eq!(TranscriptReader::new().format(Anthropic).read(&request).unwrap().len(), 2);
    assert!(TranscriptReader::new().format(OpenAiChat).read(&request).is_err());
}

#[test]
fn a_value_of_no_format_names_the_three_closest() {
    for (value, expected) in [
        (
            r#"{"from":"human","value":"secret"}"#,
            "ShareGPT (`conversations` is missing), OpenAI chat (`role` is missing), \
             OpenAI Responses (`type` is missing)",
        ),
        (
            r#"{"title":"secret","mapping":[],"current_node":"a"}"#,
            "ChatGPT (`mapping` is not an object), OpenAI chat (`role` is missing), \
             OpenAI Responses (`type` is missing)",
        ),
        (
            r#"{"uuid":"secret","name":"n","chat_messages":{}}"#,
            "Claude (`chat_messages` is not a list), OpenAI chat (`role` is missing), \
             agent log (`message` is missing)",
        ),
        (
            r#"{"type":"secret","content":"x"}"#,
            "OpenAI Responses (`type` has an unknown value), OpenAI chat (`role` is missing), \
             Anthropic (`role` is missing)",
        ),
        (
            "{}",
            "OpenAI chat (`role` is missing), OpenAI Responses (`type` is missing), \
             Anthropic (`role` is missing)",
        ),
    ] {
        let error = TranscriptReader::new().read(value).unwrap_err();
        assert_eq!(error.message(), format!("no known format; the closest are {expected}"), "{value}");
    }
}

#[test]
fn items_of_remote_tools_are_kept() {
    for kind in ["mcp_list_tools", "mcp_approval_request", "mcp_approval_response"] {
        let item = format!(r#"{{"type":"{kind}","id":"m","name":"f","arguments":"{{}}"}}"#);
        let mut reader = TranscriptReader::new();
        let read = reader.read(&item).unwrap();
        assert_eq!((read.len(), reader.report().kept_parts), (1, 1), "{kind}");
        assert_eq!(crate::transcript::to_lines(&read[0]).unwrap().len(), 1);
    }
}
