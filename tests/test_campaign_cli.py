"Campaigns from a shell: every command, every format, and one line for every mistake."
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from gnn_bandits import cli
from gnn_bandits.campaigns import Campaign
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.intake import numbers, read_candidates, read_cells, read_results

ROOT = Path(__file__).parent.parent
PROGRAM = "import sys; from gnn_bandits.cli import main; sys.exit(main())"
NAMES = [f.__name__ for f in cli.CAMPAIGN]
CHANGES = {"ask", "tell", "fail", "undo", "drop", "exclude", "include", "add", "policy", "goal"}
pytestmark = pytest.mark.usefixtures("one_thread")


def program(*argv, cwd, code=PROGRAM, stdin=None):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    p = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, cwd=cwd,
                       env=env, preexec_fn=default)
    return p.returncode, p.stdout, p.stderr


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    "Calls the program in this process, in a folder of its own"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    def call(line, *words):
        try: code = cli.main(["campaign", *line.split(), *map(str, words)])
        except SystemExit as e: code = e.code
        return code, *capsys.readouterr()
    return call


@pytest.fixture
def good(shell):
    "What a command prints, if it is content; JSON is read"
    def call(line, *words):
        code, out, err = shell(line, *words)
        notes = all(e.startswith("gnn_bandits: note: ") for e in err.splitlines())
        assert code == 0 and notes, (line, code, out, err)
        if not line.endswith("--json"): return out
        assert out.count("\n") == 1
        return json.loads(out)
    return call


@pytest.fixture
def bad(shell):
    "The one line with which a command refuses"
    def call(line, *words, says=""):
        code, out, err = shell(line, *words)
        lines = [e for e in err.splitlines() if "note:" not in e]
        assert (code, out, len(lines)) == (2, "", 1), (line, code, out, err)
        assert lines[0].startswith("gnn_bandits: campaign") and says in lines[0], (says, err)
        assert len(lines[0]) < 700
        return lines[0]
    return call


def write(name, text):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def nets(n=12):
    "Small networks whose nodes have a vector"
    out = [nx.gnp_random_graph(6, 0.5, seed=i) for i in range(n)]
    for i, g in enumerate(out):
        nx.set_node_attributes(g, {v: [1., float(g.degree(v)), float((v + i) % 3)] for v in g}, "x")
    return out


def layers(n, seed=0):
    "Small directed networks of layers, with words at nodes and edges"
    rng, out = np.random.default_rng(seed), []
    for _ in range(n):
        g = nx.DiGraph((u, v) for u in range(5) for v in range(u + 1, 5) if rng.random() < 0.5)
        g.add_nodes_from(range(5))
        for v in g: g.nodes[v]["op"] = ["conv", "pool", "skip"][rng.integers(3)]
        for e in g.edges: g.edges[e]["kind"] = ["data", "gate"][rng.integers(2)]
        out.append(g)
    return out


def linked(graphs, ids=None):
    data = [nx.node_link_data(g, edges="edges") for g in graphs]
    return json.dumps([d | {"id": i} for d, i in zip(data, ids)] if ids else data)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A campaign in lab with 12 networks and 4 values, and the files that it was made from"
    home = tmp_path_factory.mktemp("made")
    write(home/"pool.json", linked(nets(), [f"n{i}" for i in range(12)]))
    write(home/"four.csv", "id,value\nn0,1.5\nn1,0.5\nn2,2.5\nn3,2\n")
    lines = f"new {home}/pool.json --out {home}/lab", f"tell {home}/lab {home}/four.csv"
    assert [cli.main(["campaign", *line.split()]) for line in lines] == [0, 0]
    return home


@pytest.fixture
def lab(made, shell, tmp_path):
    "A copy of it in the present folder"
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return "lab"


def events(folder="lab"):
    with Campaign.open(folder) as c: return len(c.events)


# a whole campaign

