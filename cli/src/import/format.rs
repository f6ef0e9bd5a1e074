//! `--format`: the format of the file.

use clap::ValueEnum;
use larder::transcript::TranscriptFormat;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// Recognize the format of each value
    #[default]
    Auto,
    /// Messages of OpenAI's chat interface, as `larder export` writes them
    OpenaiChat,
    /// Items of OpenAI's Responses interface
    OpenaiResponses,
    /// SQLite database with sessions of the OpenAI Agents SDK
    OpenaiAgents,
    /// SQLite database with checkpoints of LangGraph
    Langgraph,
    /// Messages of Anthropic
    Anthropic,
    /// Contents of Gemini
    Gemini,
    /// Log of a coding agent
    AgentLog,
    /// `conversations.json` of a ChatGPT export (experimental)
    Chatgpt,
    /// `conversations.json` of a Claude export (experimental)
    Claude,
    /// Conversations of ShareGPT (experimental)
    Sharegpt,
}

impl Format {
    /// Returns the format that the reader of transcripts must find, if one is chosen.
    pub(super) fn transcript(self) -> Option<TranscriptFormat> {
        match self {
            Self::Auto | Self::OpenaiAgents | Self::Langgraph => None,
            Self::OpenaiChat => Some(TranscriptFormat::OpenAiChat),
            Self::OpenaiResponses => Some(TranscriptFormat::OpenAiResponses),
            Self::Anthropic => Some(TranscriptFormat::Anthropic),
            Self::Gemini => Some(TranscriptFormat::Gemini),
            Self::AgentLog => Some(TranscriptFormat::AgentLog),
            Self::Chatgpt => Some(TranscriptFormat::ChatGpt),
            Self::Claude => Some(TranscriptFormat::Claude),
            Self::Sharegpt => Some(TranscriptFormat::ShareGpt),
        }
    }

    /// Returns `true` if the format is a SQLite database; `None` if both are possible.
    pub(super) fn is_database(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            format => Some(matches!(format, Self::OpenaiAgents | Self::Langgraph)),
        }
    }
}
