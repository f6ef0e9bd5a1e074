"""The programs of the guide's page, one after the other in one folder, as a reader would run them."""

import re
from pathlib import Path

from responses_server import responses_server, said

HERE = Path(__file__)
PAGES = [HERE.with_name("python.md"), *(folder / "guide/src/python.md" for folder in HERE.parents)]


def test_the_programs_of_the_guide_print_what_they_say(tmp_path, monkeypatch, capsys):
    page = next(page for page in PAGES if page.exists())
    programs = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 9
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names: dict[str, object] = {"__name__": "guide"}
    with responses_server(said("San Francisco"), said("California")) as (url, _):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        for program in programs:
            exec(compile(program, str(page), "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "Hello",
        "Conflict not_applied",
        "summary The user plans a trip to Oslo.",
        "stored Question 8 about the trip to Oslo.",
        "stored Question 9 about the trip to Oslo.",
        "3",
        "2",
        "['history']",
        "{'cities': ['Oslo', 'Basel']}",
        "('users', 'ada') prefs {'theme': 'dark'}",
        "San Francisco",
        "California",
        "True []",
        "Hello",
        "Oslo",
    ]