def test_molecules_from_file_to_tables(good, tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCN", "CCC", "c1ccccc1", "CC(=O)O", "CCCl", "C#N", "C=C", "CO", "CCOC"]
    rows = "\n".join(f"m{i};{s};{'' if i > 2 else -i}" for i, s in enumerate(smiles))
    write("pool.csv", "\ufeffname;SMILES;logS\r\n".encode() + rows.replace("\n", "\r\n").encode())
    said = good("new pool.csv --smiles SMILES --id name --value logS --minimize --out lab --json")
    assert (said["candidates"], said["measurements"], said["maximize"]) == (10, 3, False)
    asked = good("ask lab -n 3 --json")
    ids = [s["id"] for s in asked["suggestions"]]
    assert len(set(ids)) == 3 and not {"m0", "m1", "m2"} & set(ids) and asked["pending"] == 3
    assert all(s["SMILES"] == smiles[int(s["id"][1:])] for s in asked["suggestions"])
    sheet = pd.DataFrame({"id": ids, "value": [1., 2., 3.], "noise": [0.1, None, 0.2],
                          "note": ["", "plate 2", ""], "other": 7})
    sheet.to_csv("batch.csv", index=False)
    said = good("tell lab batch.csv --json")
    assert (said["told"], said["measurements"], said["pending"]) == (3, 6, 0)
    assert said["best_measured"] == {"id": "m2", "value": -2.}
    status = good("status lab --model --json")
    assert status["states"] == {"measured": 6, "available": 4} and status["best"][0]["id"] == "m2"
    assert isinstance(status["model"]["sentences"], list) and status["goal"] is None
    csv = good("ask lab -n 2 --csv").splitlines()
    assert csv[0].startswith("id,SMILES,value,mean,low,high") and len(csv) == 3
    write("more.csv", "name,SMILES\nx1,CCS\nx2,CCBr\n")
    assert good("add lab more.csv --json")["ids"] == ["x1", "x2"]
    predicted = good("predict lab x1 m3 --json")
    assert [p["id"] for p in predicted] == ["x1", "m3"]
    outside = good("predict lab --file more.csv --json")
    assert outside[0]["mean"] == pytest.approx(predicted[0]["mean"])
    assert len(good("simulate lab --runs 2 --json")) == 6
    written = good("export lab --out tables --json")["written"]
    assert len(pd.read_csv("tables/measurements.csv")) == 6 and len(written) == 3
    with Campaign.open("lab") as c:
        assert c.table["logS"].tolist()[:3] == ["0", "-1", "-2"]     # as in the file
        assert c.observations["noise"][3] == 0.1


def test_reopened_asks_the_same(good, lab):
    one, two = good("ask lab -n 3 --dry-run --json"), good("ask lab -n 3 --json")
    ids = [[s["id"] for s in answer["suggestions"]] for answer in (one, two)]
    assert ids[0] == ids[1] and (one["pending"], two["pending"]) == (0, 3)
    with Campaign.open("lab") as c: assert c.pending["id"].tolist() == ids[1]


@pytest.mark.parametrize("policy", ["ucb", "ei", "ts", "pe", "po", "random"])
def test_every_policy(good, policy):
    GraphDomain.from_networkx(nets()).save("pool.npz")
    good(f"new --npz pool.npz --policy {policy} --seed 3 --noise-std 0.1 --out lab")
    write("r.csv", "id,value\n" + "".join(f"{i},{i % 5}\n" for i in range(6)))
    good("tell lab r.csv")
    asked = good("ask lab -n 2 --json")
    assert len({s["id"] for s in asked["suggestions"]}) == 2
    with Campaign.open("lab") as c:
        assert (c.policy.name, c.settings["seed"], c.settings["noise_std"]) == (policy, 3, 0.1)


def test_formats_agree(good, tmp_path):
    "The same graphs from node-link JSON, GraphML in one file, a folder of them, and .npz"
    graphs = nets()
    expected = GraphDomain.from_networkx(graphs)
    expected.save("pool.npz")
    write("pool.json", linked(graphs))
    Path("folder").mkdir()
    flat = []
    for i, g in enumerate(graphs):
        h = g.copy()
        for v in h:
            x = h.nodes[v].pop("x")
            h.nodes[v].update({f"x{k}": e for k, e in enumerate(x)})
        flat.append(h)
        nx.write_graphml(h, f"folder/net{i:02}.graphml")
    nx.readwrite.graphml.GraphMLWriter(graph=flat[0])
    writer = nx.readwrite.graphml.GraphMLWriter()
    for h in flat: writer.add_graph_element(h)
    with open("all.graphml", "wb") as f: writer.dump(f)
    sources = ["pool.json", "--json pool.json", "--graphs all.graphml", "--graphs folder",
               "--npz pool.npz", "pool.npz", "folder"]
    for k, source in enumerate(sources):
        good(f"new {source} --out lab{k}")
        with Campaign.open(f"lab{k}") as c:
            np.testing.assert_allclose(c.domain.nodes, expected.nodes)
    with Campaign.open("lab3") as c: assert c.ids[:2] == ["net00", "net01"]


def test_json_is_a_switch_or_a_file(good, bad, lab):
    assert good("new --graphs pool.json --out b --json")["candidates"] == 12
    assert good("new pool.json --out c --json")["candidates"] == 12
    assert "12 candidates" in good("new --json pool.json --out d")
    bad("new pool.json --json pool.json --out e", says="got pool.json and pool.json")
    bad("new --out e", says="expected one file of candidates, got none")
    bad("new pool.json", says="--out")
    assert not Path("e").exists()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "serve"])    # which does not end
