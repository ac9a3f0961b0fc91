"Files that people, spreadsheets and other programs made: read as they are meant, or refused."
import json
import os
import shutil
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from gnn_bandits import cli, core
from gnn_bandits.campaigns import Campaign, CampaignPolicy
from gnn_bandits.core import check_choice, check_file, check_number, pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.graphs import MOST_CLASSES
from gnn_bandits.intake import (PLAIN_NUMBER, for_spreadsheet, from_spreadsheet,
                                meant, read_candidates, read_cells, read_graphml, read_nodelink,
                                read_results, sheet, to_number)

pytestmark = pytest.mark.usefixtures("one_thread")
SPACE = 'xmlns="http://graphml.graphdrawing.org/xmlns"'


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def refuses(capsys, line, says=""):
    "The one line with which a command refuses"
    capsys.readouterr()
    assert cli.main(["campaign", *line.split()]) == 2
    out, err = capsys.readouterr()
    lines = [e for e in err.splitlines() if "note:" not in e]
    assert out == "" and len(lines) == 1 and says in lines[0] and len(err) < 1500, err
    return lines[0]


# what is no file

@pytest.mark.parametrize("name", ["p.npz", "p.csv", "p.json", "p.graphml", "p.parquet", "p.txt"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused_before_it_is_read(home, capsys, name, kind):
    if kind == "pipe": os.mkfifo(name)
    elif kind == "device": Path(name).symlink_to("/dev/zero")
    else: Path(name).mkdir()
    says = f"got the {kind} {name}" if kind != "folder" else ""
    refuses(capsys, f"new {name} --smiles SMILES --out lab", says)
    if name in ("p.csv", "p.txt"):
        with pytest.raises(ValueError, match=f"got the {kind}"): read_results(name)
    if name == "p.npz":
        with pytest.raises(ValueError, match=f"got the {kind}"): GraphDomain.load(name)
        with pytest.raises(ValueError, match=f"got the {kind}"): unpack_arrays(name)


def test_links_to_files_are_files(home):
    write("t.csv", "id,value\na,1\n")
    Path("link.csv").symlink_to("t.csv")
    assert read_results("link.csv")["value"].tolist() == [1.] and check_file("link.csv")
    with pytest.raises(FileNotFoundError): check_file("none")


# memory and time

def labels(n):
    nodes = "".join(f'<node id="{i}"><data key="k">w{i}</data></node>' for i in range(n))
    return (f'<graphml {SPACE}><key id="k" for="node" attr.name="label" attr.type="string"/>'
            f'<graph edgedefault="undirected">{nodes}</graph></graphml>')


def test_a_name_for_every_node_is_no_class(home, capsys):
    write("p.graphml", labels(20_001))
    said = refuses(capsys, "new p.graphml --features label --out lab", "20,001 different values")
    assert "name other attributes" in said and core.peak_mb() < 4000
    write("p.graphml", labels(300))
    found = read_candidates("p.graphml", features="label")
    assert found.domain.d == 300 < MOST_CLASSES
    many = {"nodes": [{"id": i, "x": i} for i in range(5000)], "edges": []}
    write("p.json", json.dumps(many))
    refuses(capsys, "new p.json --out lab", "with a decimal point")


@pytest.mark.parametrize("name, content, options", [
    ("p.csv", "id,SMILES\n" + "a,C\n"*600_000, "--smiles SMILES"),
    ("p.csv", ",".join(f"c{i}" for i in range(16_000)) + ",SMILES\n" + "a\n"*2000,
     "--smiles SMILES"),
    ("p.graphml", labels(40_000), "--features label"),
    ("p.json", json.dumps({"nodes": [{"id": i, "x": 1.} for i in range(100_000)]}), ""),
    ("p.graphml", labels(3000), "--features label")])
def test_memory_is_estimated_before_it_is_taken(home, capsys, monkeypatch, name, content, options):
    write(name, content)
    monkeypatch.setattr(core, "available_bytes", lambda: 2**26)
    refuses(capsys, f"new {name} {options} --out lab", "of memory and")


def test_a_million_columns(home, capsys):
    write("p.csv", "SMILES," + ",".join(map(str, range(10**6))) + "\nC\n")
    refuses(capsys, "new p.csv --smiles SMILES --out lab", "p.csv")
    write("p.csv", "SMILES," + ",".join(map(str, range(10**5))) + "\nC\n")
    refuses(capsys, "new p.csv --smiles SMILES --out lab", "100,001 columns, more than 16,384")


@pytest.mark.parametrize("text, says", [
    ("C"*20_000, "20,000 atoms, more than 5,000"), ("C"*10**6, "not a table"),
    ("C1" + "C"*30_000 + "1", "30,001 atoms"), ("C"*120_000, "120,000 characters")])
def test_a_molecule_may_have_so_many_atoms(home, capsys, text, says):
    "rdkit ends the process when it writes a chain of 20,000 atoms"
    pytest.importorskip("rdkit")
    write("p.csv", f"SMILES\nCCO\n{text}\n")
    refuses(capsys, "new p.csv --smiles SMILES --out lab", says)
    if len(text) < 10**5:
        with pytest.raises(ValueError, match="atoms"): GraphDomain.from_smiles([text])


def test_a_molecule_of_a_thousand_atoms_is_read(home):
    pytest.importorskip("rdkit")
    write("p.csv", "SMILES\nCCO\n" + "C"*1000 + "\n")
    assert read_candidates("p.csv", smiles="SMILES").domain.sizes.tolist() == [3, 1000]


# node-link JSON and GraphML

def linked(**more):
    nodes = [{"id": i, "x": [1., float(i)]} for i in range(3)]
    return {"nodes": nodes, "edges": [{"source": 0, "target": 1}], **more}


BIG = 10**400
GRAPHS = {
    "graph 5": (linked(graph=5), "a dictionary of attributes as 'graph' of graph 0, got 5"),
    "graph list": (linked(graph=[1, 2]), "got [1, 2]"),
    "graph text": (linked(graph="a"), "got 'a'"),
    "id list": (linked(id=[1]), "a text or a number as the id"),
    "id true": (linked(id=True), "a text or a number as the id"),
    "two nodes": (linked(nodes=[{"id": 1, "x": 1.}, {"id": 1, "x": 2.}], edges=[]),
                  "is the id of more than one node"),
    "edge to nowhere": (linked(edges=[{"source": 0, "target": 7}]), "names the node 7"),
    "big weight": (linked(edges=[{"source": 0, "target": 1, "weight": BIG}]), "too large"),
    "big feature": (linked(nodes=[{"id": 0, "x": [BIG, 1]}, {"id": 1, "x": [1, 2]}]),
                    "expected finite numbers"),
    "big and small": (linked(nodes=[{"id": 0, "y": BIG, "z": 1}, {"id": 1, "y": 1, "z": 2}]),
                      "expected finite numbers"),
    "deep list": (linked(graph=json.loads("["*900 + "]"*900)), "nested deeper"),
    "deep feature": (linked(nodes=[{"id": 0, "x": json.loads("["*400 + "]"*400)}]),
                     "nested deeper"),
    "no list": (linked(edges=5), "no node-link graph"), "node 5": (linked(nodes=[5]), "node-link"),
    "huge feature": (linked(nodes=[{"id": 0, "x": [1e300, 1]}, {"id": 1, "x": [1, 2]}], edges=[]),
                     "of at most 1e+100"),
    "words and numbers": (linked(nodes=[{"id": 0, "x": "a"}, {"id": 1, "x": 1}]), "among numbers")}


@pytest.mark.parametrize("case", GRAPHS)
def test_bad_graphs_are_one_line(home, capsys, case):
    content, says = GRAPHS[case]
    write("p.json", json.dumps(content))
    refuses(capsys, "new p.json --out lab", says)
    assert not Path("lab").exists()


@pytest.mark.parametrize("content, says", [
    ('{"nodes": [{"id": 0, "x": ' + "9"*5000 + "}]}", "no JSON"), ("["*10**6, "no JSON"),
    ('{"a":'*10**5, "no JSON"), ("[" + "[],"*50 + "[]]", "graph 0 to be a dictionary")])
def test_odd_json_is_one_line(home, capsys, content, says):
    refuses(capsys, f"new {write('p.json', content)} --out lab", says)


@pytest.mark.parametrize("about", [None, {}, [], [["name", "old"], ["price", 3]], {"list": [1, {}]},
                                   {"big": BIG}])
def test_attributes_of_a_graph_travel(home, about):
    write("p.json", json.dumps(linked(graph=about)))
    found = read_candidates("p.json")
    assert len(found) == 1
    if about == {"big": BIG}: assert found.table["big"].tolist() == [str(BIG)]
    elif isinstance(about, dict) and about: assert found.table["list"].tolist() == ["[1, {}]"]
    elif about: assert found.table.to_dict("list") == {"name": ["old"], "price": [3]}


@pytest.mark.parametrize("head", ['encoding="klingon"', 'encoding="utf-16"', 'version="9"'])
def test_a_graphml_file_that_says_something_odd_about_itself(home, capsys, head):
    write("p.graphml", f'<?xml version="1.0" {head}?><graphml {SPACE}></graphml>')
    refuses(capsys, "new p.graphml --out lab", "no GraphML")


def test_graphml_says_its_own_encoding(home):
    text = ('<?xml version="1.0" encoding="ISO-8859-1"?>' + labels(2)).replace("w0", "é")
    write("p.graphml", text.encode("latin-1"))
    assert read_graphml("p.graphml")[0][1].nodes["0"]["label"] == "é"


@pytest.mark.parametrize("kind", ["string", None])
def test_words_of_digits_are_classes(home, kind):
    words = ["123", "112", "321"]
    said = f'attr.type="{kind}"' if kind else ""
    nodes = "".join(f'<node id="n{w}"><data key="k">{w}</data></node>' for w in words)
    write("p.graphml", f'<graphml {SPACE}><key id="k" for="node" attr.name="z" {said}/>'
                       f'<graph edgedefault="undirected">{nodes}</graph></graphml>')
    write("p.json", json.dumps({"nodes": [{"id": w, "z": w, "x": w} for w in words]}))
    with pytest.warns(UserWarning) if kind is None else pytest.MonkeyPatch.context():
        found = read_candidates("p.graphml", features="z", hops=0)
    for read in (found, read_candidates("p.json", features="z", hops=0),
                 read_candidates("p.json", hops=0)):
        assert read.domain.notes["intake"]["attributes"][0]["classes"] == sorted(words)
        np.testing.assert_array_equal(read.domain.nodes, np.eye(3)[[1, 0, 2]])
    mixed = {"nodes": [{"id": w, "z": w} for w in ("12a", "112", "321")]}
    write("p.json", json.dumps(mixed))
    assert read_candidates("p.json", features="z").domain.d == 3


def test_numbers_of_four_hundred_digits(home, capsys):
    write("p.json", json.dumps([linked(id=f"n{i}") for i in range(4)]))
    assert cli.main("campaign new p.json --out lab".split()) == 0
    big = "9"*400
    for line in (f"ask lab -n {big}0", f"ask lab -n {big*12}", f"tell lab n1 {big}",
                 f"goal lab {big}", f"tell lab n1 1 --noise {big}", f"undo lab --event {big}",
                 f"policy lab ucb --beta {big}", f"policy lab --starts {big}",
                 f"predict lab --top {big}", f"predict lab --level {big}",
                 f"simulate lab --runs {big}",
                 f"new p.json --out x --seed {big*12}", f"new p.json --out x --hops {big}",
                 f"new p.json --out x --noise-std {big}"):
        refuses(capsys, line)
    for bad in (BIG, -BIG, 10**5000):
        with pytest.raises(ValueError, match="finite number"): check_number("x", bad, -np.inf)
        with pytest.raises(ValueError, match="an integer"): check_number("x", bad, whole=True)
        with pytest.raises(ValueError, match="finite rewards"): core.check_rewards([0], bad)
    pair, features = [[0, 1], [1, 0]], [[1., 2.], [2., 1.]]
    with pytest.raises(ValueError, match="fit into a float"):
        GraphDomain.from_arrays([pair], [[[BIG, 1], [1, 2]]])
    graph = nx.from_numpy_array(np.array(pair))
    nx.set_node_attributes(graph, dict(enumerate(features)), "x")
    graph[0][1]["weight"] = BIG
    with pytest.raises(ValueError, match="fit into a float"): GraphDomain.from_networkx(graph)
    write("r.csv", f"id,value,noise\nn1,1,{big}\n")
    refuses(capsys, "tell lab r.csv", "row 1, column 'noise'")


# numbers as numpy has them, and True that is one

def test_numbers_come_back_as_python_has_them():
    assert type(check_number("x", np.float32(.1))) is float
    assert type(check_number("x", np.int64(3), whole=True)) is int
    assert type(check_number("x", 3)) is int and check_number("x", 0.5) == 0.5


def test_noise_as_numpy_has_it(home):
    domain = GraphDomain.erdos_renyi(6, 5, 0.5, 3, np.random.default_rng(0))
    for k, noise in enumerate((np.float32(.1), np.float64(.1), np.int64(1), .1)):
        Campaign.create(f"lab{k}", domain, noise_std=noise).close()
        with Campaign.open(f"lab{k}") as c: assert c.settings["noise_std"] == noise


def test_one_is_true_in_a_policy(home):
    for value in (1, True, np.True_, 1.): assert CampaignPolicy(repeats=value).repeats is True
    for value in (0, False, np.False_): assert CampaignPolicy(repeats=value).repeats is False
    assert check_choice("repeats", 1, (False, True, "noisy")) is True
    domain = GraphDomain.erdos_renyi(6, 5, 0.5, 3, np.random.default_rng(0))
    with Campaign.create("lab", domain) as c:
        c.tell(range(6), np.arange(6.))
        assert len(c.suggest(6, repeats=1)) == len(c.suggest(6, repeats=True)) == 6
        c.set_policy(CampaignPolicy("ei", np.float32(2), np.int64(3), np.True_))
        assert c.policy == CampaignPolicy("ei", 2., 3, True, "diverse")


# tables

TABLES = {
    "plain": "id,value,note\na,1,x\nb,2,\n", "quoted newline": 'id,value,"no\nte"\na,1,x\nb,2,\n',
    "newline first": '"re\nmark",id,value\nx,a,1\ny,b,2\n',
    "newline in a note": 'id,value,note\na,1,"x\ny"\nb,2,\n',
    "return in a note": 'id,value,note\na,1,"x\ry"\nb,2,\n',
    "long header": "id,value," + ",".join(f"column {i}" for i in range(9000)) + "\na,1\nb,2\n",
    "long header, ids last": ";".join(f"column {i}" for i in range(9000)) + ";id;value\n" +
                             ";"*9000 + "a;1\n" + ";"*9000 + "b;2\n",
    "very long name": "x"*70_000 + ",id,value\n,a,1\n,b,2\n",
    "sep=": "sep=;\r\nid;value\r\na;1\r\nb;2\r\n", "SEP=": '"SEP=,"\nid,value\na,1\nb,2\n',
    "two marks": "\ufeff\ufeffid,value\na,1\nb,2\n",
    "blank ends": "id,value,,\na,1,,\nb,2,,\n,,,\n,,,\n",
    "cells behind": "id,value\na,1,,,\nb,2,\n", "carriage returns": "id,value\ra,1\rb,2\r",
    "blank lines": "\n\n \nid,value\n\na,1\n\n\nb,2\n\n",
    "vertical": "\n\x0b\nid,value\na,1\nb,2\n",
    "form feed": "\n\x0c\x1c\nid\tvalue\na\t1\nb\t2\n", "no end": "id,value\na,1\nb,2",
    "separators inside": 'id,value,note\na,1,"x, y; z"\nb,2,\n',
    "short row": "id,value,note\na,1\nb,2\n"}


@pytest.mark.parametrize("case", TABLES)
def test_tables_are_read_as_they_are_meant(home, case):
    found = read_results(write("t.csv", TABLES[case]))
    assert found["id"].tolist() == ["a", "b"] and found["value"].tolist() == [1., 2.]


REFUSED = {
    "a row in a note": ('id,value,note\na,1,"5 inch\nb,2,6" wide\nc,3,\n', "looks like a row"),
    "a row before": ('note,id,value\n"x,a,1\ny",b,2\n', "looks like a row"),
    "rows in an id": ('id,value\n"a,1\nb,2\nc",3\n', "looks like a row"),
    "open quotation": ('id,value,note\na,1,"x\nb,2,\n', "line 2 is not closed"),
    "two notes": ("id,value,note,note\na,1,x,y\n", "more than one column 'note'"),
    "two notes, a blank": ("id,value,note,note \na,1,x,y\n", "more than one column 'note'"),
    "two noises": ("id,value,noise,noise\na,1,1,2\n", "more than one column 'noise'"),
    "two ids": ("id,value, id\na,1,b\n", "more than one column 'id'"),
    "zero byte far down": ("id,value\n" + "a,1\n"*50_000 + "b\0,2\n", "zero bytes"),
    "latin-1 far down": (b"id,value\n" + b"a,1\n"*50_000 + b"\xe9,2\n", "no UTF-8 text"),
    "long cell": ("id,value,note\na,1," + "x"*200_000 + "\n", "not a table: line 2"),
    "only a mark": ("\ufeff", "is empty"), "only marks": ("\ufeff \n\r\n", "is empty"),
    "only separators": (",,\n,,\n", "no column"), "thousands": ('id,value\na,"1,234"\n',
        "write 1234 if the comma separates thousands, and 1.234 if it is a decimal comma"),
    "more cells": ("id,value\na,1\nb,2,3\n", "row 2 has 3 cells, the header has 2 (line 3")}


@pytest.mark.parametrize("case", REFUSED)
def test_tables_that_lose_something_are_refused(home, case):
    content, says = REFUSED[case]
    with pytest.raises(ValueError) as e: read_results(write("t.csv", content))
    assert says in str(e.value) and "t.csv" in str(e.value)


def test_a_table_survives_every_separator_and_line_end(home):
    "Random cells, written by Python's csv module and by pandas, read back to themselves"
    rng, letters = np.random.default_rng(0), list("ab ,;\t\n\r\"'=é|") + ["\r\n", '""', "\u2028"]
    for k in range(200):
        rows = [["".join(rng.choice(letters, rng.integers(6))).strip() or "x" for _ in range(3)]
                for _ in range(int(rng.integers(1, 5)))]
        table = pd.DataFrame(rows, columns=["a", "b", "c"])
        sep = str(rng.choice([",", ";", "\t"]))
        table.to_csv("t.csv", index=False, sep=sep, quoting=1,
                     lineterminator=str(rng.choice(["\n", "\r\n", "\r"])))
        assert read_cells("t.csv").to_numpy().tolist() == rows, (k, rows)


@pytest.mark.parametrize("text, says", [
    ("1,234", "write 1234 if"), ("-1,234", "-1.234 if it is a decimal comma"), ("3,5", "write 3.5"),
    ("0,123", "decimal comma; write 0.123"), ("1,234,567", "thousands; write 1234567"),
    ("1,234.5", "thousands; write 1234.5"), ("1.234,5", "decimal comma; write 1234.5"),
    ("12,34,56", "finite number"), ("9"*400, "finite number"), ("1e400", "finite number"),
    (",", "finite number"), ("1,", "finite number"), ("1,234"*20, "finite number")])
def test_advice_about_commas(text, says):
    with pytest.raises(ValueError) as e: to_number(text)
    assert says in str(e.value) and len(str(e.value)) < 200


def test_the_mark_before_a_formula_goes_both_ways():
    rng, letters = np.random.default_rng(0), list("'=+-@a1.\t\r\n＝")
    texts = ["".join(rng.choice(letters, rng.integers(7))) for _ in range(3000)]
    marked = [for_spreadsheet(t) for t in texts]
    assert [from_spreadsheet(m) for m in marked] == texts
    assert not [m for m in marked if m and m[0] in "=+-@\t\r\n＝" and not PLAIN_NUMBER.fullmatch(m)]
    table = pd.DataFrame({"=id": ["@a", "b"], "x": [-1.5, np.nan], "n": ["-3", "-3.2e-5"]})
    assert sheet(table).astype(object).fillna("").astype(str).to_dict("list") == {
        "'=id": ["'@a", "b"], "x": ["-1.5", ""], "n": ["-3", "-3.2e-5"]}
    assert meant("'=a", {"=a"}) == "=a" and meant("'=a", {"'=a"}) == "'=a"


# saved domains

def saved():
    "Facts and arrays of a small domain with types"
    rng, A, F, T = np.random.default_rng(0), [], [], []
    for i in range(8):
        n = 4 + i % 3
        a = np.triu(rng.random((n, n)) < .6, 1)
        a[0, 1] = True
        t = np.triu(rng.integers(0, 3, (n, n)), 1)
        A.append((a | a.T)*1.), F.append(np.eye(4)[rng.integers(4, size=n)]), T.append(t + t.T)
    GraphDomain.from_arrays(A, F, edge_types=T).save("ok.npz")
    return unpack_arrays("ok.npz")


FACTS = {"notes list": [1], "notes 5": 5, "labels 5": {"labels": 5}, "dropped 5": {"dropped": 5},
         "constant": {"constant": "x"}, "intake": {"intake": [1]},
         "smiles": {"intake": {"smiles": {}}},
         "attributes": {"intake": {"attributes": 5}}, "molecules": {"molecules": 5},
         "names": {"molecules": {"names": 5}}, "too few names": {"molecules": {"names": ["a"]}}}
HOPS = {"hops 5": 5, "hops 0": 0, "hops [0, 1]": [0, 1], "hops 1e9": 10**9, "hops text": "1",
        "hops none": []}
ARRAYS = {
    "nodes nan": lambda a: dict(nodes=np.where(np.arange(len(a["nodes"]))[:, None] == 3, np.nan,
                                               a["nodes"])),
    "nodes not unit": lambda a: dict(nodes=a["nodes"]*2), "nodes text": lambda a: dict(
        nodes=a["nodes"].astype(str)), "nodes few": lambda a: dict(nodes=a["nodes"][1:]),
    "sizes nan": lambda a: dict(sizes=np.where(a["sizes"] == 4, np.nan, a["sizes"])),
    "sizes zero": lambda a: dict(sizes=np.r_[a["sizes"], 0]),
    "sizes below zero": lambda a: dict(sizes=np.r_[a["sizes"], 3, -3]),
    "source real": lambda a: dict(edge_source=a["edge_source"]*1.),
    "source below zero": lambda a: dict(edge_source=a["edge_source"] - 1),
    "target outside": lambda a: dict(edge_target=a["edge_target"] + 10),
    "source wraps": lambda a: dict(edge_source=a["edge_source"].astype(np.int64) + 2**32),
    "offsets real": lambda a: dict(edge_offsets=a["edge_offsets"]*1.),
    "offsets few": lambda a: dict(edge_offsets=a["edge_offsets"][:-1]),
    "types real": lambda a: dict(edge_type=a["edge_type"] + .5),
    "types nan": lambda a: dict(edge_type=a["edge_type"]*np.nan),
    "types huge": lambda a: dict(edge_type=a["edge_type"] + (2**63 - 5)),
    "types complex": lambda a: dict(edge_type=a["edge_type"] + 0j),
    "weights nan": lambda a: dict(edge_weight=a["edge_type"]*np.nan),
    "weights huge": lambda a: dict(edge_weight=a["edge_type"]*0 + 1e308),
    "weights complex": lambda a: dict(edge_weight=a["edge_type"] + 1j),
    "an edge twice": lambda a: {k: np.repeat(a[k], 2) for k in ("edge_source", "edge_target",
                                "edge_type")} | dict(edge_offsets=a["edge_offsets"]*2),
    "unknown": lambda a: dict(edge_colour=a["edge_type"]),
    "raw zero": lambda a: dict(raw=a["raw"]*0), "raw swapped": lambda a: dict(raw=a["raw"][::-1]),
    "raw huge": lambda a: dict(raw=a["raw"]*1e300),
    "raw half zero": lambda a: dict(raw=a["raw"]*(np.arange(len(a["raw"])) > 9)[:, None])}
FINE = {"same": lambda a: {}, "raw scaled": lambda a: dict(raw=a["raw"]*1e90),
        "source long": lambda a: dict(edge_source=a["edge_source"].astype(np.int64)),
        "types short": lambda a: dict(edge_type=a["edge_type"].astype(np.uint8)),
        "sizes short": lambda a: dict(sizes=a["sizes"].astype(np.int16))}


@pytest.mark.parametrize("case", [*FACTS, *HOPS, *ARRAYS])
def test_a_crafted_domain_is_refused_at_the_door(home, capsys, case):
    meta, arrays = saved()
    if case in FACTS: meta |= dict(notes=FACTS[case])
    elif case in HOPS: meta |= dict(hops=HOPS[case])
    else: arrays |= ARRAYS[case](arrays)
    write("p.npz", pack_arrays(meta, **arrays))
    assert "p.npz" in refuses(capsys, "new p.npz --out lab") and not Path("lab").exists()


@pytest.mark.parametrize("case", FINE)
def test_a_domain_that_is_accepted_can_be_asked(home, case):
    meta, arrays = saved()
    write("p.npz", pack_arrays(meta, **arrays | FINE[case](arrays)))
    assert cli.main("campaign new p.npz --out lab".split()) == 0
    with Campaign.open("lab") as c:
        c.tell(range(6), [1., 3., 2., 5., 4., 0.])
        assert c.ask() and len(c.predict()) == 8


def test_facts_that_are_no_dictionary(home):
    with pytest.raises(ValueError, match="no dictionary"): unpack_arrays(pack_arrays([1], x=[1]))


# random damage: every loader reads a file or says ValueError

def loaders():
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {v: [1., float(v)] for v in graph}, "x")
    flat = nx.path_graph(4)
    nx.set_node_attributes(flat, {v: {"z": v, "w": "ab"[v % 2]} for v in flat})
    nx.write_graphml(flat, "p.graphml")
    write("p.json", json.dumps([nx.node_link_data(graph, edges="edges") | {"id": "a"}]))
    write("p.csv", 'id,value,note\na,1.5,"x, y"\nb,-2,\n')
    GraphDomain.from_networkx(graph).save("p.npz")
    return {"p.graphml": read_graphml, "p.json": read_nodelink, "p.csv": read_results,
            "p.npz": GraphDomain.load}


@pytest.mark.parametrize("name", ["p.graphml", "p.json", "p.csv", "p.npz"])
def test_damaged_files_are_read_or_refused(home, name):
    read, rng = loaders()[name], np.random.default_rng(1)
    good, odd = Path(name).read_bytes(), [b"\0", b"\xff", b'"', b"{", b"[", b"9"*400, b"\r", b"<",
                                          b"null", b",", b"-", b"\xef\xbb\xbf", b"NaN", b":", b" "]
    seen = dict(read=0, refused=0)
    for _ in range(400):
        data = good
        for _ in range(int(rng.integers(1, 4))):
            at, cut = int(rng.integers(len(data) + 1)), int(rng.integers(0, 4))
            data = data[:at] + odd[rng.integers(len(odd))] + data[at + cut:]
        try: read(write("bad" + name[1:], data)); seen["read"] += 1
        except ValueError as e: seen["refused"] += 1; assert str(e)
    assert seen["refused"] > 50


def test_damaged_candidates_never_leave_half_a_campaign(home, capsys):
    "Random changes to a JSON file of graphs, through the program"
    loaders()
    rng, data = np.random.default_rng(2), json.loads(Path("p.json").read_text())[0]
    odd = [None, True, 5, -1.5, "x", "123", [], [1], {}, {"a": 1}, BIG, [[1.]], float("inf")]
    for _ in range(150):
        graph = json.loads(json.dumps(data))
        spot = [graph, graph["nodes"][1], graph["edges"][0], graph["graph"]][rng.integers(4)]
        key = str(rng.choice([*spot, "graph", "weight", "id", "x"]))
        spot[key] = odd[rng.integers(len(odd))]
        write("q.json", json.dumps([graph]))
        code = cli.main("campaign new q.json --out lab".split())
        out, err = capsys.readouterr()
        assert code in (0, 2) and Path("lab").exists() == (code == 0), (graph, err)
        if code == 0:
            assert cli.main("campaign ask lab".split()) == 0, (graph, capsys.readouterr())
            shutil.rmtree("lab")
