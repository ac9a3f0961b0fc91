"The logbook: what a shell may do without the model, and that it agrees with the campaign."
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from gnn_bandits import Campaign, GraphDomain, cli
from gnn_bandits.logbook import Logbook, Sealed, SeveralLogbook, glance, load_graphs, pool_hash

pytestmark = pytest.mark.usefixtures("one_thread")
REFUSE = """import sys
class Refuse:
    def find_spec(self, name, *_):
        if name in {names!r}: raise RuntimeError(f"{{name}} was imported")
sys.meta_path.insert(0, Refuse())
from gnn_bandits.cli import main
sys.exit(main(sys.argv[1:]))"""
HEAVY = ("torch", "numba", "scipy", "rdkit", "sklearn", "matplotlib", "networkx", "pandas")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A folder with a campaign of one value, one of several, and files to tell"
    home = tmp_path_factory.mktemp("made")
    pool = GraphDomain.erdos_renyi(20, 5, 0.4, 3, np.random.default_rng(0))
    with Campaign.create(home/"lab", pool, ids=[f"n{i}" for i in range(20)]) as c:
        c.tell({"n1": 7.1, "n2": 6.9, "n3": 7.4, "n4": 7.3, "n5": ">9"}).exclude("n7").ask(3)
        c.tell("n6", 7.2)
    price = pd.DataFrame({"euro": np.arange(20) + 1.})
    with Campaign.create(home/"two", pool, table=price, cost="euro",
                         outcomes={"yield": "max", "waste": "<= 3"}) as c:
        c.tell([1, 2, 3], {"yield": [50., 60., 55.], "waste": [1., 2., 5.]}).ask(2)
    (home/"new.csv").write_text("id,value,note\nn8,6.8,\nn9,<7,late\n")
    (home/"wide.csv").write_text("id,yield,waste\n4,52,\n5,58,2.5\n")
    (home/"pool.csv").write_text("name,SMILES\na,CCO\nb,CCN\n")
    return home


@pytest.fixture
def lab(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def alone(line, names=HEAVY):
    "A command in a process that cannot import some packages: code, output, errors"
    done = subprocess.run([sys.executable, "-c", REFUSE.format(names=names), "campaign",
                           *line.split()], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


ALONE = ["tell lab n10 7.05", "tell lab n10 >8 --json", "tell lab new.csv", "tell lab n10 65.2",
         "undo lab", "undo lab --event 3", "status lab", "status lab --json", "fail lab n11",
         "exclude lab n11 --reason dust", "include lab n7", "drop lab --all", "policy lab",
         "policy lab ei --json"]
REFUSED = ["tell lab n10 7,5", "tell lab nobody 7", "tell lab none.csv", "undo lab --event 99",
           "status none", "drop lab n11", "include lab n8", "ask none", "report none",
           "new pool.csv --smiles smile --out x", "new pool.csv --out x",
           "new pool.csv --smiles SMILES --id nr --out x",
           "new pool.csv --smiles SMILES --value logS --out x",
           "new pool.csv --smiles SMILES --cost euro --out x",
           "new pool.csv --smiles SMILES --columns heat --out x", "new none.csv --smiles S --out x"]
SEVERAL = ["tell two 6 yield=51 waste=2", "tell two wide.csv", "undo two", "status two",
           "status two --json", "fail two 7", "policy two ts"]


@pytest.mark.parametrize("line", ALONE)
def test_what_needs_no_model_imports_no_torch(lab, capsys, line):
    "Nor pandas; and it says what it says in a process that has everything"
    shutil.copytree("lab", "other")
    code, out, err = alone(line)
    assert code == 0, err
    assert cli.main(["campaign", *line.replace("lab", "other", 1).split()]) == 0
    said = capsys.readouterr()
    assert (out, err) == (said.out.replace("other", "lab"), said.err)
    facts = [[(e.kind, e.data, e.note) for e in Logbook.open(f).journal.events()]
             for f in ("lab", "other")]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("line", REFUSED)
def test_a_mistake_does_not_wait_for_torch(lab, line):
    code, out, err = alone(line)
    assert (code, out, err.count("\n")) == (2, "", 1) and "imported" not in err


@pytest.mark.parametrize("line", SEVERAL)
def test_several_outcomes_need_no_torch_either(lab, line):
    code, _, err = alone(line, ("torch", "numba", "scipy", "rdkit"))
    assert code == 0, err


@pytest.mark.parametrize("line", ["ask lab", "best lab", "status lab --model"])
def test_the_hook_refuses(lab, line):
    "What needs the model fails in such a process, so the tests above can fail"
    code, _, err = alone(line)
    assert code != 0 and "was imported" in err


@pytest.mark.parametrize("name", ["lab", "two"])
def test_a_logbook_knows_what_the_campaign_knows(lab, name):
    with Campaign.open(name) as c, Logbook.open(name) as b:
        assert isinstance(b, SeveralLogbook) == bool(c.outcomes) and len(b) == len(c)
        for table in ("observations", "exact", "pending", "events", "table"):
            assert getattr(b, table).equals(getattr(c, table)), table
        assert (b.ids, b.policy, b.spent, b.told_why) == (c.ids, c.policy, c.spent, c.told_why)
        assert b.record.states().tolist() == c.record.states().tolist()
        assert repr(b).replace("Logbook", "Campaign") == repr(c)
        first = c.ids[0]
        b.tell({first: {"yield": 61.}} if c.outcomes else {first: 7.})
        assert c.observations.equals(b.observations) and c.ask() == [*c.record.pending][-1:]
        assert b.undo().kind == "tell" and c.observations.equals(b.observations)


def test_every_stored_file_of_graphs_is_known_at_a_glance(lab):
    for path in lab.glob("*/domain*.npz"):
        mark = json.loads((path.parent/"campaign.json").read_text())["pool"]
        assert isinstance(glance(path, mark), Sealed)
        assert pool_hash(load_graphs(path, mark)) == mark


@pytest.mark.parametrize("part", ["domain.npz", "candidates.csv", "journal.db", "campaign.json"])
def test_nothing_is_recorded_in_a_damaged_folder(lab, part):
    "A bit is changed at many places; what the campaign refuses, the logbook refuses, in its words"
    path, rng = lab/"lab"/part, np.random.default_rng(0)
    whole = path.read_bytes()
    for at in rng.integers(len(whole), size=25):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        said = []
        for room in (Logbook, Campaign):
            try:
                with room.open("lab"): said.append(None)
            except (ValueError, OSError) as e: said.append(str(e))
        assert said[0] == said[1], at
    path.write_bytes(whole[:-20])
    assert cli.main(["campaign", "tell", "lab", "n10", "7"]) == 2
    path.write_bytes(whole)
    assert len(Logbook.open("lab").record.rows) == 6
