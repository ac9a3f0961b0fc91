"How a campaign is kept: what was written is read, what is read belongs, nothing is written over."
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import campaigns as room
from gnn_bandits import cli
from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import temporary
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.journal import Journal, insert
from gnn_bandits.logbook import CampaignPolicy, pool_hash, text_hash, told_by_id

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parent.parent
RETURN = 'id,SMILES,note\nA,CCO,"x\ry"\nB,CCN,\nC,CCCl,\nD,c1ccccc1,\n'


IDS = "\n".join(["id", *(f"g{i}" for i in range(12)), ""]).encode()


def graphs(n, seed=0): return GraphDomain.erdos_renyi(n, 5, 0.4, 3, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def pool(): return graphs(12)


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    "Calls `gnn_bandits campaign` in a folder of its own; exit code, answer, complaint"
    monkeypatch.chdir(tmp_path)
    def call(*words):
        try: code = cli.main(["campaign", *map(str, words)])
        except SystemExit as e: code = e.code
        return code, *capsys.readouterr()
    return call


def refused(answer, *words):
    "One line, code 2, with these words in it"
    code, out, err = answer
    lines = [line for line in err.splitlines() if "note:" not in line]
    assert (code, out, len(lines)) == (2, "", 1) and len(lines[0]) < 900, answer
    assert all(w in lines[0] for w in words), lines[0]


def earlier(path, domain, table, **journal):
    "A folder as the version before this one wrote it: format 1"
    path.mkdir()
    domain.save(path/"domain.npz")
    (path/"candidates.csv").write_bytes(table)
    settings = dict(format=1, maximize=True, noise_std=None, seed=0, candidates=len(domain),
                    policy=dict(name="ucb", beta=None, starts=None, repeats=False),
                    pool=pool_hash(domain, 1), rows=text_hash(table), own_prior=False,
                    package="0.1.0")
    (path/"campaign.json").write_text(json.dumps(settings, indent=1))
    with Journal.create(path/"journal.db", settings) as j:
        for kind, data in journal.items(): j.append(kind, data)
    return path


def same(a, b):
    "Two tables with the same cells of the same types"
    pd.testing.assert_frame_equal(a, b, check_exact=True)


# a carriage return in a cell

def test_a_carriage_return_in_a_cell_does_not_move_the_ids(shell):
    Path("cr.csv").write_bytes(RETURN.encode())
    assert shell("new", "cr.csv", "--smiles", "SMILES", "--out", "c")[0] == 0
    assert shell("tell", "c", "B", "7")[0] == 0
    with Campaign.open("c") as c:
        assert c.ids == ["A", "B", "C", "D"] and len(c) == 4
        assert c.observations["arm"].tolist() == [1] and c.domain.sizes[1] == 3
        assert c.table["note"].tolist() == ["x\ry", "", "", ""]


def test_a_carriage_return_in_added_candidates(shell):
    Path("ok.csv").write_text("id,SMILES,note\nP,CCCC,\nQ,CCC,\n")
    Path("cr.csv").write_bytes(RETURN.encode())
    assert shell("new", "ok.csv", "--smiles", "SMILES", "--out", "c")[0] == 0
    assert shell("add", "c", "cr.csv")[0] == 0 and shell("tell", "c", "C", "7")[0] == 0
    with Campaign.open("c") as c:
        assert c.ids == list("PQABCD") and c.observations["arm"].tolist() == [4]
    assert shell("export", "c", "--out", "tables")[0] == 0
    assert len(pd.read_csv("tables/candidates.csv")) == 6


@pytest.mark.parametrize("text", ["\r", "a\rb", "a\r\nb", "a\nb", "\r\n", '"', '""', 'a,"b', " ",
                                  "'", "NA", "nan", "None", "", "\0", "\x1a", "\ufeff", "\u2028",
                                  "#", "\\", "=1+1", "é", "𝔸", "x"*200_000])
def test_every_text_comes_back(pool, tmp_path, text):
    table = pd.DataFrame({"a": [text]*12, "b": range(12), f"c{text[:20]}": [text, "x"]*6})
    ids = [f"{i}{text[:20]}".replace("\0", "") for i in range(12)]      # ids have no zero bytes
    with Campaign.create(tmp_path/"c", pool, ids=ids, table=table) as c:
        same(c.table.drop(columns="id"), table)
        assert c.ids == [i.strip() for i in ids]
        c.add(pool, [f"new {i}" for i in ids], table)
        same(c.table.drop(columns="id")[12:].reset_index(drop=True), table)


def test_a_table_that_would_not_come_back_is_refused(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "as_csv", lambda t: t.to_csv(index=False).encode())
    odd = pd.DataFrame({"note": ["x\ry"]*12})
    with pytest.raises(ValueError, match="does not read back"):
        Campaign.create(tmp_path/"c", pool, table=odd)
    c = Campaign.create(tmp_path/"d", pool)
    before = sorted(p.name for p in c.path.iterdir())
    with pytest.raises(ValueError, match="does not read back"): c.add(pool, table=odd)
    assert sorted(p.name for p in c.path.iterdir()) == before and len(Campaign.open(c.path)) == 12
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_a_campaign_that_was_damaged_by_an_earlier_version_is_named(shell, tmp_path):
    "The ids of B, C and D stand one graph too late; somebody told B, and then undid C"
    domain = graphs(4)
    table = b"id,SMILES,note\nA,CCO,x\ry\nB,CCN,\nC,CCCl,\nD,c1ccccc1,\n"
    folder = earlier(tmp_path/"c", domain, table, tell=dict(arms=[2], values=[7.]),
                     fail=dict(arms=[0], reason=""))
    for words in (["status"], ["ask"], ["export"], ["report"]):
        refused(shell(words[0], "c"), "candidates.csv", "5 ids", "4 graphs", "told_by_id",
                "original file", "wrong graph")
    told = told_by_id(folder)
    assert told[["id", "value"]].to_numpy().tolist() == [["B", 7.]]
    new = Campaign.create(tmp_path/"new", domain, ids=list("ABCD"), results=told)
    assert new.observations["arm"].tolist() == [1]


def test_added_candidates_that_were_damaged_are_named(tmp_path, pool):
    folder = earlier(tmp_path/"c", pool, IDS)
    more, rows = graphs(2, 5), b"id,note\nx,a\rb\ny,\n"
    more.save(folder/"domain-abc.npz"), (folder/"candidates-abc-12.csv").write_bytes(rows)
    with Journal.open(folder/"journal.db") as j:
        j.append("add", dict(graphs="domain-abc.npz", rows="candidates-abc-12.csv", n=2,
                             hash=pool_hash(more, 1), rows_hash=text_hash(rows)))
    with pytest.raises(ValueError, match="candidates-abc-12.csv has 3 ids for the 2 graphs"):
        Campaign.open(folder)


# columns that travel

def test_text_stays_text_from_the_file_to_the_tables(shell):
    Path("p.csv").write_text("id,SMILES,lot,well\nA,CCO,00123,1E5\nB,CCN,7,2\nC,CCC,1.50,nan\n")
    assert shell("new", "p.csv", "--smiles", "SMILES", "--out", "c")[0] == 0
    assert shell("add", "c", Path("p.csv").rename("q.csv"))[0] == 2          # the same ids
    Path("q.csv").write_text("id,SMILES,lot,well\nX,CCCC,0099,3E0\n")
    assert shell("add", "c", "q.csv")[0] == 0
    lot, well = ["00123", "7", "1.50", "0099"], ["1E5", "2", "nan", "3E0"]
    with Campaign.open("c") as c:
        c.tell(["A", "B"], [1., 2.])
        for table in (c.table, c.to_dataframe()):
            assert table["lot"].tolist() == lot and table["well"].tolist() == well
    assert shell("export", "c", "--out", "t")[0] == shell("report", "c", "--out", "r.html")[0] == 0
    out = pd.read_csv("t/candidates.csv", dtype=str, keep_default_na=False)
    assert out["lot"].tolist() == lot and out["well"].tolist() == well
    page = Path("r.html").read_text()
    assert all(re.search(rf">{re.escape(t)}\s*<", page) for t in lot + well[:1])


COLUMNS = {"floats": np.array([0.1, 1/3, -0., math.nan, math.inf, 5e-324] * 2),
           "float32": np.array([0.1, math.nan] * 6, np.float32), "ints": np.arange(12) - 5,
           "unsigned": np.array([2**64 - 1] * 12, np.uint64), "bools": [True, False] * 6,
           "texts": ["00123", "1E5", "True", "NA", "-1", "x"] * 2,
           "missing": ["00123", None] * 6, "nothing": [None] * 12,
           "nullable": pd.array([1, None] * 6, dtype="Int64"),
           "truth": pd.array([True, None, False] * 4, dtype="boolean"),
           "real": pd.array([0.1, None] * 6, dtype="Float64")}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_come_back_with_their_types(pool, tmp_path, name):
    table = pd.DataFrame({name: COLUMNS[name]})
    c = Campaign.create(tmp_path/"c", pool, table=table)
    if name == "nothing": assert c.table[name].isna().all()
    else: same(c.table[[name]], table)
    assert c.to_dataframe()[name].equals(c.table[name])
    twice = pd.concat([c.table[[name]]]*2, ignore_index=True)
    c.add(pool, [f"n{i}" for i in range(12)], table)
    for found in (c, Campaign.open(c.path)): same(found.table[[name]], twice)


def test_mixtures_come_back_and_objects_as_their_text(pool, tmp_path):
    day = pd.Timestamp("2031-02-03")
    table = pd.DataFrame({"m": pd.Series([1, "1", "", None, True, 0.5]*2, dtype=object),
                          "l": pd.Series([[1, 2], {"a": [None]}]*6, dtype=object),
                          "d": [day]*12, "k": pd.Categorical(["a", "b"]*6)})
    c = Campaign.create(tmp_path/"c", pool, table=table)
    assert c.table["m"].tolist()[:3] == [1, "1", ""] and pd.isna(c.table["m"][3])
    assert c.table["m"].tolist()[4:6] == [True, 0.5] and c.table["m"][4] is True
    assert c.table["l"].tolist() == table["l"].tolist()
    assert c.table["d"].tolist() == ["2031-02-03"]*12 and c.table["k"].tolist() == ["a", "b"]*6


def test_columns_with_one_name_are_refused(pool, tmp_path):
    twice = pd.DataFrame(np.zeros((12, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="every column once"):
        Campaign.create(tmp_path/"c", pool, table=twice)
    with pytest.raises(ValueError, match="every column once"):
        Campaign.create(tmp_path/"c", pool, table=pd.DataFrame({1: [0]*12, "1": [0]*12}))


def test_folders_of_format_1_are_read_as_they_were(pool, tmp_path):
    rows = "\n".join(["id,lot,x", *(f"g{i},00{i},{i/8}" for i in range(12))]) + "\n"
    with Campaign.open(earlier(tmp_path/"c", pool, rows.encode())) as c:
        assert c.table["lot"].tolist() == list(range(12)) and c.table["x"].dtype == "float64"
        c.tell("g3", 1.)
        c.add(graphs(2, 3), ["x", "y"], pd.DataFrame({"lot": ["007", "08"]}))
    with Campaign.open(tmp_path/"c") as c:
        assert c.table["lot"].tolist()[-2:] == ["007", "08"] and len(c) == 14
        assert sum(p.name.startswith("domain-v2-") for p in c.path.iterdir()) == 1


# outputs

@pytest.fixture
def lab(pool, tmp_path):
    "A campaign in c and another in d"
    for name in "cd":
        with Campaign.create(tmp_path/name, pool, ids=[f"{name}{i}" for i in range(12)]) as c:
            c.tell([0, 1, 2], [1., 2., 3.])
    return tmp_path


def content(folder):
    return {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.is_file()}


OUT = [("export", "c"), ("export", "d"), ("export", "./c/../c/."), ("export", "link"),
       ("export", "c/journal.db"), ("report", "c/journal.db"), ("report", "d/journal.db"),
       ("report", "d/candidates.csv"), ("report", "c/campaign.json"), ("report", "c/domain.npz"),
       ("report", "c/prior.npz"), ("report", "c/journal.db-journal"), ("report", "link/journal.db"),
       ("report", "c/JOURNAL.DB"), ("report", "soft"), ("report", "hard"), ("report", "c"),
       ("report", "c/candidates-v2-0-1.csv"), ("report", "c/journal.db.writer.json")]


@pytest.mark.parametrize("force", [[], ["--overwrite"]])
@pytest.mark.parametrize("command, out", OUT)
def test_no_output_overwrites_a_part_of_a_campaign(shell, lab, command, out, force):
    os.symlink("c", "link"), os.symlink("c/journal.db", "soft"), os.link("c/journal.db", "hard")
    before = content("c"), content("d")
    refused(shell(command, "c", "--out", out, *force))
    assert (content("c"), content("d")) == before and sorted(os.listdir()) == [
        "c", "d", "hard", "link", "soft"]
    for name in "cd": assert len(Campaign.open(name).observations) == 3


@pytest.mark.parametrize("command, name", [("export", "measurements.csv"), ("report", "page.html")])
def test_what_somebody_else_wrote_stays(shell, lab, command, name):
    Path("t").mkdir()
    Path("t", name).write_text("event,notes\n1,mine\n")
    where = ["--out", "t" if command == "export" else f"t/{name}"]
    refused(shell(command, "c", *where), name, "--overwrite")
    assert content("t") == {name: b"event,notes\n1,mine\n"}           # and nothing beside it
    assert shell(command, "c", *where, "--overwrite")[0] == 0
    assert Path("t", name).read_text() != "event,notes\n1,mine\n"
    for _ in range(2): assert shell(command, "c", *where)[0] == 0     # now it is ours
    assert shell(command, "d", *where)[0] == 0


@pytest.mark.parametrize("target", ["precious", "nowhere"])
def test_a_link_is_not_followed_to_another_file(lab, target):
    (lab/"precious").write_text("precious")
    (lab/"page.html").symlink_to(lab/target)
    with Campaign.open(lab/"c") as c:
        with pytest.raises(ValueError, match="overwrite"): c.report(lab/"page.html")
        assert (lab/"page.html").is_symlink()
        c.report(lab/"page.html", overwrite=True)
    assert (lab/"precious").read_text() == "precious" and not (lab/"nowhere").exists()
    assert not (lab/"page.html").is_symlink()


def test_reports_and_tables_of_an_earlier_version_are_ours(shell, lab):
    assert shell("report", "c")[0] == shell("export", "c")[0] == 0
    page = Path("c/report.html")
    mark = '<meta name="generator" content="gnn_bandits campaign report">'
    text = page.read_text()
    assert mark in text
    page.write_text(text.replace(mark, ""))
    assert shell("report", "c")[0] == shell("export", "c")[0] == 0 and mark in page.read_text()
    assert len(Campaign.open("c").observations) == 3


# one campaign, several threads

def test_threads_leave_in_memory_what_is_in_the_journal(pool, tmp_path):
    c, failures = Campaign.create(tmp_path/"c", pool, policy=CampaignPolicy(repeats=True)), []
    start = threading.Barrier(4)
    def unless_none_is_left(call, **how):           # the others may have taken or excluded all
        try: call(**how)
        except ValueError as e:
            if "no candidate left" not in str(e): raise
    def work(k):
        start.wait()
        try:
            for i in range(15):
                c.tell(f"{(3*k + i) % 12}", float(i), note=f"{k}")
                if i % 5 == 0: unless_none_is_left(c.ask), c.predict(), repr(c)
                if i % 5 == 1: c.fail((k + i) % 12, "x"), c.to_dataframe()
                if i % 5 == 2: c.exclude((k + i) % 12)
                if i % 5 == 3: c.pending, c.events, c.best()
                if i % 5 == 3: unless_none_is_left(c.suggest, repeats=True)
        except Exception as e: failures.append(repr(e))       # noqa: BLE001
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not failures
    with Campaign.open(c.path) as fresh:
        assert len(c.observations) == 60 == len(fresh.observations)
        for one, two in ((c.observations, fresh.observations), (c.pending, fresh.pending),
                         (c.events, fresh.events)): same(one, two)
        assert c._record == fresh._record and c.ids == fresh.ids
        same(c.predict(), fresh.predict())


def test_threads_that_add_candidates(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool)
    def work(k):
        c.add(graphs(2, 10 + k), [f"{k}-{j}" for j in range(2)])
        c.tell(f"{k}-0", float(k))
        return c.predict([f"{k}-1"])["arm"][0]
    with ThreadPoolExecutor(4) as threads: found = list(threads.map(work, range(6)))
    with Campaign.open(c.path) as fresh:
        assert fresh.ids == c.ids and len(c) == 24 and len(set(found)) == 6
        for k in range(6):
            arm = fresh.ids.index(f"{k}-0")
            assert torch.equal(c.domain[arm].nodes, graphs(2, 10 + k)[0].nodes)


def test_a_block_that_fails_leaves_nothing_in_memory(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool)
    c.tell(0, 1.)
    with pytest.raises(ZeroDivisionError), c.journal.writing():
        c.tell(1, 2.), c.ask(), c.add(graphs(2, 3), ["x", "y"])
        assert len(c.observations) == 2 and len(c) == 14
        1//0
    c.tell(2, 3.), c.fail(3, "x")
    with Campaign.open(c.path) as fresh:
        assert c._record == fresh._record and len(c) == len(fresh) == 12
        same(c.predict(), fresh.predict())


def test_a_look_that_is_interrupted_is_made_up_for(pool, tmp_path):
    "Ctrl-C at every third step of bringing the record up to date"
    Campaign.create(tmp_path/"c", pool).close()
    waiting = [Campaign.open(tmp_path/"c") for _ in range(80)]
    with Campaign.open(tmp_path/"c") as fresh:
        for i in range(3): fresh.tell(i, float(i))
        truth = fresh.observations
    total = steps(waiting.pop()._sync)
    for c, step in zip(waiting, np.linspace(1, total - 3, len(waiting)).astype(int).tolist()):
        def stop(frame, event, arg, left=[step]):             # noqa: B006, B023
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt
        try:
            sys.setprofile(stop)
            c._sync()
        except KeyboardInterrupt: pass
        finally: sys.setprofile(None)
        same(c.observations, truth)


# fingerprints

def test_a_path_added_after_a_star_stays_a_path(tmp_path):
    pair = [nx.to_numpy_array(g) for g in (nx.star_graph(3), nx.path_graph(4))]
    star, path = (GraphDomain.from_arrays([A], [np.eye(4)], hops=0) for A in pair)
    both = GraphDomain.from_arrays(pair, [np.eye(4)]*2, hops=0)
    c = Campaign.create(tmp_path/"c", both)
    c.add(star, ["star"]).add(path, ["path"])
    with Campaign.open(c.path) as again:
        for k, X in ((2, star), (3, path)):
            edges = again.domain[k].edges
            assert torch.equal(edges.source, X.edges.source)
            assert torch.equal(edges.target, X.edges.target)


def test_the_fingerprint_sees_everything_that_is_stored():
    A, x = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]), np.eye(3)
    make = lambda A=A, x=x, **o: GraphDomain.from_arrays([A], [x], hops=o.pop("hops", 0), **o)
    noted = make()
    noted.notes["intake"] = {"smiles": "SMILES"}
    found = [make(), make(A[::-1, ::-1][[1, 0, 2]][:, [1, 0, 2]]), make(2*A), make(A*0.5),
             make(edge_types=[A]), make(edge_types=[2*A]), make(x=2*x), make(hops=1), make(hops=2),
             make(keep_edges=False), noted]
    assert len({pool_hash(X) for X in found}) == len(found)
    assert len({pool_hash(X, 1) for X in found}) < len(found)


@pytest.mark.parametrize("wanted", ["plain", "types", "no edges", "several hops"])
def test_the_fingerprint_survives_the_disk(tmp_path, wanted):
    A = [np.ones((3, 3), int) - np.eye(3, dtype=int)]*2
    hops, x = [0, 1] if wanted == "several hops" else 1, [np.eye(3), np.eye(3)[[0, 0, 1]]]
    X = GraphDomain.from_arrays(A, x, hops=hops, keep_edges=wanted != "no edges",
                                edge_types=A if wanted == "types" else None)
    X.notes["odd"] = {12: (1, 2), 3: None}
    assert pool_hash(GraphDomain.load(X.save(tmp_path/"x.npz"))) == pool_hash(X)


# identity

def test_the_journal_of_a_like_campaign_is_refused(pool, tmp_path):
    one, two = (Campaign.create(tmp_path/name, pool, seed=3) for name in "ab")
    assert one.settings["campaign"] != two.settings["campaign"]
    one.tell(0, 1.), two.tell(1, 5.)
    (two.path/"journal.db").write_bytes((one.path/"journal.db").read_bytes())
    with pytest.raises(ValueError, match="journal of another campaign"): Campaign.open(two.path)


def test_the_identity_changes_no_suggestion(pool, tmp_path):
    def played(name, policy):
        c = Campaign.create(tmp_path/name, pool, seed=3, policy=policy)
        for _ in range(3): c.tell(arms := c.ask(2), [math.sin(a) for a in arms])
        return c.observations["arm"].tolist()
    for policy in ("ts", "random", "ucb"):
        assert played(f"{policy}1", policy) == played(f"{policy}2", policy)


# bytes that are no text

@pytest.mark.parametrize("bad", ["\udcff", "so\ud800", b"bytes"])
def test_bytes_are_refused_wherever_a_text_is_kept(pool, tmp_path, bad):
    c = Campaign.create(tmp_path/"c", pool)
    c.tell(0, 1.)
    calls = [lambda: c.fail(1, bad), lambda: c.exclude(1, bad), lambda: c.tell(1, 1., note=bad),
             lambda: c.ask(note=bad), lambda: Journal.open(c.path/"journal.db", author=bad),
             lambda: c.add(pool, [bad, *range(20, 31)]),
             lambda: c.tell(pd.DataFrame({"id": ["1"], "value": [1.], "note": [bad]})),
             lambda: Campaign.create(tmp_path/"d", pool, ids=[bad, *range(11)]),
             lambda: c.add(pool, table=pd.DataFrame({"x": pd.Series([bad]*12, dtype=object)})),
             lambda: c.add(pool, table=pd.DataFrame({bad: [1]*12}))]
    if isinstance(bad, bytes): del calls[6]                   # `tell` says what it makes of bytes
    for call in calls:
        with pytest.raises(ValueError, match="text|characters"): call()
    assert len(c.events) == 1 and [p.name for p in tmp_path.iterdir()] == ["c"]


def test_bytes_from_a_terminal_are_one_line(shell, lab):
    for line in (["fail", "c", "c1", "--reason", "\udcff"], ["ask", "c", "--note", "\udcff"],
                 ["tell", "c", "c1", "1", "--note", "\udcff"],
                 ["exclude", "c", "c1", "--reason", "x\udcffy"]):
        refused(shell(*line), "no characters")


def test_bytes_that_are_recorded_already_can_be_exported(pool, tmp_path):
    folder, stored = earlier(tmp_path/"c", pool, IDS), dict(arms=[1], reason="not \udcff")
    with Journal.open(folder/"journal.db") as j, j.writing():
        row = (len(j.rows), "2031-02-03T04:05:06+00:00", "ada", "fail", json.dumps(stored), "")
        j.rows += insert(j.db, [row], j.rows[-1][-1])
    with Campaign.open(folder) as c:
        c.tell("g0", 1.)
        assert c.to_dataframe()["reason"][1] == "not \udcff"
        out = pd.read_csv(c.export(tmp_path/"t")[0])
        assert out["reason"][1] == r"not \udcff"
        assert c.report(tmp_path/"r.html").exists()


# undo

def test_the_second_of_two_undos_at_once_undoes_nothing(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool)
    for i in range(3): c.tell(i, float(i))
    one, two = Campaign.open(c.path), Campaign.open(c.path)
    assert one.undo().data["arms"] == [2]
    with pytest.raises(ValueError, match="event 3 was undone meanwhile, by event 4"): two.undo()
    assert Campaign.open(c.path).observations["arm"].tolist() == [0, 1]
    assert two.undo().data["arms"] == [1]                     # now it has seen what is last
    with pytest.raises(ValueError, match="already"): one.undo(3)
    three = Campaign.open(c.path)
    one.tell(5, 5.)
    with pytest.raises(ValueError, match="the last tell is now event"): three.undo()
    assert c.undo(4).kind == "undo" and c.observations["arm"].tolist() == [0, 2, 5]
    with pytest.raises(ValueError, match="already"): c.undo(4)


def test_threads_that_undo_at_once(pool, tmp_path):
    "Each undoes another measurement, or says that nothing was undone"
    c = Campaign.create(tmp_path/"c", pool)
    for i in range(8): c.tell(i, float(i))
    start, done = threading.Barrier(4), []
    def work(_):
        start.wait()
        try: done.append(c.undo().seq)
        except ValueError as e: assert "nothing was undone" in str(e)
    with ThreadPoolExecutor(4) as threads: list(threads.map(work, range(4)))
    assert done and len(set(done)) == len(done)
    with Campaign.open(c.path) as fresh:
        assert len(c.observations) == 8 - len(done) and c._record == fresh._record


# leftovers

def dead():
    "The number of a process that has ended"
    p = subprocess.Popen([sys.executable, "-c", ""])
    p.wait()
    return p.pid


def left_behind(path, pid, age=7200):
    "A temporary file or folder beside `path`, as a process with this number would leave it"
    mark = temporary(path)["prefix"].replace(f"-{os.getpid()}-", f"-{pid}-")
    out = path.with_name(f"{mark}abcd_123.tmp")
    out.write_text("half") if path.suffix else out.mkdir()
    if not path.suffix: (out/"domain.npz").write_text("half")
    when = time.time() - age
    os.utime(out, (when, when))
    return out


def test_what_a_killed_process_left_is_removed_and_nothing_else(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool)
    c.tell(0, 1.)
    gone, stays = dead(), []
    goes = [left_behind(c.path/name, gone) for name in ("candidates.csv", "domain-v2-x.npz")]
    stays += [left_behind(c.path/"candidates.csv", os.getppid()),
              left_behind(c.path/"prior.npz", gone, age=60)]
    for name in (".candidates.csv.swp", ".candidates.csv.abcd1234", "notes.tmp", ".tmp"):
        (c.path/name).write_text("mine")
        os.utime(c.path/name, (0, 0))
        stays.append(c.path/name)
    Campaign.open(c.path).close()
    assert not any(p.exists() for p in goes) and all(p.exists() for p in stays)
    Path(tmp_path/"t").mkdir()
    goes = [left_behind(tmp_path/"t/events.csv", gone), left_behind(tmp_path/"page.html", gone)]
    c.export(tmp_path/"t"), c.report(tmp_path/"page.html")
    assert not any(p.exists() for p in goes)


def test_unfinished_campaigns_are_removed_and_nothing_else(pool, tmp_path):
    gone = dead()
    goes = left_behind(tmp_path/"lab", gone)
    stays = [left_behind(tmp_path/"young", gone, age=60),
             left_behind(tmp_path/"live", os.getppid()), left_behind(tmp_path/"full", gone)]
    (stays[-1]/"thesis.docx").write_text("mine")
    os.utime(stays[-1], (0, 0))
    Campaign.create(tmp_path/"c", pool).close()
    assert not goes.exists() and all(p.exists() for p in stays)


# killed at any point

def counted(work, at, after=None):
    "Call `at` with the number of each step of the work, or of each after a function has returned"
    n = 0 if after is None else -math.inf
    def count(frame, event, arg):
        nonlocal n
        if n < 0 and event == "return" and frame.f_code.co_name == after: n = 0
        n += 1
        if n > 0: at(n)
    sys.setprofile(count)
    try: work()
    finally: sys.setprofile(None)


def killed(work, step, after=None):
    "A child that does the work and is killed at a step of it; whether it had done it"
    pid = os.fork()
    if not pid:
        code = 1
        try:
            counted(work, lambda n: n == step and os.kill(os.getpid(), signal.SIGKILL), after)
            code = 0
        finally: os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status == 0


def steps(work, after=None):
    "How many steps there are"
    last = 0
    def keep(n):
        nonlocal last
        last = n
    counted(work, keep, after)
    return last


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_kill_in_create_leaves_a_whole_campaign_or_none(pool, tmp_path):
    table = pd.DataFrame({"note": ["x\ry"]*12})
    make = lambda to: Campaign.create(to, pool, table=table, results={"3": 1.},
                                      prior=Prior.gntk(pool))
    make(tmp_path/"warm").close()                             # what is imported late is there
    points, whole = [], 0
    for after, many in ((None, 12), ("mkdtemp", 28)):         # from the start; from the new folder
        total = steps(lambda: make(tmp_path/f"first {after}"), after)   # noqa: B023
        points += [(int(s), after) for s in [*np.linspace(1, total + 50, many), 10*total]]
    for k, (step, after) in enumerate(points):
        to = tmp_path/f"c{k}"
        done = killed(lambda: make(to), step, after)          # noqa: B023
        if to.exists():
            whole += 1
            with Campaign.open(to) as c:
                assert c.observations["id"].tolist() == ["3"] and len(c.predict()) == 12
        else:
            assert not done
            make(to).close()                                  # and the place is not spoilt
    assert whole >= 1
    for p in tmp_path.glob(".*.tmp"): os.utime(p, (0, 0))
    assert list(tmp_path.glob(".*.tmp"))
    make(tmp_path/"last").close()
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_kill_in_export_leaves_whole_tables(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool)
    c.tell([0, 1, 2, 3], [1., 2., 3., 4.])
    c.export(tmp_path/"t"), c.report(tmp_path/"t/page.html")
    before = content(tmp_path/"t")
    c.tell(5, 5.), c.predict()
    total = steps(lambda: c.export(tmp_path/"u"))
    after = content(tmp_path/"u")
    for step in np.linspace(1, total + 20, 25).astype(int).tolist():
        killed(lambda: c.export(tmp_path/"t"), step)
        now = content(tmp_path/"t")
        for name in ("candidates.csv", "measurements.csv", "events.csv"):
            assert now[name] in (before[name], after[name])
    c.export(tmp_path/"t")
    assert Campaign.open(c.path)._record == c._record


# what earlier versions stored

def test_stored_campaigns_open_and_ask_for_the_same(tmp_path):
    stored = pytest.importorskip("stored")
    folders = stored.unpack(tmp_path/"stored")
    for folder in folders:
        with Campaign.open(folder) as c:
            assert "campaign" not in c.settings and len(c.predict()) == len(c)
    rows = stored.asked_again(folders[0], tmp_path/"again")
    assert rows and all(then == now for _, then, now in rows)


@pytest.mark.parametrize("other,said", [
    (dict(hops=2), "one number of hops"), (dict(labels=["C", "N"]), "one list of classes")])
def test_graphs_that_were_read_otherwise_are_refused_before_anything_is_written(tmp_path, other,
                                                                                said):
    "They were written first, and the campaign could not be opened any more"
    rows = lambda k: [["C"]]*k + [["O" if "labels" not in other else "N"]]
    A = lambda n: np.ones((n, n)) - np.eye(n)
    make = lambda sizes, **more: GraphDomain.from_arrays(
        [A(n) for n in sizes], [rows(n - 1) for n in sizes], **more)
    labels = dict(labels=["C", "O"]) if "labels" not in other else dict(labels=["N", "C"])
    path = tmp_path/"lab"
    with Campaign.create(path, make([2, 3, 4], **labels)) as c:
        before = sorted(p.name for p in path.iterdir())
        with pytest.raises(ValueError, match=said): c.add(make([5], **labels | other))
        assert len(c) == 3 and sorted(p.name for p in path.iterdir()) == before
    with Campaign.open(path) as c: assert len(c) == 3