def test_json_everywhere_and_nothing_else(good, lab, name):
    write("more.json", linked(nets(14)[12:], ["a", "b"]))
    lines = {"new": "new pool.json --out other", "ask": "ask lab -n 2", "tell": "tell lab n7 -1e-3",
             "fail": "fail lab n5 --reason spilled", "drop": "drop lab --all", "undo": "undo lab",
             "exclude": "exclude lab n8", "include": "include lab n9", "add": "add lab more.json",
             "policy": "policy lab ei --beta 2", "goal": "goal lab 3", "export": "export lab",
             "predict": "predict lab --top 3", "simulate": "simulate lab --runs 2 --policy ei",
             "report": "report lab", "status": "status lab", "best": "best lab"}
    good("exclude lab n9"), good("ask lab"), good("tell lab n11 1.25")
    if name == "report": pytest.importorskip("gnn_bandits.reports")
    before = events()
    assert good(lines[name] + " --json") is not None
    assert events() == before + (name in CHANGES)


def test_help_is_complete(shell):
    code, out, err = shell("--help")
    assert code == 0 and all(f"  {n} " in out for n in NAMES) and shell("")[1] == out
    for name in NAMES:
        code, out, err = shell(f"{name} --help")
        assert code == 0 and err == ""
        assert f"gnn_bandits campaign {name}" in out.split("examples:")[1]
        assert "--json" in out


def test_help_needs_no_torch(tmp_path):
    code = ("import sys; from gnn_bandits.cli import main\n"
            "for argv in (['campaign', '--help'], ['campaign'], ['campaign', 'ask', '--help']):\n"
            "    try: main(argv)\n"
            "    except SystemExit: pass\n"
            "assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)")
    assert program(cwd=tmp_path, code=code)[0] == 0


# what is typed

def test_values_below_zero_and_names_with_dashes(good, bad, lab):
    for text, value in (("-3", -3.), ("-1e-5", -1e-5), ("-.5", -.5), ("+2", 2.), ("1E3", 1000.)):
        good("tell lab n6", text)
        with Campaign.open("lab") as c: assert c.observations["value"].iloc[-1] == value
    good("tell lab n6 1 --noise 0.5 --note", "-1e-5")
    with Campaign.open("lab") as c:
        assert tuple(c.observations[["noise", "note"]].iloc[-1]) == (0.5, "-1e-5")
    for text in ("3,5", "nan", "inf", "high", "", "1_000"):
        assert "n6" in bad("tell lab n6", text)
    bad("tell lab"), bad("tell lab a b c"), bad("tell lab n6 1 --noise -1"), bad("tell lab n99 1")
    assert "decimal comma; write 3.5" in bad("tell lab n6 3,5")


def test_a_note_when_something_is_told_twice(shell, lab):
    code, out, err = shell("tell lab four.csv")
    assert code == 0 and "4 of these values were told before" in err and "campaign undo lab" in err
    assert shell("undo lab")[0] == 0
    with Campaign.open("lab") as c: assert len(c.observations) == 4


