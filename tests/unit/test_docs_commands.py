"""What the docs say of commands holds for the commands that there are."""

import importlib
import json
import re
import shlex

import pytest
import tomllib

from benchmarks.__main__ import main
from tests.processes import ROOT

DOCS = ROOT / "docs" / "source"


def test_the_table_of_benchmarks_has_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["no such command"])
    _, _, listed = capsys.readouterr().err.partition("choose from")
    commands = set(re.findall(r"[a-z][a-z-]+", listed))
    text = (DOCS / "benchmarks" / "methods.md").read_text()
    table, _, _ = text.partition("| command | what it does |\n")[2].partition("\n\n")
    rows = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert len(commands) > 15
    assert sorted(rows) == sorted(commands)


def test_an_image_installs_what_there_is():
    text = (DOCS / "how_to" / "docker.md").read_text()
    (dockerfile,) = re.findall(r"```dockerfile\n(.*?)```", text, re.DOTALL)
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    lines = [w for line in dockerfile.splitlines() if (w := shlex.split(line, comments=True))]
    copied = {words[2]: ROOT / words[1] for words in lines if words[:1] == ["COPY"]}
    (installed,) = [words[3:] for words in lines if words[:3] == ["RUN", "pip", "install"]]
    assert project["name"] not in installed  # it is on no index
    (own,) = [copied[name] for name in installed if name in copied]
    assert (own / "pyproject.toml").is_file()
    for words in lines:
        if words[0] == "RUN" and words[1] != "pip":
            assert words[1] in project["scripts"]


def test_files_that_are_named_are_there():
    """But for what a changelog says of earlier versions."""
    rooms = [ROOT, ROOT / "pyg_incremental", ROOT / "tests", ROOT / "docs"]
    pages = [p for p in ROOT.glob("*.md") if p.name != "CHANGELOG.md"]
    named = [
        (page.name, file)
        for page in (*pages, *DOCS.rglob("*.md"), *(ROOT / ".github").rglob("*.md"))
        for file in re.findall(r"`((?:[\w.]+/)+\w+\.py)[:`]", page.read_text())
    ]
    assert len(named) > 30
    assert not [n for n in named if not any((room / n[1]).is_file() for room in rooms)]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda p: p.name)
def test_the_chart_and_its_words_are_of_one_run(page, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pictures = importlib.import_module("pictures")
    measured = pictures.one_change()
    words = ", ".join(f"{name} {pictures.said(value)}" for name, value in measured.items())
    assert f"![Time of one change on a graph of ogbn-arxiv's size: {words}](" in page.read_text()
    options = json.loads(pictures.MEASURED.read_text())["options"]
    command = shlex.join(["--model", *options["model"], "--batch", *map(str, options["batch"])])
    results = (DOCS / "benchmarks" / "results.md").read_text()
    assert f"{command} --peer {' '.join(options['peer'])}" in results
