"""The programs of the guide's page, one after the other in one folder, as a reader would run them."""

import re
from pathlib import Path

HERE = Path(__file__)
PAGES = [HERE.with_name("python.md"), *(folder / "guide/src/python.md" for folder in HERE.parents)]


def test_the_programs_of_the_guide_print_what_they_say(tmp_path, monkeypatch, capsys):
    page = next(page for page in PAGES if page.exists())
    programs = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    for program in programs:
        exec(compile(program, str(page), "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "Hello",
        "Conflict not_applied",
        "{'cities': ['Oslo', 'Basel']}",
        "('users', 'ada') prefs {'theme': 'dark'}",
    ]