RESULTS = {
    "missing value column": ("id,val\nn5,1\n", "no column 'value'; its columns are 'id', 'val'"),
    "missing id column": ("name,value\nn5,1\n", "no column 'id'"),
    "empty": ("", "is empty"), "blank": (" \n\n", "is empty"), "header": ("id,value\n", "no rows"),
    "unknown id": ("id,value\nn5,1\nn77,2\n", "no candidate with the id 'n77'"),
    "nan": ("id,value\nn5,NaN\n", "row 1, column 'value': 'n5' has no value"),
    "blank value": ("id,value\nn5,1\nn6,\n", "row 2, column 'value': 'n6' has no value"),
    "text": ("id,value\nn5,1\nn6,high\n", "row 2, column 'value': expected a finite number"),
    "infinite": ("id,value\nn5,inf\n", "row 1, column 'value'"),
    "decimal comma": ("id;value\nn5;1,5\n", "write 1.5"),
    "thousands": ('id,value\nn5,"1,234.5"\n', "row 1, column 'value'"),
    "negative noise": ("id,value,noise\nn5,1,-1\n", "noise"),
    "text noise": ("id,value,noise\nn5,1,x\n", "row 1, column 'noise'"),
    "no id": ("id,value\n,1\n", "row 1, column 'id': the id is missing"),
    "more cells": ("id,value\nn5,1,2\n", "row 1 has 3 cells"),
    "more cells later": ("id,value\nn5,1\nn6,1,2\n", "line 3"),
    "latin-1": ("id,value\nn5,1\ncaf\xe9,2\n".encode("latin-1"), "no UTF-8 text"),
    "utf-16": ("id,value\nn5,1\n".encode("utf-16"), "UTF-16"),
    "binary": (b"id\x00\x00", "zero bytes"),
    "two columns": ("id,value,value\nn5,1,2\n", "more than one column 'value'")}


@pytest.mark.parametrize("case", RESULTS)
def test_bad_results_change_nothing(bad, lab, case):
    content, says = RESULTS[case]
    before = {p.name: p.read_bytes() for p in Path("lab").iterdir()}
    bad("tell lab", write("r.csv", content), says=says)
    assert {p.name: p.read_bytes() for p in Path("lab").iterdir()} == before


CANDIDATES = {
    "no column named": ("p.csv", "a,SMILES\n1,CC\n", "", "its columns are a, SMILES"),
    "missing column": ("p.csv", "a,b\n1,2\n", "--smiles SMILES", "no column 'SMILES'; its columns"),
    "missing ids": ("p.csv", "SMILES\nCC\n", "--smiles SMILES --id nr", "no column 'nr'"),
    "missing value": ("p.csv", "SMILES\nCC\n", "--smiles SMILES --value y", "no column 'y'"),
    "bad value": ("p.csv", "SMILES,y\nCC,1\nCO,a\n", "--smiles SMILES --value y",
                  "row 2, column 'y'"),
    "empty": ("p.csv", "", "--smiles SMILES", "is empty"),
    "no rows": ("p.csv", "SMILES\n", "--smiles SMILES", "no rows"),
    "duplicate ids": ("p.csv", "id,SMILES\na,CC\nb,CO\na,CN\nb,CS\n", "--smiles SMILES",
                      "2 ids stand there more than once: 'a' (2 times), 'b' (2 times)"),
    "empty id": ("p.csv", "id,SMILES\na,CC\n,CO\n", "--smiles SMILES", "row 2, column 'id'"),
    "no molecule": ("p.csv", "SMILES\nCC\nxyz\n", "--smiles SMILES",
                    "row 2, column 'SMILES': 'xyz'"),
    "no molecule at all": ("p.csv", "SMILES\nx\nxyz\n", "--smiles SMILES --invalid skip", "2 of 2"),
    "unknown ending": ("p.ods", "PK", "", "expected a file that ends in .csv"),
    "no npz": ("p.npz", "PK", "", "cannot read a graph domain"),
    "no json": ("p.json", "{", "", "no JSON"),
    "another json": ("p.json", "3", "", "a list of node-link graphs"),
    "deep json": ("p.json", "["*100_000, "", "no JSON"),
    "no nodes": ("p.json", linked([nx.Graph()]), "", "graph '0' cannot be used: it has no nodes"),
    "words alone": ("p.json", linked(layers(2)), "", "no numbers at its nodes to learn from"),
    "no graphml": ("p.graphml", "<a", "", "no GraphML"),
    "no graph": ("p.graphml", "<graphml/>", "", "holds no graph")}


@pytest.mark.parametrize("case", CANDIDATES)
def test_bad_candidates_leave_nothing(bad, case):
    if case.startswith("no molecule") or "value" in case: pytest.importorskip("rdkit")
    name, content, options, says = CANDIDATES[case]
    write(name, content)
    bad(f"new {name} {options} --out lab", says=says)
    assert [p.name for p in Path().iterdir()] == [name]


