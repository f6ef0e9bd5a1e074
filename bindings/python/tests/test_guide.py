"""The programs of the guide's page and of the package's description, each as a reader would run it."""

import re
from importlib import metadata
from pathlib import Path

from responses_server import responses_server, said

HERE = Path(__file__)
PAGES = [HERE.with_name("python.md"), *(folder / "guide/src/python.md" for folder in HERE.parents)]
PAGE = next(page for page in PAGES if page.exists()).read_text()


def programs(text):
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(program):
    """Runs a program alone: it has only the names that it defines."""
    exec(compile(program, "a program of the page", "exec"), {"__name__": "__main__"})


def test_the_programs_of_the_guide_print_what_they_say(tmp_path, monkeypatch, capsys):
    assert len(programs(PAGE)) == 13
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with responses_server(said("San Francisco"), said("California")) as (url, _):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        for program in programs(PAGE):
            run(program)
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
        "Oslo ['trip-1']",
        "{'user:home': 'Oslo'}",
        "Hello",
        "Oslo",
        "Hello",
        "Oslo",
        "Basel",
    ]


def test_the_extras_that_the_guide_names_exist():
    named = set(re.findall(r"larder-store\[([^\]]+)\]", PAGE))
    assert named and named == set(metadata.metadata("larder-store").get_all("Provides-Extra"))


def test_the_program_of_the_description_prints_what_it_says(tmp_path, monkeypatch, capsys):
    [program] = programs(metadata.metadata("larder-store").get_payload())
    monkeypatch.chdir(tmp_path)
    run(program)
    assert capsys.readouterr().out == "Hello\n"
