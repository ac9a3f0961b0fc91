"What a command prints when nobody can read it, and what a terminal must not obey."
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pandas as pd
import pytest

from gnn_bandits import cli
from gnn_bandits.cli import visible
from gnn_bandits.campaigns import Campaign

ROOT = Path(__file__).parent.parent
IDS = ["a", "é", "=1+1", "\x1b[31mred", "-x", "'=2", "b", "c", "d", "+f"]
CHANGES = {"tell": "tell lab b 2", "ask": "ask lab -n 2", "ask csv": "ask lab --csv",
           "fail": "fail lab b --reason spilled", "exclude": "exclude lab b",
           "include": "include lab d", "drop": "drop lab c", "undo": "undo lab",
           "add": "add lab more.json", "policy": "policy lab ei", "goal": "goal lab 3",
           "new": "new pool.json --out other"}
LOOKS = {"status": "status lab", "model": "status lab --model",
         "predict": "predict lab", "predict csv": "predict lab --csv",
         "policy": "policy lab", "goal": "goal lab", "dry": "ask lab --dry-run", "help": "--help",
         "command": "ask --help"}
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")]


def nets(ids, first=0):
    out = []
    for i, name in enumerate(ids, first):
        g = nx.gnp_random_graph(6, 0.5, seed=i)
        for v in g: g.nodes[v]["x"] = [1., float(g.degree(v)), float((v + i) % 3)]
        out.append(nx.node_link_data(g, edges="edges") | {"id": name})
    return json.dumps(out)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A campaign with a pending, a measured and an excluded candidate"
    home = tmp_path_factory.mktemp("made")
    (home/"pool.json").write_text(nets(IDS))
    (home/"more.json").write_text(nets(["x", "y"], 20))
    assert cli.main(f"campaign new {home}/pool.json --out {home}/lab".split()) == 0
    with Campaign.open(home/"lab") as c:
        c.journal.append("ask", dict(arms=[IDS.index("c")], why=[{}], policy={}, facts={}))
        c.exclude(["d"])
        c.tell(["a", "é"], [1., 5.])
    return home


@pytest.fixture
def lab(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("lab")


def gone():
    "A pipe whose reader has gone"
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


def say(line, stdout, monkeypatch, capsys):
    "Exit code and standard error of a command whose standard output is this"
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", stdout)
        code = cli.main(["campaign", *line.split()])
        if stdout is not None: stdout.close()         # what Python does at its end
    return code, capsys.readouterr().err


STREAMS = {"full": lambda: open("/dev/full", "w"), "gone": gone, "closed": lambda: None,
           "unbuffered": lambda: io.TextIOWrapper(open("/dev/full", "wb", 0), write_through=True)}


def events(): return len(pd.DataFrame(Campaign.open("lab").events))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_recorded_is_no_failure(lab, monkeypatch, capsys, name, stream):
    before = events()
    code, err = say(CHANGES[name], STREAMS[stream](), monkeypatch, capsys)
    assert code == 0, err
    assert events() == before + (name != "new") and (name != "new" or Path("other").is_dir())
    lines = [e for e in err.splitlines() if "could not be printed" in e]
    assert len(lines) == 1 and lines[0].startswith("gnn_bandits: note: ")
    if "ask" not in name: return
    with Campaign.open("lab") as c: asked = [i for i in c.pending["id"] if i != "c"]
    assert all(visible(i) in lines[0].replace("\\\\", "\\") for i in asked) and len(asked)
    assert "gnn_bandits campaign status lab" in lines[0]


@pytest.mark.parametrize("name", LOOKS)
def test_a_reader_that_has_gone_is_no_failure(lab, monkeypatch, capsys, name):
    assert say(LOOKS[name], gone(), monkeypatch, capsys) == (0, "")


@pytest.mark.parametrize("name", LOOKS)
def test_a_full_disk_is_one_line(lab, monkeypatch, capsys, name):
    before = events()
    code, err = say(LOOKS[name], open("/dev/full", "w"), monkeypatch, capsys)
    assert code == 2 and err.count("\n") == 1 and "No space left" in err and events() == before


def test_an_error_that_cannot_be_told_is_still_a_code(lab, monkeypatch, capsys):
    for line, code in (("tell lab b 2", 0), ("tell lab a 1", 0), ("tell lab nobody 2", 2)):
        with monkeypatch.context() as m, open("/dev/full", "w") as full:
            m.setattr(sys, "stderr", full)
            assert cli.main(["campaign", *line.split()]) == code
    with Campaign.open("lab") as c: assert len(c.observations) == 4


def test_a_fit_that_fails_behind_a_goal_does_not_hide_the_goal(lab, monkeypatch, capsys):
    def broken(self, k=1): raise ValueError("no fit today")
    monkeypatch.setattr(Campaign, "best", broken)
    code = cli.main("campaign goal lab 3".split())
    err = capsys.readouterr().err
    assert code == 0 and "the goal is now 3; the answer could not be made: ValueError: no" in err
    assert cli.main("campaign goal lab".split()) == 2                   # nothing was set this time


@pytest.mark.parametrize("line", ["tell lab é 9", "status lab", "status lab --model",
                                  "ask lab -n 6", "undo lab", "predict lab", "exclude lab é"])
def test_characters_that_a_terminal_cannot_show(lab, monkeypatch, capsys, line):
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, "ascii")
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", stream)
        code = cli.main(["campaign", *line.split()])
    text = data.getvalue().decode("ascii")
    assert code == 0 and "could not" not in capsys.readouterr().err
    assert text and ("\\xe9" in text or "é" not in line)