def test_bad_graphs(bad):
    def refuses(graphs, says, ids=None, options=""):
        write("p.json", linked(graphs, ids))
        bad(f"new p.json --out lab {options}", says=says)
    one, two, other = nets(3)
    del one.nodes[3]["x"]
    refuses([two, one], "graph '1' cannot be used: its node 3 has no attribute 'x'")
    refuses([two, one], "graph 'b' cannot be used", ids=["a", "b"])
    two.nodes[0]["x"] = [1., 2.]
    refuses([two], "lengths [2, 3]")
    for v in two: two.nodes[v]["x"] = [1., 2.]
    refuses([other, two], "lengths [2, 3]")
    refuses([other, other], "1 ids stand there more than once: 'a' (2 times)", ids=["a", "a"])
    refuses([two, other.to_directed()], "graph 1 is directed and graph 0 is not")
    refuses([other], "no attribute 'mass'", options="--features mass")
    for v in other: other.nodes[v]["x"] = [1., float("nan")]
    refuses([other], "NaN")


def test_directed_graphs_with_edge_words(good, bad):
    write("p.json", linked(layers(12)))
    good("new p.json --features op --edge-type kind --out lab")
    with Campaign.open("lab") as c:
        assert c.domain.edges.tells == 3 and c.domain.notes["edge_words"] == ["data", "gate"]
    good("ask lab -n 4")
    with Campaign.open("lab") as c: pending = c.pending["id"].tolist()
    for k, i in enumerate(pending): good(f"tell lab {i} {k}")
    good("ask lab -n 2")
    write("more.json", linked(layers(3, 1), ["x", "y", "z"]))
    good("add lab more.json")
    with Campaign.open("lab") as c: assert len(c) == 15 and c.domain.edges.tells == 3
    flat = [g.to_undirected() for g in layers(2, 2)]
    write("flat.json", linked(flat, ["u", "v"]))
    bad("add lab flat.json", says="some of these graphs are directed and others are not")
    new = layers(1, 3)
    new[0].nodes[0]["op"] = "dense"
    write("new.json", linked(new, ["w"]))
    bad("add lab new.json", says="'op' to be one of conv, pool, skip, got 'dense'")
    with Campaign.open("lab") as c: assert len(c) == 15


@pytest.mark.parametrize("line", [
    "new none.csv --smiles S --out lab2", "new pool.json --out lab", "new pool.json --out four.csv",
    "new pool.json --out x --policy best", "new pool.json --out x --noise-std 0",
    "new pool.json --out x --seed -1", "new pool.json --out x --invalid no",
    "ask lab -n 0", "ask lab -n many", "ask none", "ask four.csv", "status none",
    "undo lab --event 99", "undo lab --event x", "drop lab", "drop lab n1", "drop lab --all",
    "fail lab", "fail lab n99",
    "exclude lab", "include lab n1", "add lab none.json", "add lab pool.json", "add lab four.csv",
    "policy lab best", "policy lab ei ts", "policy lab ucb --beta -1", "policy lab --repeats often",
    "goal lab x", "goal lab 1 2", "goal lab nan", "predict lab n99",
    "predict lab n1 --file pool.json", "predict lab --level 2", "predict lab --file four.csv",
    "simulate lab", "simulate lab --runs 1",
    "simulate lab --policy best", "report none", "export none", "ask lab --colour red", "nope",
    "ask"])
def test_mistakes_are_one_line(bad, lab, line):
    before = events()
    bad(line)
    assert events() == before
    assert {p.name for p in Path().iterdir()} == {"pool.json", "four.csv", "lab"}


def test_a_million_rows_of_rubbish(bad, shell):
    "Refused after a look at a sample, or at the header: read in full it would take minutes"
    pytest.importorskip("rdkit")
    Path("rubbish.csv").write_text("SMILES,id\n" + "lorem ipsum,1\n"*1_000_000)
    seen = []
    import gnn_bandits.molecules as room
    honest = room.parse_smiles
    def counted(text):
        seen.append(text)
        return honest(text)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(room, "parse_smiles", counted)
        for extra in ("", " --invalid skip"):
            bad("new rubbish.csv --smiles SMILES --out lab" + extra, says="200 of 200 rows")
    assert len(seen) == 400
    bad("new rubbish.csv --smiles smiles --out lab", says="no column 'smiles'")
    Path("rubbish.csv").write_bytes(np.random.default_rng(0).bytes(10**6))
    bad("new rubbish.csv --smiles SMILES --out lab", says="no UTF-8 text")


def test_a_pool_of_one(good):
    write("p.json", linked(nets(1), ["only"]))
    good("new p.json --out lab")
    assert good("ask lab -n 5 --json")["suggestions"][0]["id"] == "only"
    good("tell lab only 3.5")
    assert good("status lab --model --json")["best"][0]["id"] == "only"
    good("predict lab")


