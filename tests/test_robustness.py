"Random files, calls and kills: taken and then everything works, or refused and nothing is left."
import importlib
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent/"scripts"
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.skipif(not SCRIPTS.exists(), reason="needs the source tree"),
              pytest.mark.skipif(sys.platform != "linux", reason="forks, alarms and limits")]
FILES = {"candidates table": 18, "GraphML": 18, "node-link JSON": 24, "domain npz": 18,
         "results for tell": 20, "campaign.json changed": 12, "candidates.csv changed": 12,
         "prior.npz changed": 16, "journal.db changed": 16, "domain.npz changed": 8,
         "journal.db crafted": 16}
KILLS = {"new": 4, "tell": 4, "ask": 4, "undo": 4, "add": 4, "export": 4, "report": 1}


@pytest.fixture(scope="module")
def faults():
    sys.path.insert(0, str(SCRIPTS))
    try: return importlib.import_module("faults")
    finally: sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def home(tmp_path_factory): return tmp_path_factory.mktemp("robust")


@pytest.fixture(scope="module")
def base(faults, home): return faults.six(home/"base")


def kept(found):
    "Every input kept the contract; if not, say the seed and the input"
    broken = [f"seed {f['seed']}: {f['broken']}: {f['text']}\n    {f['input']}"
              for f in found if f["broken"]]
    assert not broken, f"{len(broken)} of {len(found)}\n" + "\n".join(broken)


@pytest.mark.parametrize("name", FILES)
def test_a_random_file_is_taken_and_works_or_is_refused(faults, home, name):
    found = faults.fuzz(name, range(1000, 1000 + FILES[name]), home)
    kept(found)
    assert len(found) == FILES[name] and any(not f["accepted"] for f in found)


@pytest.mark.parametrize("k", range(10))
def test_an_input_that_is_large_or_no_file_takes_bounded_memory(faults, home, k):
    kept(faults.fuzz("large or no file", [k], home))


def test_a_campaign_with_odd_arguments_begins_and_works_or_is_refused(faults):
    kept([faults.beginnings(seed) for seed in range(1000, 1040)])


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_random_calls_agree_with_a_plain_model(faults, seed):
    kept([faults.sequence(seed, 20)])


@pytest.mark.parametrize("name", KILLS)
def test_a_killed_program_leaves_what_it_said_and_nothing_half(faults, base, name):
    kept([faults.kill(name, base, seed) for seed in range(1000, 1000 + KILLS[name])])


def test_every_loader_and_every_command_is_counted(faults):
    assert {*FILES, "large or no file"} == set(faults.LOADERS)
    assert set(KILLS) == set(faults.PROGRAM) and len(faults.LARGE) == 10


def test_an_id_that_no_table_can_hold_is_refused(faults, tmp_path):
    "Found by the random files: an id from JSON that could never be told in a table"
    X = faults.graphs(3)
    with pytest.raises(ValueError, match="zero byte"):
        faults.Campaign.create(tmp_path/"lab", X, ids=["a", "b\0", "c"])
    assert not (tmp_path/"lab").exists()
