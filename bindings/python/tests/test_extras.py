"""Modules for runtimes that are not installed."""

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize(
    ("module", "dependency", "extra"),
    [
        ("larder.claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
        ("larder.google_adk", "google.adk.sessions", "google-adk"),
        ("larder.haystack", "haystack", "haystack"),
        ("larder.langchain", "langchain_core", "langchain"),
        ("larder.langgraph", "langgraph.checkpoint.base", "langgraph"),
        ("larder.llama_index", "llama_index.core", "llama-index"),
        ("larder.openai_agents", "agents.memory", "openai-agents"),
        ("larder.pydantic_ai", "pydantic_ai.conversation_store", "pydantic-ai"),
    ],
)
def test_a_missing_runtime_is_named(module, dependency, extra):
    program = f"""
    import sys
    sys.modules["{dependency}"] = None
    try:
        import {module}
    except ImportError as error:
        print(error)
    """
    program = textwrap.dedent(program)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pip install 'larder-store[{extra}]'" in result.stdout