def test_skipped_rows_are_told(shell, good):
    graphs = nets(4)
    graphs[1] = nx.Graph()
    write("p.json", linked(graphs, list("abcd")))
    code, out, err = shell("new p.json --invalid skip --out lab")
    assert code == 0 and "3 candidates" in out and "row 2: it has no nodes" in err
    with Campaign.open("lab") as c: assert c.ids == ["a", "c", "d"]


def test_graph_attributes_become_columns(good):
    graphs = nets(4)
    for i, g in enumerate(graphs):
        g.graph.update(name=f"net {i}", price=i, known=[2.5, None][i > 1])
    write("p.json", linked(graphs))
    assert good("new p.json --id name --value known --out lab --json")["measurements"] == 2
    with Campaign.open("lab") as c:
        assert c.ids[1] == "net 1" and c.table["price"].tolist() == [0, 1, 2, 3]


def test_classes_stay_the_same_when_candidates_are_added(good, bad):
    def pool(name, elements):
        g = nx.path_graph(len(elements))
        nx.set_node_attributes(g, {v: {"element": e, "q": v} for v, e in enumerate(elements)})
        nx.write_graphml(g, name)
    Path("pool").mkdir()
    pool("pool/a.graphml", "CON"), pool("pool/b.graphml", "CCO")
    pool("more.graphml", "OO"), pool("odd.graphml", "CBr")
    good("new pool --features element,q --out lab")
    good("add lab more.graphml")
    with Campaign.open("lab") as c:
        direct = read_candidates("more.graphml", features=["element", "q"], like=c.domain)
        assert c.domain.d == 4 and c.ids == ["a", "b", "2"]
        np.testing.assert_allclose(c.domain.nodes[-2:], direct.domain.nodes)
    bad("add lab odd.graphml", says="'element' to be one of C, N, O, got 'B'")


# molecules that are hard to read

def test_unusual_molecules_are_candidates(shell):
    Chem = pytest.importorskip("rdkit.Chem")
    peptide = Chem.MolToSmiles(Chem.MolFromSequence("ACDEFGHIKLMNPQRSTVWY"*6))
    odd = ["[Fe]", "C[Mg]Br", "[NH3]->[Cu]", "[Fe+2].[Cl-].[Cl-]", "[CH3]", "[O][O]", "[CH2]",
           "[Na+]", "*CC", "CCO", peptide]
    write("p.csv", "SMILES\n" + "\n".join(odd) + "\n")
    code, out, err = shell("new p.csv --smiles SMILES --out lab")
    assert (code, err) == (0, "") and "11 candidates in lab" in out
    with Campaign.open("lab") as c:
        assert c.domain.sizes.max() > 900 and c.table["SMILES"].tolist() == odd
    code, out, err = shell("ask lab -n 11 --csv")
    assert code == 0 and all(f"{s}," in out for s in odd)


def test_ten_thousand_duplicates_are_one_line(shell):
    pytest.importorskip("rdkit")
    write("p.csv", "SMILES\n" + "CCO\nOCC\n"*5000 + "CN\n")
    code, out, err = shell("new p.csv --smiles SMILES --out lab")
    assert code == 0 and "10001 candidates in lab" in out
    assert err == ("gnn_bandits: note: 9999 of 10001 rows hold the molecule of an earlier row and "
                   "are kept, such as row 2, which is the molecule of row 1.\n")
    with Campaign.open("lab") as c: assert len(c) == 10_001 and len(set(c.ask(5))) == 5


UNREADABLE = {"ring": ("SMILES\nCCO\nC1CC\nCN\n", "'C1CC' is no molecule"),
              "valence": ("SMILES\nCCO\nC(C)(C)(C)(C)C\nCN\n", "greater than permitted"),
              "aromatic": ("SMILES\nCCO\nc1cccc1\nCN\n", "kekulize"),
              "name": ("SMILES\nCCO\nCCN ethylamine\nCN\n", "without a name"),
              "empty": ("SMILES,n\nCCO,1\n,2\nCN,3\n", "'' is no molecule (empty)"),
              "blanks": ("SMILES,n\nCCO,1\n  ,2\nCN,3\n", "no molecule (empty)"),
              "blank line": ("SMILES\nCCO\n\nCN\n", "'' is no molecule (empty)")}


