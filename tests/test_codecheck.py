"The manifest: every table is in it, with the command that makes it and the checksum that it has."
import sys
from pathlib import Path

import pandas as pd
import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not (ROOT/"scripts").exists(), reason="needs the source tree")
sys.path.insert(0, str(ROOT/"scripts"))
try: import codecheck
finally: sys.path.remove(str(ROOT/"scripts"))


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT/"scripts"))           # the registry imports its subjects


def test_checksums_are_those_of_the_files():
    assert not codecheck.differences(), "run: python scripts/codecheck.py"


def test_every_entry_says_command_commit_and_time():
    said = yaml.safe_load(codecheck.MANIFEST.read_text())
    assert said["version"].startswith("https://codecheck.org.uk/spec/config/")
    assert said["paper"]["title"] == "Graph Neural Network Bandits" and said["codechecker"]
    for entry in said["manifest"]:
        name = entry["file"].removeprefix("nbs/results/")
        assert entry["command"] == codecheck.command(name), name
        assert len(entry["commit"]) == 40 and int(entry["commit"], 16)
        assert pd.Timestamp(entry["time"]) <= pd.Timestamp(said["check_time"])


def test_what_changed_is_named(tmp_path, monkeypatch):
    (tmp_path/"a.csv").write_text("x\n1\n")
    (tmp_path/"b.csv").write_text("x\n2\n")
    rows = [dict(file=name, command="make", commit="c"*40, time="2026-01-01T00:00:00+00:00",
                 sha256=codecheck.checksum(tmp_path/name)) for name in ("a.csv", "b.csv")]
    manifest = tmp_path/"codecheck.yml"
    entries = [r | {"file": f"nbs/results/{r['file']}"} for r in rows]
    manifest.write_text(yaml.safe_dump({"manifest": entries}))
    pd.DataFrame(rows).to_csv(tmp_path/"provenance.csv", index=False)
    monkeypatch.setattr(codecheck, "RESULTS", tmp_path)
    monkeypatch.setattr(codecheck, "MANIFEST", manifest)
    monkeypatch.setattr(codecheck, "PROVENANCE", tmp_path/"provenance.csv")
    monkeypatch.setattr(codecheck, "outputs", lambda: {p.name: p for p in tmp_path.glob("*.csv")
                                                       if p.name != "provenance.csv"})
    assert codecheck.differences() == [] and codecheck.main(["--check"]) == 0
    (tmp_path/"a.csv").write_text("x\n3\n")
    (tmp_path/"b.csv").unlink()
    (tmp_path/"c.csv").write_text("x\n")
    found = " ".join(codecheck.differences())
    assert "a.csv has another" in found and "b.csv is not there" in found
    assert "c.csv is not in" in found and codecheck.main(["--check"]) == 1


def test_every_figure_of_runs_has_a_table():
    "What the page on figures says of each figure"
    from gnn_bandits.paper.figures import FIGURES, tables_of
    files = codecheck.outputs()
    computed = {name for name in FIGURES if not tables_of(name)}
    assert computed == {"ntk", "domains", "information_gain"}
    assert all(file in files for name in FIGURES for file in tables_of(name))