def test_json_and_tables_keep_every_character(lab, monkeypatch, capsys):
    for line in ("predict lab --json", "predict lab --csv"):
        data = io.BytesIO()
        stream = io.TextIOWrapper(data, "ascii")
        with monkeypatch.context() as m:
            m.setattr(sys, "stdout", stream)
            assert cli.main(["campaign", *line.split()]) == 0
        if "json" in line: assert [p["id"] for p in json.loads(data.getvalue())] == IDS
        else: assert "é" in data.getvalue().decode("utf-8")


def test_nothing_of_a_file_reaches_the_terminal_as_a_command(lab, capsys):
    escape, turn = "\x1b]0;title\x07\x1b[2J", "\u202egnp.exe\x9b31m"
    with Campaign.open("lab") as c:
        c.tell(["\x1b[31mred"], [9.], note=escape)
        c.fail(["b"], turn)
    Path("odd.json").write_text(json.dumps([{"nodes": [{"id": escape}], "id": turn}]))
    for line in ("status lab", "status lab --model", "predict lab", "ask lab -n 4", "goal lab 2",
                 "undo lab", "new odd.json --out other", "tell lab \x1b[31mred 1",
                 "exclude lab \x1b[31mred",
                 "tell lab \x1b[31mnobody 1", "new \x1b[1mpool.json --out other", "\x1b[31m"):
        cli.main(["campaign", *line.split()])
        out, err = capsys.readouterr()
        shown = set(out + err) - {"\n"}
        assert shown and all(visible(c) == c for c in shown), (line, out, err)
    assert "\\x1b[31mred" in visible("\x1b[31mred")


def test_a_message_is_never_longer_than_a_paragraph(lab, capsys):
    for line in ("ask lab -n " + "9"*5000, "tell lab b " + "x"*5000, "tell lab " + "y"*5000 + " 1",
                 "undo lab --event " + "9"*400, "predict lab --top " + "9"*400, "z"*5000,
                 "simulate lab --runs " + "9"*400, "report lab -n " + "9"*400):
        assert cli.main(["campaign", *line.split()]) == 2
        out, err = capsys.readouterr()
        assert err.count("\n") == 1 and len(err) < 700 and out == "", line


# formulas, there and back

