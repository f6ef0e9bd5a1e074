//! Items of OpenAI's Responses format other than messages.

use larder_kernel::{Error, Result, Role, ToolCall, ToolResult};

use super::{Builder, Draft, Naming, part};
use crate::transcript::PARSE;
use crate::transcript::fields::text;
use crate::transcript::shape::{Owner, Shape};

const TYPE: &str = "type";
const ID: &str = "call_id";

impl Builder<'_> {
    /// Reads an item by its `type`.
    pub(in crate::transcript) fn item(&mut self, item: &mut Draft) -> Result<()> {
        let kind = item.text(TYPE).unwrap_or_default();
        item.keep(TYPE);
        match &*kind {
            "reasoning" => self.reasoning(item),
            "function_call" | "custom_tool_call" => {
                self.call(item, Some(ID), "name", &["arguments", "input"]).map(drop)
            }
            "mcp_call" => self.mcp_call(item),
            _ if kind.ends_with("_call_output") => {
                self.message.role = Role::Tool;
                let at = self.result(item, &[ID], Naming::Id, None)?;
                self.result_output(item, at)
            }
            _ if kind.ends_with("_call") && item.has(ID) => self.hosted_call(item, &kind),
            _ => self.described(item, &kind),
        }
    }

    /// Reads the summary, the text and the encrypted text of a model's reasoning.
    fn reasoning(&mut self, item: &mut Draft) -> Result<()> {
        for name in item.names() {
            let Some(written) = item.take(&name) else { continue };
            let json = written.get();
            match &*name {
                "summary" | "content" if json.starts_with('[') => {
                    let shape = self.parts(&written, Owner::Message, "content")?;
                    item.set(&name, shape);
                }
                "encrypted_content" if json.starts_with('"') => {
                    let shape = self.shown("reasoning", &written, Owner::Message);
                    item.set(&name, shape);
                }
                _ => {}
            }
        }
        if self.said { Ok(()) } else { self.described(item, "reasoning") }
    }

    /// Reads a call that the provider ran, with its result.
    fn mcp_call(&mut self, item: &mut Draft) -> Result<()> {
        let at = self.call(item, Some("id"), "name", &["arguments"])?;
        let answered =
            ["output", "error"].iter().any(|name| item.get(name).is_some_and(|v| v.get() != "null"));
        if answered {
            let id = self.message.tool_calls[at].id.clone();
            self.message.tool_results.push(ToolResult::new(id, ""));
            self.results_said.push(false);
            self.message.tool_results[0].is_error = item.get("error").is_some_and(|v| v.get() != "null");
            self.result_output(item, 0)?;
        }
        Ok(())
    }

    fn result_output(&mut self, item: &mut Draft, at: usize) -> Result<()> {
        for name in ["output", "error"] {
            if let Some(written) = item.take(name).filter(|written| written.get() != "null") {
                let shape = self.content(&written, Owner::Result(at))?;
                item.set(name, shape);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a call of a tool that the provider defines, such as `local_shell_call`.
    fn hosted_call(&mut self, item: &mut Draft, kind: &str) -> Result<()> {
        let name = kind.strip_suffix("_call").unwrap_or(kind);
        let arguments = item.first(&["action", "operation", "input", "arguments"]);
        let at = self.message.tool_calls.len();
        let mut call = ToolCall::new("", name, "{}");
        if let Some((field, written)) = arguments {
            let said = text(&written);
            item.set(field, if said.is_some() { Shape::ArgumentsText(at) } else { Shape::Arguments(at) });
            call.arguments = said.unwrap_or_else(|| written.get().to_owned());
        }
        self.message.tool_calls.push(call);
        self.name_call(at, item, ID);
        Ok(())
    }

    /// Describes an item that a message has no field for.
    fn described(&mut self, item: &mut Draft, kind: &str) -> Result<()> {
        let bytes = item.json_len();
        let Some(written) = item.take(TYPE) else {
            return Err(Error::invalid(PARSE, TYPE, "missing"));
        };
        let bytes = self.piece(Owner::Message, &format!("[{}: {bytes} bytes]", part::printable(kind)));
        self.kept += 1;
        item.set(TYPE, Shape::Shown(Owner::Message, bytes, written));
        Ok(())
    }
}