@pytest.mark.parametrize("case", UNREADABLE)
def test_molecules_that_cannot_be_read(bad, shell, case):
    pytest.importorskip("rdkit")
    content, says = UNREADABLE[case]
    write("p.csv", content)
    line = bad("new p.csv --smiles SMILES --out lab", says=says)
    assert "p.csv: row 2, column 'SMILES'" in line and "--invalid skip" in line
    assert [p.name for p in Path().iterdir()] == ["p.csv"]
    code, out, err = shell("new p.csv --smiles SMILES --invalid skip --out lab")
    assert code == 0 and "2 candidates in lab" in out
    assert err.startswith("gnn_bandits: note: 1 row was left out; row 2: ") and err.count("\n") == 1
    with Campaign.open("lab") as c: assert c.table["SMILES"].tolist() == ["CCO", "CN"]


def test_a_column_that_could_name_candidates_is_pointed_out(shell):
    pytest.importorskip("rdkit")
    def note(content, options=""):
        write("p.csv", content)
        code, out, err = shell(f"new p.csv --smiles SMILES --out lab {options}")
        assert code == 0 and err.count("\n") <= 1, err
        shutil.rmtree("lab")
        return err
    named = "price,name,SMILES\n1,a,CCO\n2,b,CN\n"
    assert "the column 'name', begin again with --id 'name'" in note(named)
    assert note(named, "--id name") == note(named.replace("name", "id")) == ""
    assert note(named.replace("b", "a")) == note(named.replace("b", "")) == ""     # no names
    assert note("y,SMILES\n1.5,CCO\n-2,CN\n") == note("SMILES\nCCO\nCN\n") == ""


def test_what_a_person_sees_at_the_start(good, bad):
    write("p.json", linked(nets(), [f"n{i}" for i in range(12)]))
    good("new p.json --out lab")
    assert "last events" not in good("status lab")
    asked = good("ask lab -n 2").splitlines()
    assert asked[0].split() == ["id", "why"] and "far from the others" in asked[1]
    good("tell lab n3 1.5"), good("undo lab")
    said = good("status lab")
    assert "time (UTC)" in said and "undone" in said
    pending = good("status lab --json")["pending"]
    assert len(pending) == 2 and pending[0]["time"][10] == "T" and "+00:00" in pending[0]["time"]
    assert bad("ask lib") == "gnn_bandits: campaign ask: there is no folder lib"


# pipes and hops

@pytest.fixture
def pipe(monkeypatch):
    def put(content):
        data = content if isinstance(content, bytes) else content.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return put


def test_results_through_a_pipe(good, lab, pipe):
    pipe("id;value;note\nn5;1.5;a\nn6;-2;\n")
    said = good("tell lab - --noise 0.5 --json")
    assert said["told"] == 2 and said["measurements"] == 6
    with Campaign.open("lab") as c:
        last = c.observations.iloc[-2:]
        assert last["id"].tolist() == ["n5", "n6"] and last["value"].tolist() == [1.5, -2.]
        assert last["noise"].tolist() == [0.5]*2 and last["note"].iloc[0] == "a"
    pipe("nr,y\nn7,3\n")
    good("tell lab - --id nr --value y")


@pytest.mark.parametrize("case", RESULTS)
def test_bad_results_through_a_pipe_change_nothing(bad, lab, pipe, case):
    content, says = RESULTS[case]
    before = {p.name: p.read_bytes() for p in Path("lab").iterdir()}
    pipe(content)
    line = bad("tell lab -", says=says)
    assert ".csv" not in line and ("standard input" in line) == (case not in ("unknown id",
                                                                              "negative noise"))
    assert {p.name: p.read_bytes() for p in Path("lab").iterdir()} == before


def test_ask_and_tell_in_one_pipe(good, lab, monkeypatch):
    "While tell waits for its table, the program that writes the table may ask the same campaign"
    class Buffer:
        def read(self):
            with Campaign.open("lab") as c: asked = [c.ids[a] for a in c.ask(3)]
            return "".join(["id,value\n", *(f"{i},1.5\n" for i in asked)]).encode()
    class Pipe:
        buffer = Buffer()
        def isatty(self): return False
    monkeypatch.setattr(sys, "stdin", Pipe())
    said = good("tell lab - --json")
    assert said["told"] == 3 and said["pending"] == 0