def test_a_table_to_fill_in_has_no_formulas_and_comes_back(lab, capsys):
    from gnn_bandits.intake import read_cells
    assert cli.main("campaign ask lab -n 10 --csv".split()) == 0
    text = capsys.readouterr().out
    Path("batch.csv").write_text(text)
    asked = read_cells("batch.csv")["id"].tolist()
    risky = [i for i in asked if i[0] in "=+-@"]
    assert not risky and {"'=1+1", "'-x", "'+f", "''=2"} <= set(asked)
    lines = text.splitlines()
    head = lines[0].split(",").index("value")
    table = pd.read_csv("batch.csv", dtype=str, keep_default_na=False)
    table["value"] = [str(k) for k in range(len(table))]
    table.to_csv("batch.csv", index=False)
    assert head == 1 and cli.main("campaign tell lab batch.csv".split()) == 0
    with Campaign.open("lab") as c:
        told = dict(zip(c.observations["id"], c.observations["value"]))
        assert {told["=1+1"], told["-x"], told["+f"], told["'=2"]} == {
            float(asked.index(i)) for i in ("'=1+1", "'-x", "'+f", "''=2")}
        assert "=1+1" in c.ids and "=1+1" in Path("lab/candidates.csv").read_text()


def test_ids_may_also_come_as_they_are(lab, capsys):
    Path("own.csv").write_text("id,value\n=1+1,3\n-x,-3.5\n")
    assert cli.main("campaign tell lab own.csv".split()) == 0
    with Campaign.open("lab") as c:
        assert c.observations["id"].tolist()[-2:] == ["=1+1", "-x"]
        assert c.observations["value"].tolist()[-2:] == [3., -3.5]


def test_a_cell_that_could_be_two_candidates_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("pool.json").write_text(nets(["=a", "'=a", "b"]))
    assert cli.main("campaign new pool.json --out lab".split()) == 0
    Path("own.csv").write_text("id,value\n'=a,3\n")
    capsys.readouterr()
    assert cli.main("campaign tell lab own.csv".split()) == 2
    assert "can mean the candidate" in capsys.readouterr().err
    assert cli.main(["campaign", "tell", "lab", "'=a", "3"]) == 0       # typed, it means itself
    with Campaign.open("lab") as c: assert c.observations["id"].tolist() == ["'=a"]


def test_predictions_for_a_spreadsheet(lab, capsys):
    assert cli.main("campaign predict lab --csv".split()) == 0
    cells = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert "'=1+1" in cells and not [c for c in cells if c[0] in "=+-@"]


# real processes: what Python itself does at its end

@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_the_commands_of_the_issue_in_a_shell(lab, more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "GB": f"{sys.executable} -m gnn_bandits"}
    def shell(line):
        p = subprocess.run(["bash", "-c", line], env=env | more, capture_output=True, text=True)
        return p.returncode, p.stderr
    code, err = shell("$GB campaign tell lab b 2 > /dev/full")
    assert code == 0 and "1 recorded" in err and err.count("\n") == 1
    code, err = shell("$GB campaign tell lab b 2.5 | true; exit ${PIPESTATUS[0]}")
    assert code == 0 and "Traceback" not in err and "Exception" not in err
    code, err = shell("PYTHONIOENCODING=ascii LANG=C $GB campaign tell lab é 9")
    assert (code, err) == (0, "")
    with Campaign.open("lab") as c:
        assert c.observations["value"].tolist()[-3:] == [2., 2.5, 9.]
    for line in ("--help", "campaign --help", "campaign ask --help", "--version"):
        assert shell(f"$GB {line} | true; exit ${{PIPESTATUS[0]}}") == (0, "")


def test_exported_tables_have_no_formulas(lab, capsys):
    from gnn_bandits.intake import from_spreadsheet
    with Campaign.open("lab") as c: c.tell(["=1+1"], [-3.5], note="@note")
    assert cli.main("campaign export lab --out tables".split()) == 0
    for path in Path("tables").iterdir():
        cells = pd.read_csv(path, dtype=str, keep_default_na=False)
        text = [v for v in cells.to_numpy().ravel() if v and v[0] in "=+@-"]
        assert all(float(v) < 0 for v in text), (path, text)
    told = pd.read_csv("tables/measurements.csv").iloc[-1]
    assert (told["id"], told["note"], told["value"]) == ("'=1+1", "'@note", -3.5)
    table = pd.read_csv("tables/candidates.csv", dtype=str)
    assert [from_spreadsheet(i) for i in table["id"]] == IDS
