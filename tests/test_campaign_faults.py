"Campaigns that are killed, cut, filled up and fought over: what was acknowledged is there."
import importlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from gnn_bandits import cli
from gnn_bandits.campaigns import Campaign

SCRIPT = Path(__file__).parent.parent/"scripts/faults.py"
pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.skipif(not SCRIPT.exists(), reason="needs the source tree"),
              pytest.mark.skipif(sys.platform != "linux", reason="forks, users and limits")]
TIMES = {"kill -9 during tell": 6, "kill -9 during ask": 3, "kill -9 during undo": 3,
         "kill -9 during add": 3, "Ctrl-C": 6, "full disk": 4, "read-only folder": 2,
         "journal cut": 4, "journal, one bit": 4, "graphs cut": 1, "graphs, one bit": 1,
         "two writers": 1, "writer that holds the file": 1, "clock set back": 1}


@pytest.fixture(scope="module")
def faults():
    sys.path.insert(0, str(SCRIPT.parent))
    try: return importlib.import_module("faults")
    finally: sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def base(faults, tmp_path_factory):
    return faults.make(tmp_path_factory.mktemp("base")/"lab")


@pytest.fixture
def lab(base, tmp_path): return Path(shutil.copytree(base, tmp_path/"lab"))


@pytest.mark.parametrize("name", TIMES)
def test_nothing_that_was_acknowledged_is_lost(faults, base, name):
    row = faults.inject(name, TIMES[name], base, seed=1)
    assert row["lost"] == 0 and row["acknowledged"] >= 8*TIMES[name]
    sound = name.startswith(("kill", "Ctrl", "two", "clock", "full", "read", "writer"))
    assert not (sound and row["unreadable"])
    if "disk" in name or "folder" in name: assert row["refused"] == TIMES[name]


@pytest.fixture
def power():
    sys.path.insert(0, str(SCRIPT.parent))
    try: power = importlib.import_module("power")
    finally: sys.path.remove(str(SCRIPT.parent))
    if power.library() is None: pytest.skip("this SQLite cannot be watched from inside")
    return power


@pytest.mark.parametrize("name", ["tell", "ask", "undo", "add", "create"])
def test_a_power_cut_at_any_step_loses_nothing_that_was_acknowledged(faults, power, base, name):
    row = faults.power_cuts(name, base, 60 if name == "create" else 15, seed=2)
    assert row["steps"] > 50 and row["lost"] == row["unreadable"] == 0
    assert row["acknowledged"] >= (1 if name == "create" else 8*15)


def test_a_disk_that_does_not_wait_does_lose_something(faults, power, base):
    "The same cuts, if what was waited for may be missing: else the check above could not fail"
    row = faults.power_cuts("tell", base, 40, seed=2, waits=False)
    assert row["lost"] > 0 and row["unreadable"] > 0


@pytest.mark.parametrize("name", ["tell", "ask"])
def test_a_disk_that_is_full_at_any_write_is_one_sentence_and_nothing_lost(faults, power, base,
                                                                           name):
    row = faults.full_at_every_write(name, base)
    assert row["steps"] > 5 and row["times"] == 2*row["steps"] and row["lost"] == 0


@pytest.mark.parametrize("part", [0., 0.5, 1.])
def test_what_a_disk_holds_after_a_cut_is_made_of_what_was_written(power, tmp_path, part):
    "A file that is written, named and removed by hand, cut at every step"
    class Always:
        def choice(self, _): return part
        def random(self): return 0.75                     # a write as a whole, if at all
    root, names = tmp_path/"root", []
    root.mkdir()
    (root/"a").write_bytes(b"old")
    with power.recorded(root) as record:
        (root/"b").write_bytes(b"new")
        os.replace(root/"b", root/"a")
        fd = os.open(root/"a", os.O_RDONLY)
        os.fsync(fd), os.close(fd)
        fd = os.open(root, os.O_RDONLY)
        os.fsync(fd), os.close(fd)
        os.unlink(root/"a")
    for end in range(len(record.steps) + 1):
        to = tmp_path/str(end)
        to.mkdir()
        power.after_cut(record, end, Always(), to)
        names.append({p.name: p.read_bytes() for p in to.iterdir()})
    old, new = dict(a=b"old"), dict(a=b"new")
    first = new if part == 1 else old                     # a name in place of another is one step
    assert names[0] == old and names[-2] == new and first in names
    assert names[-1] == ({} if part == 1 else new)


def test_the_script_tries_200(faults):
    assert sum(times for _, times in faults.FAULTS.values()) == 200
    assert set(TIMES) <= set(faults.FAULTS)


@pytest.mark.parametrize("name, part", [
    ("campaign.json", 0), ("campaign.json", 0.5), ("domain.npz", 0), ("domain.npz", 0.5),
    ("journal.db", 0), ("journal.db", 0.5), ("candidates.csv", 0.5),
    ("candidates.csv", 0), ("prior.npz", 0),
    ("prior.npz", 0.5)])
def test_a_file_that_was_cut_is_one_line(lab, name, part, capsys):
    data = (lab/name).read_bytes()
    (lab/name).write_bytes(data[:int(part*len(data))])
    assert cli.main(["campaign", "ask", str(lab)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and name in err, err


@pytest.mark.parametrize("name", ["candidates.csv", "campaign.json", "domain.npz", "journal.db"])
def test_a_file_that_is_gone_is_one_line(lab, name, capsys):
    (lab/name).unlink()
    assert cli.main(["campaign", "status", str(lab)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and name in err, err


def test_a_changed_id_is_noticed(lab):
    text = (lab/"candidates.csv").read_text()
    (lab/"candidates.csv").write_text(text.replace("g23", "g33"))
    with pytest.raises(ValueError, match="candidates.csv"): Campaign.open(lab)


@pytest.mark.parametrize("change", [dict(seed=7), dict(maximize=False), dict(noise_std=0.2),
                                    dict(pool=None), dict(candidates=3)])
def test_changed_settings_are_noticed(lab, change):
    settings = json.loads((lab/"campaign.json").read_text())
    (lab/"campaign.json").write_text(json.dumps(settings | change))
    with pytest.raises(ValueError, match="campaign.json"): Campaign.open(lab)


def test_missing_settings_are_noticed(lab):
    settings = json.loads((lab/"campaign.json").read_text())
    del settings["pool"]
    (lab/"campaign.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="campaign.json"): Campaign.open(lab)


def test_two_that_add_at_once_do_not_take_the_same_ids(faults, lab):
    "The second process begins when the first has looked at the pool and not yet added to it"
    wait, go = os.pipe()
    def second(write):
        os.read(wait, 1)
        with Campaign.open(lab) as c: write(faults.refuses(c, faults.add))
    child = faults.fork(second)
    with Campaign.open(lab) as c:
        look = c._sync
        def late():
            c._sync = look
            look()
            os.write(go, b"!")
            time.sleep(0.3)
        c._sync = late
        faults.add(c, 0)
    message, = faults.heard(*child)
    assert "once" in message or "prior" in message
    with Campaign.open(lab) as c: assert len(c) == 26 and len(set(c.ids)) == 26