def test_hops(good, bad):
    pytest.importorskip("rdkit")
    write("p.csv", "SMILES\nCCO\nCCN\nCCCC\nc1ccccc1\nCC(=O)O\n")
    write("p.json", linked(nets()))
    for pool in ("p.csv --smiles SMILES", "p.json"):
        for text, hops in (("", 1), ("--hops 0", 0), ("--hops 2", 2), ("--hops 0,1", (0, 1))):
            good(f"new {pool} {text} --out lab")
            with Campaign.open("lab") as c:
                assert (tuple(c.domain.hops) if hops == (0, 1) else c.domain.hops) == hops
            if text == "--hops 0,1":
                good("ask lab -n 2"), good("tell lab 1 2.5"), good("tell lab 0 1"), good("ask lab")
            shutil.rmtree("lab")
    for text in ("-1", "1.5", "x", "0;1", "1,1"):
        bad(f"new p.json --out lab --hops {text}", says="hops")
    GraphDomain.from_networkx(nets(), "x").save("p.npz")
    bad("new p.npz --out lab --hops 2", says="leave out --hops")
    assert not Path("lab").exists()


# tables

def test_separators_and_marks(tmp_path):
    rows = [["id", "value", "note"], ["a b", "1.5", "x, y; z"], ["c", "-2", ""]]
    for sep in ",;\t":
        for mark in ("", "\ufeff"):
            for end in ("\n", "\r\n", "\r"):
                text = mark + end.join(sep.join(f'"{c}"' for c in r) for r in rows) + end
                (tmp_path/"t.csv").write_bytes(text.encode())
                got = read_results(tmp_path/"t.csv")
                assert got["id"].tolist() == ["a b", "c"] and got["value"].tolist() == [1.5, -2.]
                assert got["note"].tolist() == ["x, y; z", ""]


def test_cells_are_text(tmp_path):
    (tmp_path/"t.csv").write_text("id,a\n007,NA\n1e3,\n 8 ,None\n")
    t = read_cells(tmp_path/"t.csv")
    assert t["id"].tolist() == ["007", "1e3", "8 "] and t["a"].tolist() == ["NA", "", "None"]
    assert numbers(t, "a", "t") == [None, None, None]


def test_parquet(tmp_path):
    table = pd.DataFrame({"id": ["a", "b"], "value": [1.5, None], "n": [1, 2]})
    try: table.to_parquet(tmp_path/"t.parquet")
    except ImportError:
        (tmp_path/"t.parquet").write_bytes(b"PAR1")
        with pytest.raises(ImportError, match=r"pip install 'gnn_bandits\[parquet\]'"):
            read_cells(tmp_path/"t.parquet")
        return
    t = read_cells(tmp_path/"t.parquet", ["id"])
    assert t.to_dict("list") == {"id": ["a", "b"], "value": ["1.5", ""], "n": ["1", "2"]}
    with pytest.raises(ValueError, match="no column 'x'"): read_cells(tmp_path/"t.parquet", ["x"])
    (tmp_path/"t.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="no Parquet file"): read_cells(tmp_path/"t.parquet")


def test_tables_fit_the_terminal(good, lab, monkeypatch):
    for width in (30, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        for line in ("ask lab -n 3 --dry-run", "predict lab"):
            assert all(len(t) <= width for t in good(line).splitlines()), (width, line)
    monkeypatch.delenv("COLUMNS")
    assert "…" not in good("ask lab -n 3")


# real processes

def test_a_shell_from_beginning_to_end(tmp_path):
    (tmp_path/"pool.json").write_text(linked(nets(), [f"n{i}" for i in range(12)]))
    code = """
import sys
from gnn_bandits.cli import main
for line in sys.argv[1:]:
    code = main(line.split())
    if code: sys.exit(code)
"""
    lines = ["campaign new pool.json --out lab", "campaign ask lab -n 2",
             "campaign tell lab n3 1.5", "campaign status lab", "campaign tell lab n3 1,5"]
    code, out, err = program(*lines, cwd=tmp_path, code=code)
    assert code == 2 and "12 candidates" in out and "1 recorded" in out, (out, err)
    errors = [e for e in err.splitlines() if "note:" not in e]
    assert errors == ["gnn_bandits: campaign tell: the value of 'n3': '1,5' has a decimal comma; "
                      "write 1.5; what did not work is recorded with fail"]


def test_ctrl_c_is_one_line(tmp_path):
    code = """
import os, signal, sys
class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == "torch": os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
""" + PROGRAM
    (tmp_path/"lab").mkdir()
    assert program("campaign", "ask", "lab", cwd=tmp_path, code=code) == (
        130, "", "gnn_bandits: campaign ask: interrupted\n")
