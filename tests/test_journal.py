"The journal: what was acknowledged survives, nothing half-written is read, errors are sentences."
import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from gnn_bandits import journal as room
from gnn_bandits.journal import (DamagedJournal, Event, Journal, JournalBusy, as_stored, connect,
                                 link, name_plate, salvage)

ROOT = Path(__file__).parent.parent
STORED = ROOT/"tests/data/journal_v1.db"


def python(code, *argv):
    "A program that imports the journal and nothing heavy."
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    head = "import os, signal, sys, time\nfrom gnn_bandits.journal import *\n"
    argv = [sys.executable, "-c", head + code, *map(str, argv)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(argv, text=True, env=env, **pipes)


def filled(path, n=12):
    "A journal with n events of different sizes."
    with Journal.create(path, {"pool": "abc", "seed": 0}, author="ada") as j:
        j.extend([("tell", {"arm": i, "value": i/7}, "x"*(i*i)) for i in range(n)])
        return j.events(after=-1)


def is_sentence(error, path):
    text = str(error)
    assert "\n" not in text and str(path) in text and not text.endswith("."), text
    assert len(text.replace(str(path), "")) < 400, text
    return True


def refused(path, kind=ValueError):
    with pytest.raises(kind) as caught: Journal.open(path)
    return is_sentence(caught.value, path) and str(caught.value)


@pytest.fixture
def place():
    "A folder that other users may enter, which pytest's own are not."
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def ordinary_user():
    "Permissions mean nothing to root, so act as somebody else."
    root = os.geteuid() == 0
    if root: os.seteuid(65534)
    try: yield
    finally:
        if root: os.seteuid(0)


@contextlib.contextmanager
def sealed(folder):
    "The folder and its files cannot be written."
    for p in folder.iterdir(): p.chmod(0o444)
    folder.chmod(0o555)
    with ordinary_user(): yield
    folder.chmod(0o755)
    for p in folder.iterdir(): p.chmod(0o644)


# the ordinary day

def test_events_come_back_as_they_went_in(tmp_path):
    data = {"z": [1, 2.5, None, True, {"ä": "\x00 ☂"}], "a": 1e-300, "big": 10**40}
    with Journal.create(tmp_path/"a % b?#.db", {"seed": 1}) as j:
        assert j.append("tell", data, "a note\n— in two lines\x00") == 1
        assert j.extend([]) == 1
    with Journal.open(tmp_path/"a % b?#.db") as j:
        (event,), _ = j.events(), j.check()
        assert (event.seq, event.data, event.note) == (1, data, "a note\n— in two lines\x00")
        assert event.author == room.whoami() and j.header == {"seed": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a % b?#.db"]
    with pytest.raises(ValueError, match="has been closed"): j.events()


def test_a_journal_says_where_it_is_and_how_long(tmp_path):
    filled(tmp_path/"j.db")
    assert repr(Journal.open(tmp_path/"j.db")) == f"Journal({str(tmp_path/'j.db')!r}, 13 events)"


def test_halves_of_characters_that_are_there_are_read(tmp_path):
    "Earlier versions took them; they stay what they are."
    stored = ("fail", '{"reason":"\\udcff"}', "")
    room.write_new(tmp_path/"j.db", [(0, "then", "ada", "created", "{}", ""),
                                     (1, "then", "ada", *stored)])
    with Journal.open(tmp_path/"j.db") as j: assert j.events()[0].data == {"reason": "\udcff"}


def test_what_is_handed_out_is_a_copy(tmp_path):
    j = Journal.create(tmp_path/"j.db", {"arms": [1]})
    j.append("tell", {"arms": [2]})
    j.header["arms"].append(9)
    j.events()[0].data["arms"].append(9)
    assert (j.header, j.events()[0].data) == ({"arms": [1]}, {"arms": [2]})


@pytest.mark.parametrize("event", [
    ("tell", {"value": float("inf")}), ("tell", {"value": {1}}), ("tell", {1: 2}), ("tell", "text"),
    ("", {}), (None, {}), ("tell", {}, 3), ("tell", {}, "\ud800"), ("\udfff", {}),
    ("fail", {"reason": "\udcff"}), ("tell", {"notes": ["", {"\udc80": 1}]})])
def test_bad_events_change_nothing(tmp_path, event):
    j = Journal.create(tmp_path/"j.db", {})
    before = j.path.read_bytes()
    for many in ([event], [("tell", {}), event]):
        with pytest.raises(ValueError, match="expected"): j.extend(many)
    assert j.path.read_bytes() == before and j.events() == []


@pytest.mark.parametrize("header, author", [({"x": float("nan")}, ""), ([], ""), ({}, "\ud800")])
def test_a_bad_header_makes_no_file(tmp_path, header, author):
    with pytest.raises(ValueError, match="expected"):
        Journal.create(tmp_path/"j.db", header, author=author)
    assert list(tmp_path.iterdir()) == []


def test_create_does_not_overwrite(tmp_path):
    truth = filled(tmp_path/"j.db", 2)
    with pytest.raises(ValueError, match="is there already"): Journal.create(tmp_path/"j.db", {})
    with pytest.raises(ValueError, match="there is no folder"): Journal.create(tmp_path/"x/j", {})
    assert Journal.open(tmp_path/"j.db").events(after=-1) == truth


def test_create_without_links_and_in_a_race(tmp_path, monkeypatch):
    def no_links(a, b): raise PermissionError("no links here")
    monkeypatch.setattr(os, "link", no_links)
    assert Journal.create(tmp_path/"j.db", {"a": 1}).header == {"a": 1}
    with pytest.raises(ValueError, match="is there already"): Journal.create(tmp_path/"j.db", {})
    assert [p.name for p in tmp_path.iterdir()] == ["j.db"]


def test_clock_set_back(tmp_path, monkeypatch):
    j, times = Journal.create(tmp_path/"j.db", {}), [f"20{y}-01-01T00:00:00" for y in (30, 10, 20)]
    for i, t in enumerate(times):
        monkeypatch.setattr(room, "clock", lambda: t)
        j.append("tell", {"i": i})
    found = [(e.time, e.data["i"]) for e in Journal.open(j.path).events()]
    assert found == list(zip(times, range(3)))


def test_a_block_is_one_change(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    with j.writing(), j.writing():
        j.append("a", {})
        assert [e.kind for e in j.events()] == ["a"] and Journal.open(j.path).events() == []
        j.append("b", {})
    assert [e.kind for e in Journal.open(j.path).events()] == ["a", "b"]
    with pytest.raises(KeyboardInterrupt), j.writing():
        j.append("c", {})
        raise KeyboardInterrupt
    assert [e.kind for e in j.events()] == ["a", "b"] and j.append("c", {}) == 3


def test_a_failed_append_spoils_its_block(tmp_path, monkeypatch):
    j = Journal.create(tmp_path/"j.db", {})
    with pytest.raises(OSError, match="nothing was written"), j.writing():
        j.append("a", {})
        monkeypatch.setattr(room, "link", lambda previous, row: None)       # NOT NULL refuses it
        with pytest.raises(ValueError): j.append("b", {})
        monkeypatch.undo()
        with pytest.raises(OSError, match="failed before"): j.append("c", {})
    assert j.events() == Journal.open(j.path).events() == []


def test_the_file_refuses_changes(tmp_path):
    truth = filled(tmp_path/"j.db", 4)
    with contextlib.closing(sqlite3.connect(tmp_path/"j.db")) as db:
        for sql in ("DELETE FROM events", "UPDATE events SET note = ''",
                    "INSERT OR REPLACE INTO events VALUES (2,'','','','{}','','')",
                    "INSERT INTO events VALUES (9,'','','','{}','','')",
                    "INSERT INTO events VALUES (NULL,'','','','{}','','')"):
            with pytest.raises(sqlite3.IntegrityError): db.execute(sql)
    assert Journal.open(tmp_path/"j.db").events(after=-1) == truth


# several at once

def test_threads(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    def work(k):
        for i in range(5): j.append("tell", {"k": k, "i": i})
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    found = [(e.data["k"], e.data["i"]) for e in Journal.open(j.path).events()]
    assert all([i for k, i in found if k == me] == list(range(5)) for me in range(4))
    with j.writing():
        other = []
        def impatient():
            try: j.writing(timeout=0).__enter__()
            except JournalBusy as e: other.append(str(e))
        t = threading.Thread(target=impatient)
        t.start(); t.join()
    assert "another thread" in other[0]


def test_two_programs_take_turns(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    code = ("j = Journal.open(sys.argv[1], author=sys.argv[2])\n"
            "for i in range(25):\n"
            "    with j.writing(timeout=60.): j.append('tell', {'i': i, 'of': len(j.events())})\n")
    runs = [python(code, j.path, name) for name in "ab"]
    for run in runs: assert run.communicate()[1] == ""
    events = Journal.open(j.path).events()
    assert [e.data["of"] for e in events] == list(range(50))      # each had read all before it
    for name in "ab": assert [e.data["i"] for e in events if e.author == name] == list(range(25))
    assert j.events() == events and [p.name for p in tmp_path.iterdir()] == ["j.db"]


def test_a_writer_tries_again_while_another_program_has_the_file(tmp_path, monkeypatch):
    "The other one lets go while we wait, which is once"
    j, waits = Journal.create(tmp_path/"j.db", {}), []
    with contextlib.closing(connect(j.path, "rw")) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(room.time, "sleep", lambda s: (waits.append(s), other.rollback()))
        assert j.append("tell", {}) == 1 and len(waits) == 1


def test_the_second_writer_is_told_who_holds_it(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    run = python("with Journal.open(sys.argv[1], author='bob').writing():\n"
                 "    print('in', flush=True); time.sleep(600)", j.path)
    assert run.stdout.readline() == "in\n"
    with pytest.raises(JournalBusy, match=rf"bob \(process {run.pid} on .*since 2") as e:
        with j.writing(timeout=.05): pass
    assert is_sentence(e.value, j.path) and j.events() == []
    done = []
    waiting = threading.Thread(target=lambda: done.append(python(
        "j = Journal.open(sys.argv[1])\n"
        "with j.writing(timeout=60.): print(j.append('tell', {}))", j.path).communicate()))
    waiting.start()
    run.kill(); run.communicate()                                 # while the other one waits
    waiting.join()
    assert done == [("1\n", "")] and len(j.events()) == 1
    assert not name_plate(j.path).exists()


@pytest.mark.parametrize("name", ["journal.db.writer.new", "journal.db.writer.json",
                                  "journal.db-journal", "journal.db-wal", ".journal.db"])
@pytest.mark.parametrize("target", ["file", "nowhere"])
def test_links_are_not_followed(tmp_path, name, target):
    "Whoever can write to the folder lays a link under a name that the journal will use"
    (tmp_path/"lab").mkdir()
    (tmp_path/"precious").write_text("precious")
    j = Journal.create(tmp_path/"lab/journal.db", {})
    link = tmp_path/"lab"/name
    link.symlink_to(tmp_path/("precious" if target == "file" else "nowhere"))
    with contextlib.suppress(OSError, ValueError): j.append("tell", {"value": 1})
    assert (tmp_path/"precious").read_text() == "precious"
    assert not (tmp_path/"nowhere").exists()
    link.unlink(missing_ok=True)
    with Journal.open(j.path) as again: assert again.append("tell", {"value": 2}) in (1, 2)


def test_a_new_journal_is_made_under_a_name_that_was_free(tmp_path, monkeypatch):
    monkeypatch.setattr(room.secrets, "token_hex", lambda n: "00"*n)
    (tmp_path/"precious").write_text("")
    (tmp_path/(".j.db." + "00"*8)).symlink_to(tmp_path/"precious")
    with pytest.raises(OSError, match="cannot make"): Journal.create(tmp_path/"j.db", {})
    assert (tmp_path/"precious").read_text() == "" and not (tmp_path/"j.db").exists()


def test_the_half_made_name_of_an_earlier_version_is_cleared_away(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    left = tmp_path/"j.db.writer.new"
    left.write_text(json.dumps(dict(author="ada", host="here", pid=1, since="then")))
    j.append("tell", {})
    assert not left.exists()
    left.write_text("notes of my own")
    j.append("tell", {})
    assert left.read_text() == "notes of my own"


def test_names_that_were_left_behind_are_not_believed(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    run = python("with Journal.open(sys.argv[1], author='bob').writing():\n"
                 "    os.kill(os.getpid(), signal.SIGKILL)", j.path)
    run.communicate()
    assert "bob" in name_plate(j.path).read_text()
    with contextlib.closing(connect(j.path, "rw")) as db:
        db.execute("BEGIN IMMEDIATE")
        for text in (name_plate(j.path).read_text(), "", "{", "[]", '{"host": 3}'):
            name_plate(j.path).write_text(text)
            with pytest.raises(JournalBusy, match="did not leave its name"):
                with j.writing(timeout=0): pass
    assert j.append("tell", {}) == 1 and not name_plate(j.path).exists()


# stopped at any moment

KILLS = """
import random
path, n, rng = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
j = Journal.open(path)
before, hot = j.events(after=-1), 0
for _ in range(n):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        while True:
            seq = len(j.rows)
            if seq % 3: last = j.append('tell', {'seq': seq, 'text': str(seq)*50})
            else: last = j.extend([('tell', {'seq': seq + i, 'text': str(seq + i)*50})
                                   for i in range(20)])
            os.write(w, f'{last} '.encode())
    time.sleep(.04*rng.random())
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); os.close(w)
    with os.fdopen(r) as f: acknowledged = f.read().split()
    hot += os.path.exists(path + '-journal')
    j = Journal.open(path)
    events, seen = j.events(after=-1), len(before)
    last = int(acknowledged[-1]) if acknowledged else seen - 1
    assert events[:seen] == before and len(events) > last, (len(events), last)
    assert len(events) - 1 - last in (0, 1, 20)          # at most the change that was under way
    for e in events[seen:]: assert e.data == {'seq': e.seq, 'text': str(e.seq)*50}, e
    before = events
print(len(events), hot)
"""


def test_kill_at_random_moments(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    out, err = python(KILLS, j.path, 80, 0).communicate()
    assert err == "" and len(j.events(after=-1)) == int(out.split()[0])
    j.check()
    j.append("tell", {})
    assert [p.name for p in tmp_path.iterdir()] == ["j.db"]


HALF_DONE = """
j = Journal.open(sys.argv[1])
with j.writing():
    j.extend([('tell', {'text': 'x'*4000})]*1000)       # more than SQLite keeps in memory
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_half_written_pages_are_put_back(place):
    truth, path = filled(place/"j.db"), place/"j.db"
    size = path.stat().st_size
    python(HALF_DONE, path).communicate()
    assert path.stat().st_size > size and (place/"j.db-journal").stat().st_size
    with sealed(place): assert "copy the whole folder" in refused(path)
    shutil.copytree(place, place/"copy")
    assert salvage(place/"copy/j.db") == truth
    assert Journal.open(path).events(after=-1) == truth and path.stat().st_size == size
    assert not (place/"j.db-journal").exists()


def test_kill_while_creating(tmp_path):
    run = python("for i in range(10**6):\n"
                 "    Journal.create(f'{sys.argv[1]}/{i}.db', {'i': i})\n"
                 "    print(i, flush=True)", tmp_path)
    made = [run.stdout.readline() for _ in range(3)]
    run.kill()
    made += run.communicate()[0].splitlines()
    found = {int(p.stem) for p in tmp_path.iterdir() if not p.name.startswith(".")}
    assert {int(i) for i in made} <= found                       # hidden files may be left behind
    for i in found: assert Journal.open(tmp_path/f"{i}.db").header == {"i": i}


# disks and folders that say no

FILL = """
import resource
path, room = sys.argv[1], int(sys.argv[2])
j = Journal.open(path)
endless = resource.RLIM_INFINITY
if room: resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + room, endless))
last = 0
try:
    while True: last = j.extend([('tell', {'text': 'x'*300})]*3)
except OSError as e: text = str(e)
assert len(j.events()) == last == len(Journal.open(path).events())
if room: resource.setrlimit(resource.RLIMIT_FSIZE, (endless, endless))
print(last, text)
"""


def full_disk(path, room):
    out, err = python(FILL, path, room).communicate()
    assert err == ""
    last, text = out.strip().split(" ", 1)
    assert is_sentence(text, path) and "cannot" in text and "what it held before is intact" in text
    j = Journal.open(path)
    assert len(j.events()) == int(last) > 0
    return j


@pytest.mark.parametrize("room", [9000, 40000])
def test_no_room(tmp_path, room):
    j = full_disk(Journal.create(tmp_path/"j.db", {}).path, room)
    assert j.append("tell", {}) == len(j.events())


def test_full_disk(place):
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(place)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount).returncode:
        pytest.skip("only root can mount a small disk; test_no_room stands in")
    try:
        j = full_disk(Journal.create(place/"j.db", {}).path, 0)
        (place/"fill").write_bytes(b"")
        with contextlib.suppress(OSError), (place/"fill").open("wb", 0) as f:
            while True: f.write(b"x"*512)
        with pytest.raises(OSError, match="cannot make") as e: Journal.create(place/"k.db", {})
        assert is_sentence(e.value, place/"k.db")
        assert sorted(p.name for p in place.iterdir()) == ["fill", "j.db"]
        truth = j.events()
        (place/"fill").unlink()
        assert j.append("tell", {}) == len(truth) + 1
    finally: subprocess.run(["umount", str(place)], check=True)


def test_read_only_places(place):
    truth, path = filled(place/"j.db"), place/"j.db"
    before = path.read_bytes()
    with sealed(place):
        j = Journal.open(path)
        assert j.readonly and j.events(after=-1) == truth
        with pytest.raises(ValueError, match="read-only place") as e: j.append("tell", {})
        assert is_sentence(e.value, path)
        with pytest.raises(OSError, match="cannot make"): Journal.create(place/"k.db", {})
    for folder, file in ((0o555, 0o644), (0o777, 0o444)):         # only one of the two
        place.chmod(folder); path.chmod(file)
        with ordinary_user(): assert Journal.open(path).readonly
    assert path.read_bytes() == before and not Journal.open(path).readonly
    path.chmod(0)
    with ordinary_user(): assert "permissions" in refused(path, OSError)


def test_a_writer_goes_on_while_a_read_only_reader_looks(place):
    j = Journal.create(place/"j.db", {})
    with sealed(place): reader = Journal.open(j.path)
    j.append("tell", {})
    assert reader.readonly and len(reader.events()) == 1


# damage

def test_places_without_a_journal(tmp_path):
    for path, words in ((tmp_path/"none.db", "there is no journal"), (tmp_path, "is a folder")):
        assert words in refused(path)
        with pytest.raises(ValueError, match=words): salvage(path)
    path = tmp_path/"j.db"
    for content, words in ((b"", "is empty"), (b"a shopping list", "not a database"),
                           (b"x"*5000, "not a database"), (bytes(5000), "not a database")):
        path.write_bytes(content)
        assert words in refused(path, DamagedJournal) and path.read_bytes() == content
        assert salvage(path) == []
        with pytest.raises(ValueError, match="no event"): salvage(path, tmp_path/"new.db")
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db: db.execute("CREATE TABLE events (a, b)")
    assert "no journal of this package" in refused(path, DamagedJournal)


def survives(path, truth):
    "Whether a damaged file is read; it must be found out, or be read as it was."
    try: found = Journal.open(path).events(after=-1)
    except ValueError as e: assert is_sentence(e, path)
    else:
        assert found == truth
        return True
    good = salvage(path)
    assert good == truth[:len(good)]
    return False


def test_truncated(tmp_path):
    truth = filled(tmp_path/"j.db", 40)
    whole, bad = (tmp_path/"j.db").read_bytes(), tmp_path/"bad.db"
    for cut in {*range(0, len(whole), 331), *range(0, len(whole), 4096), 1, 99, len(whole) - 1}:
        bad.write_bytes(whole[:cut])
        assert not survives(bad, truth), cut
    bad.write_bytes(whole[:-4096])                               # the last page is missing
    assert 0 < len(salvage(bad)) < len(truth)


def test_flipped_bits(tmp_path):
    truth, rng, read = filled(tmp_path/"j.db", 40), random.Random(0), 0
    whole, bad = (tmp_path/"j.db").read_bytes(), tmp_path/"bad.db"
    used = [i for i, byte in enumerate(whole) if byte]
    places = [*range(100), *rng.sample(range(len(whole)), 100), *rng.sample(used, 100)]
    for at in places:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        bad.write_bytes(broken)
        read += survives(bad, truth)
        for p in tmp_path.glob("bad.db-*"): p.unlink()
    assert 0 < read < len(places)


def test_overwritten_pieces(tmp_path):
    truth, rng = filled(tmp_path/"j.db", 40), random.Random(1)
    whole, bad = (tmp_path/"j.db").read_bytes(), tmp_path/"bad.db"
    for size in (2, 16, 512, 4096):
        for _ in range(20):
            at = rng.randrange(0, len(whole) - size, min(size, 512))
            bad.write_bytes(whole[:at] + rng.choice([bytes(size), rng.randbytes(size)])
                            + whole[at + size:])
            survives(bad, truth)
            for p in tmp_path.glob("bad.db-*"): p.unlink()


def test_damaged_words_of_the_tables(tmp_path):
    truth = filled(tmp_path/"j.db", 40)
    whole, bad = (tmp_path/"j.db").read_bytes(), tmp_path/"bad.db"
    for word in (b"time TEXT", b"UPDATE head", b"CREATE TABLE events"):
        for at in range(whole.find(word), whole.find(word) + len(word), 2):
            bad.write_bytes(whole[:at] + bytes([whole[at] ^ 128]) + whole[at + 1:])
            survives(bad, truth)                                 # SQLite's own words are no text


def test_lost_pages(tmp_path):
    truth, path = filled(tmp_path/"j.db"), tmp_path/"j.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for sql in ("CREATE TABLE x (a)", "INSERT INTO x VALUES (zeroblob(9000))", "DROP TABLE x"):
            db.execute(sql)
    whole = path.read_bytes()
    path.write_bytes(whole[:32] + bytes(8) + whole[40:])         # no list of free pages any more
    assert "never used" in refused(path, DamagedJournal) and salvage(path) == truth


def test_numbers_must_follow_each_other():
    rows = [(0, "a"), (2, "b")]
    hashes = [link("", rows[0]), link(link("", rows[0]), rows[1])]
    assert list(room.intact([(*r, h) for r, h in zip(rows, hashes)])) == [(0, "a", hashes[0])]


def tampered(path, *statements):
    "Change the file behind the triggers' back."
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for name in ("in_order", "unchanged", "kept", "counted"): db.execute(f"DROP TRIGGER {name}")
        for statement in statements: db.execute(statement)


@pytest.mark.parametrize("statement, good", [
    ("UPDATE events SET data = '{}' WHERE seq = 7", 7), ("DELETE FROM events WHERE seq = 7", 7),
    ("UPDATE events SET time = '2020' WHERE seq = 0", 0), ("DELETE FROM events", 0),
    ("DELETE FROM events WHERE seq = 12", 12), ("UPDATE head SET events = 12", 13),
    ("UPDATE head SET hash = 'x'", 13), ("DELETE FROM head", 13), ("DROP TABLE head", 13),
    ("UPDATE events SET author = NULL || author WHERE seq = 7", 13),
    ("UPDATE events SET data = CAST(data AS BLOB) WHERE seq = 7", 7),
    ("UPDATE head SET schema = 0", 13), ("PRAGMA user_version=0", 13),
    ("PRAGMA user_version=2", 13), ("DROP TABLE events", 0)])
def test_tampered(tmp_path, statement, good):
    truth, path = filled(tmp_path/"j.db"), tmp_path/"j.db"
    try: tampered(path, statement)
    except sqlite3.IntegrityError: return                        # the table itself refused
    text = refused(path, DamagedJournal)
    assert salvage(path) == truth[:good]
    assert (f"events 0 to {good - 1} are good" if good else "no event can be read") in text
    if good:
        assert salvage(path, tmp_path/"new.db") == truth[:good]
        new = Journal.open(tmp_path/"new.db")
        assert new.events(after=-1) == truth[:good] and new.append("tell", {}) == good
        with pytest.raises(ValueError, match="is there already"): salvage(path, tmp_path/"new.db")


def test_replaced_while_open(tmp_path):
    filled(tmp_path/"j.db", 3)
    shutil.copy(tmp_path/"j.db", tmp_path/"old.db")
    j = Journal.open(tmp_path/"j.db")
    j.append("tell", {})
    shutil.copy(tmp_path/"old.db", j.path)
    for work in (j.events, lambda: j.append("tell", {})):
        with pytest.raises(DamagedJournal, match="another file has taken its place"): work()
    j.path.unlink()
    for work in (j.events, lambda: j.append("tell", {})):
        with pytest.raises(ValueError, match="there is no journal"): work()
    assert not j.path.exists()


def test_damage_stops_the_next_append(tmp_path):
    filled(tmp_path/"j.db", 3)
    j = Journal.open(tmp_path/"j.db")
    tampered(j.path, "UPDATE head SET hash = 'x'")
    before = j.path.read_bytes()
    with pytest.raises(DamagedJournal): j.append("tell", {})
    assert j.path.read_bytes() == before


# old and new files

def test_stored_journal_of_schema_1(tmp_path):
    path = shutil.copy(STORED, tmp_path/"j.db")
    j = Journal.open(path)
    assert (j.version, j.header) == (1, {"maximize": True, "pool": "5f3a", "seed": 7})
    assert j.events() == [
        Event(1, "2024-05-06T07:08:10.000+00:00", "ada@lab", "ask", {"arms": [3, 17, 5]}, ""),
        Event(2, "2024-05-06T07:08:09.000+00:00", "bob@office", "tell",
              {"arms": [3, 17], "values": [0.1, -2.5e-07]}, "the clock was set back, größer"),
        Event(3, "2024-05-07T00:00:00.000+00:00", "ada@lab", "undo", {"seq": 2}, "mistyped")]
    assert j.rows[-1][-1] == "6a82745a7aa7b62cbeb466d5c171df51a99ca4db92e5388cc7e5c16d7d4495f1"
    assert j.append("tell", {}) == 4
    with contextlib.closing(sqlite3.connect(STORED)) as db:      # as any other program reads it
        rows = db.execute("SELECT * FROM events ORDER BY seq").fetchall()
    assert json.loads(rows[1][4]) == {"arms": [3, 17, 5]} and rows[0][-1] == link("", rows[0][:-1])


def schema_0(path):
    "An invented schema: no authors, no notes, the kind under another name."
    rows, previous = [(0, "mon", "created", '{"seed":3}'), (1, "tue", "tell", '{"arm":1}')], ""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE head (schema INTEGER, package TEXT, events INTEGER, hash TEXT)")
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, time, what, data, hash)")
        for row in rows:
            previous = link(previous, row)
            db.execute("INSERT INTO events VALUES (?,?,?,?,?)", (*row, previous))
        db.execute("INSERT INTO head VALUES (0, '0.0.1', 2, ?)", (previous,))
        db.execute(f"PRAGMA application_id={room.APPLICATION}")
    return [Event(0, "mon", "?", "created", {"seed": 3}, ""),
            Event(1, "tue", "?", "tell", {"arm": 1}, "")]


def from_0(event):
    return event | {"kind": event["what"], "author": "?", "note": ""}


def test_migration(place, monkeypatch):
    truth, path = schema_0(place/"j.db"), place/"j.db"
    before = path.read_bytes()
    assert "schema 0 is none that was ever written" in refused(path, DamagedJournal)
    monkeypatch.setitem(room.MIGRATIONS, 0, from_0)
    with sealed(place):
        j = Journal.open(path)                                   # read as it is
        assert (j.version, j.header, j.events(after=-1)) == (0, {"seed": 3}, truth)
    assert path.read_bytes() == before and salvage(path) == truth
    both, late = (Journal(path), Journal(path)), Journal(path)
    for j in (*both, late): j.check()
    row = (2, "wed", "tell", '{"arm":2}')                        # an old program is still writing
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("INSERT INTO events VALUES (?,?,?,?,?)", (*row, link(both[0].rows[-1][-1], row)))
        db.execute("UPDATE head SET events = 3, hash = (SELECT hash FROM events WHERE seq = 2)")
    truth.append(Event(2, "wed", "?", "tell", {"arm": 2}, ""))
    for j in both: j.migrate()                                   # the second finds it done
    assert [(j.version, j.events(after=-1)) for j in both] == [(1, truth)]*2
    for work in (late.events, lambda: late.append("tell", {})):
        with pytest.raises(ValueError, match="now has schema 1.*open it again"): work()
    assert both[1].append("tell", {}) == 3 and len(both[0].events()) == 3
    assert sorted(p.name for p in place.iterdir()) == ["j.db", "j.db.schema0"]
    shutil.copy(place/"j.db.schema0", place/"again.db")
    assert Journal.open(place/"again.db").events(after=-1) == truth


@pytest.fixture
def disk(monkeypatch):
    "What is sent to the disk and which names are given, in order"
    log, names = [], {}
    opened, fsync = os.open, os.fsync
    def open_and_note(path, *rest, **more):
        fd = opened(path, *rest, **more)
        names[fd] = Path(path)
        return fd
    monkeypatch.setattr(os, "open", open_and_note)
    monkeypatch.setattr(os, "fsync", lambda fd: (log.append(("sync", names[fd])), fsync(fd)))
    for name in ("link", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda a, b, real=real: (log.append((a, b)), real(a, b)))
    return log


def test_a_new_journal_is_on_the_disk_before_it_has_its_name(tmp_path, disk):
    "Power that fails at any moment leaves the whole file under its name, or no file"
    Journal.create(tmp_path/"j.db", {})
    new = disk[0][1]
    assert new.name.startswith(".j.db.") and new.parent == tmp_path
    assert disk == [("sync", new), (new, tmp_path/"j.db"), ("sync", tmp_path)]


def test_the_old_file_is_on_the_disk_before_a_migration_begins(tmp_path, disk, monkeypatch):
    schema_0(tmp_path/"j.db")
    monkeypatch.setitem(room.MIGRATIONS, 0, from_0)
    laid = room.lay_out
    monkeypatch.setattr(room, "lay_out", lambda *a: (disk.append("tables"), laid(*a)))
    Journal.open(tmp_path/"j.db")
    new = disk[0][1]
    assert disk == [("sync", new), (new, tmp_path/"j.db.schema0"), ("sync", tmp_path), "tables"]


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_how_a_file_is_opened(tmp_path, mode):
    "Every transaction reaches the disk with its folder, and nothing in the file is believed"
    filled(tmp_path/"j.db")
    with contextlib.closing(connect(tmp_path/"j.db", mode)) as db:
        said = {p: db.execute(f"PRAGMA {p}").fetchone()[0] for p in
                ("synchronous", "journal_mode", "trusted_schema", "cell_size_check",
                 "writable_schema")}
    assert said == dict(synchronous=3, journal_mode="delete", trusted_schema=0, cell_size_check=1,
                        writable_schema=0)


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    schema_0(tmp_path/"j.db")
    before = (tmp_path/"j.db").read_bytes()
    monkeypatch.setitem(room.MIGRATIONS, 0, from_0)
    monkeypatch.setattr(room, "link", lambda previous, row: (
        link(previous, row) if len(row) == 4 or not row[0] else None))
    with pytest.raises(ValueError): Journal.open(tmp_path/"j.db")
    monkeypatch.undo()
    monkeypatch.setitem(room.MIGRATIONS, 0, from_0)
    assert (tmp_path/"j.db").read_bytes() == before
    assert Journal.open(tmp_path/"j.db").version == 1


def test_a_newer_schema_is_refused(tmp_path):
    filled(tmp_path/"j.db")
    tampered(tmp_path/"j.db", "UPDATE head SET schema = 4, package = '2.1.0'",
             "ALTER TABLE events RENAME COLUMN note TO remark", "PRAGMA user_version=4")
    assert "install gnn_bandits 2.1.0 or newer" in refused(tmp_path/"j.db")


# the size of it

def test_ten_thousand_events(tmp_path):
    j = Journal.create(tmp_path/"j.db", {})
    j.extend([("tell", {"arm": i, "value": i/7}) for i in range(10_000)])
    j = Journal.open(j.path)
    assert [e.data["arm"] for e in j.events()] == list(range(10_000))
    assert j.append("tell", {}) == 10_001 and len(j.events(after=9_990)) == 11


def test_import_is_light():
    out, err = python("print('torch' in sys.modules, 'numpy' in sys.modules)").communicate()
    assert (out, err) == ("False False\n", "")


def test_stored_texts():
    assert as_stored("a", {"b": 1, "a": (1, 2)}) == ("a", '{"a":[1,2],"b":1}', "")
