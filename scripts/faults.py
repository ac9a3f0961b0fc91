"""Break campaigns on purpose and count what is lost. Writes tables in nbs/results.

Usage: python scripts/faults.py [--part P …] [--scale K] [--seed S] [--minutes M] [--out FOLDER]

The part `faults` writes faults.csv (200 faults with the default scale). The parts `files`, `calls`
and `kills` write robustness.csv: random files for every loader, random sequences of calls beside a
plain model, and kills of processes at random moments; scripts/fuzz_files.py and fuzz_calls.py say
what is judged. The part `power` writes power.csv: simulated power cuts (scripts/power.py) and a
disk that is full at each write. Whatever breaks the contract is printed with its seed and its
input. The parts of robustness.csv go on with new seeds for `--minutes`; `--seed` is where the seeds
begin.

Every fault is tried on a copy of one small campaign. `acknowledged` counts the measurements whose
`tell` had returned, before the fault or in spite of it; `lost` those of them that the campaign no
longer has although it opens, or all of them if it opens and differs in any other way; `unreadable`
campaigns that do not open; `refused` operations that fail and leave everything as it was. Both say
so in one sentence, and `message` is one of these. tests/test_campaign_faults.py tries the same
faults, fewer times.
"""
import argparse
import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from fuzz_calls import beginnings, sequence                         # the scripts beside this one
from fuzz_files import (LARGE, LOADERS, Broken, count, fork, fuzz, heard, must, program, record,
                        six)
from power import after_cut, full_from, recorded

import gnn_bandits.journal as journal_room
from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign
from gnn_bandits.logbook import effective
from gnn_bandits.core import write_table
from gnn_bandits.graphs import GraphDomain

MOMENT = "2031-02-03T04:05:06.000+00:00"


# the campaign that is broken, again and again

def graphs(n, seed=0):
    "A small pool"
    return GraphDomain.erdos_renyi(n, 5, 0.4, 3, np.random.default_rng(seed))


def make(folder):
    "A campaign of 24 graphs with eight measurements, two pending and one excluded candidate"
    X = graphs(24)
    c = Campaign.create(folder, X, ids=[f"g{i:02}" for i in range(24)], prior=Prior.gntk(X),
                        noise_std=0.1)
    c.tell([f"g{i:02}" for i in range(6)], [i/3 for i in range(6)])
    c.tell("g07", 2.5, note="by hand"), c.tell("g00", 0.25, noise=0.3)
    c.ask(2), c.exclude("g20", "not in stock")
    c.close()
    return folder


def content(c):
    "All that a campaign knows, in a form that can be compared"
    rows = c.observations
    rows = rows.assign(noise=rows["noise"].fillna(-1))
    told = list(rows[["event", "id", "value", "noise", "note"]].itertuples(index=False, name=None))
    return dict(told=told, states=c._record.states().tolist(), ids=list(c.ids), n=len(c),
                settings=c.settings, pending=c.pending["id"].tolist(), policy=c.policy)


def sentence(error):
    "The message of an error, which must be one sentence of ours"
    assert isinstance(error, (ValueError, OSError)), repr(error)
    text = str(error)
    assert text and "\n" not in text and len(text) < 700 and "Traceback" not in text, repr(error)
    return text


def outcome(acknowledged, lost=0, unreadable="", refused=""):
    return dict(acknowledged=acknowledged, lost=lost, unreadable=int(bool(unreadable)),
                refused=int(bool(refused)), message=unreadable or refused)


# operations that are interrupted; number k of each is one event

def tell(c, k): c.tell([f"g{(k + j) % 20:02}" for j in range(3)], [k + j/8 for j in range(3)])
def ask(c, k): c.drop() if k % 2 else c.ask(2)
def undo(c, k): c.undo() if k % 2 else tell(c, k)
def add(c, k): c.add(graphs(2, 100 + k), [f"new{k}-{j}" for j in range(2)], prior=longer(c, 2))


def longer(c, n):
    "A prior for a campaign and n new candidates; any will do here"
    return Prior.kernel(torch.eye(len(c) + n, dtype=torch.float64))


OPERATIONS = dict(tell=tell, ask=ask, undo=undo, add=add)
KINDS = dict(tell=["tell"], ask=["ask", "drop"], undo=["tell", "undo"], add=["add"])


def at_step(n, act):
    "Act at the n-th function that is called or left from now on"
    left = n
    def count(frame, event, arg):
        nonlocal left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            act()
    sys.setprofile(count)


def steps(operation, folder):
    "Functions called and left by one operation"
    n = 0
    def count(*_):
        nonlocal n
        n += 1
    with copied(folder) as f, Campaign.open(f) as c:
        operation(c, 0)
        sys.setprofile(count)
        operation(c, 1)
        sys.setprofile(None)
    return n


@contextlib.contextmanager
def copied(folder):
    "A copy of a folder, where other users may look at it too"
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    try: yield Path(shutil.copytree(folder, home/"lab"))
    finally: shutil.rmtree(home)


def check_after(folder, name, done, before):
    "A campaign after a crash: what was acknowledged is there, and at most one operation more"
    with Campaign.open(folder) as c:
        c.journal.check()
        new = c.journal.events(after=before)
        assert done <= len(new) <= done + 1, (name, done, [e.kind for e in new])
        kinds = KINDS[name]
        assert [e.kind for e in new] == [kinds[k % len(kinds)] for k in range(len(new))]
        for k, e in enumerate(new):
            if e.kind != "tell": continue
            assert e.data["arms"] == [(k + j) % 20 for j in range(3)], e
            assert e.data["values"] == [k + j/8 for j in range(3)], e
        if name == "add":
            assert len(c) == 24 + 2*len(new) == len(c.domain) and len(set(c.ids)) == len(c)
        acknowledged = [e.seq for e in effective(c.journal.events()) if e.kind == "tell"]
        missing = len({s for s in acknowledged} - set(c.observations["event"]))
        state = content(c)
    with Campaign.open(folder) as c:
        assert content(c) == state
        c.tell("g15", 1.)                                     # and it goes on
        assert content(c)["told"][:-1] == state["told"]
    tells = [e for e in new[:done] if e.kind == "tell"]
    return outcome(8 + 3*len(tells), missing)


def killed(name):
    "kill -9 while an operation is repeated, at a random step of it or after a random time"
    def fault(base, rng, memory={}):                          # noqa: B006
        if name not in memory: memory[name] = steps(OPERATIONS[name], base)
        by_step, delay = bool(rng.integers(2)), float(rng.uniform(0, 0.06))
        n = int(rng.integers(1, 3*memory[name]))
        with copied(base) as folder:
            before = len(Campaign.open(folder).journal.events())
            def work(write):
                with Campaign.open(folder) as c:
                    write("begin")
                    if by_step: at_step(n, lambda: os.kill(os.getpid(), signal.SIGKILL))
                    for k in range(10**6):
                        OPERATIONS[name](c, k)
                        write("done")
            pid, pipe = fork(work)
            if not by_step:
                assert os.read(pipe, 6) == b"begin\n"
                time.sleep(delay)
                os.kill(pid, signal.SIGKILL)
            lines = heard(pid, pipe, must_end=False)
            return check_after(folder, name, lines.count("done"), before)
    return fault


def interrupted(base, rng, memory={}):                        # noqa: B006
    "Ctrl-C at a random step of an operation; the campaign in memory must agree with the disk"
    name = str(rng.choice(list(OPERATIONS)))
    if name not in memory: memory[name] = steps(OPERATIONS[name], base)
    def stop(): raise KeyboardInterrupt
    with copied(base) as folder, Campaign.open(folder) as c:
        before, done = len(c.journal.events()), 0
        try:
            at_step(int(rng.integers(1, 2*memory[name])), stop)
            for k in range(2):
                OPERATIONS[name](c, k)
                done += 1
        except KeyboardInterrupt: pass
        finally: sys.setprofile(None)
        with Campaign.open(folder) as fresh: assert content(fresh) == content(c), name
        return check_after(folder, name, done, before)


# disks and folders

def refuses(c, operation, k=0):
    "The sentence with which an operation is refused, empty if it succeeds"
    try: operation(c, k)
    except (ValueError, OSError) as e: return sentence(e)
    return ""


def full_disk(base, rng):
    "No file can grow, or the database has no free page: the operation fails, nothing changes"
    name, pages = str(rng.choice(["tell", "ask", "add"])), bool(rng.integers(2))
    def work(write):
        with Campaign.open(folder) as c:
            if pages and name != "add":
                plain = journal_room.connect
                def connect(*args, **options):
                    db = plain(*args, **options)
                    size, = db.execute("PRAGMA page_count").fetchone()
                    db.execute(f"PRAGMA max_page_count={size}")
                    return db
                journal_room.connect = connect
            else:
                room = int(rng.integers(1, 600))
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            if name == "tell":
                big = lambda c, k: c.tell(["g10"], [1.], note="x"*20000)
                write(refuses(c, big))
            elif name == "ask": write(refuses(c, lambda c, k: c.ask(2, note="x"*20000)))
            else: write(refuses(c, add))
    with copied(base) as folder:
        with Campaign.open(folder) as c: before = content(c)
        message, = heard(*fork(work))
        assert message, "a full disk was not noticed"
        with Campaign.open(folder) as c:
            assert content(c) == before
            c.tell("g15", 1.)
        return outcome(8, refused=message)


def read_only(base, rng):
    "A folder that cannot be written: it predicts and refuses to tell"
    operation = OPERATIONS[str(rng.choice(list(OPERATIONS)))]
    def work(write):
        if os.geteuid() == 0: os.setuid(65534)
        with Campaign.open(folder) as c:
            assert c.readonly and len(c.predict()) == 24 and len(c.suggest(2)) == 2
            assert len(c.observations) == 8
            write(refuses(c, operation))
    with copied(base) as folder:
        for p in folder.iterdir(): p.chmod(0o444)
        folder.chmod(0o555)
        message, = heard(*fork(work))
        folder.chmod(0o755)
        assert "read-only" in message, message
        with Campaign.open(base) as one, Campaign.open(folder) as two:
            assert content(one) == content(two)
        return outcome(8, refused=message)


# damaged files

def damaged(name, flip):
    "A file that was cut, or in which one bit is wrong: refused, or everything as it was"
    def fault(base, rng):
        with Campaign.open(base) as c: before = content(c)
        with copied(base) as folder:
            file = folder/name
            data = bytearray(file.read_bytes())
            if flip: data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            else: del data[int(rng.integers(len(data))):]
            file.write_bytes(data)
            try:
                with Campaign.open(folder) as c:
                    after = content(c)
                    c.surrogate()
            except (ValueError, OSError) as e: return outcome(8, unreadable=sentence(e))
            same = after == before
            gone = len(set(before["told"]) - set(after["told"]))
            return outcome(8, lost=gone if gone or same else 8)
    return fault


# others at work

def two_writers(base, rng):
    "Two processes tell by turns: both records are there, each in its order"
    def work(write, who):
        with Campaign.open(folder) as c:
            for k in range(5):
                c.tell(f"g{10 + who}", float(k))
                write(str(k))
    with copied(base) as folder:
        children = [fork(lambda write: work(write, who)) for who in range(2)]
        done = [len(heard(*child)) for child in children]
        with Campaign.open(folder) as c:
            c.journal.check()
            told = c.observations
            for who in range(2):
                assert told.query(f"id == 'g{10 + who}'")["value"].tolist() == [0., 1., 2., 3., 4.]
        return outcome(8 + sum(done), 8 + sum(done) - len(told))


def busy(base, rng):
    "A writer that holds the file: the second is told who it is, and succeeds afterwards"
    def work(write):
        with Campaign.open(folder) as c, c.journal.writing():
            write("held")
            time.sleep(60)
    with copied(base) as folder, Campaign.open(folder) as c:
        pid, pipe = fork(work)
        assert os.read(pipe, 5) == b"held\n"
        def impatient(c, k):
            with c.journal.writing(timeout=0.05): tell(c, k)
        message = refuses(c, impatient)
        os.kill(pid, signal.SIGKILL)
        heard(pid, pipe, must_end=False)
        assert str(pid) in message, message
        tell(c, 0)
        assert len(c.observations) == 11
        return outcome(11, refused=message)


def clock_back(base, rng):
    "The clock is set back by years between two values: order and content stay"
    plain = journal_room.clock
    with copied(base) as folder, Campaign.open(folder) as c:
        told, k = len(c.observations), int(rng.integers(2, 5))
        try:
            for j in range(k):
                year = int(rng.integers(1971, 2031))
                journal_room.clock = lambda: f"{year}{MOMENT[4:]}"
                c.tell(f"g{10 + j}", float(j))
            c.undo()
        finally: journal_room.clock = plain
        with Campaign.open(folder) as fresh:
            assert content(fresh) == content(c)
            assert fresh.observations["value"].tolist()[told:] == [float(j) for j in range(k - 1)]
        return outcome(told + k - 1)


FAULTS = {"kill -9 during tell": (killed("tell"), 36), "kill -9 during ask": (killed("ask"), 18),
          "kill -9 during undo": (killed("undo"), 18), "kill -9 during add": (killed("add"), 18),
          "Ctrl-C": (interrupted, 24), "full disk": (full_disk, 16),
          "read-only folder": (read_only, 6),
          "journal cut": (damaged("journal.db", False), 12),
          "journal, one bit": (damaged("journal.db", True), 16),
          "graphs cut": (damaged("domain.npz", False), 3),
          "graphs, one bit": (damaged("domain.npz", True), 3),
          "table cut": (damaged("candidates.csv", False), 4),
          "table, one bit": (damaged("candidates.csv", True), 4),
          "settings cut": (damaged("campaign.json", False), 3),
          "settings, one bit": (damaged("campaign.json", True), 3),
          "two writers": (two_writers, 6), "writer that holds the file": (busy, 4),
          "clock set back": (clock_back, 6)}


def inject(name, times, base, seed=0):
    "One row of the table: a fault several times"
    fault, rng = FAULTS[name][0], np.random.default_rng([seed, list(FAULTS).index(name)])
    found = [fault(base, rng) for _ in range(times)]
    total = lambda key: sum(f[key] for f in found)
    message = next((f["message"] for f in found if f["message"]), "")
    for word in {w for w in message.split() if w.startswith(tempfile.gettempdir())}:
        message = message.replace(word, Path(word).name)
    message = re.sub(r"held by .*?;", "held by user@host (process …, since …);", message)
    return dict(fault=name, injections=times, acknowledged=total("acknowledged"),
                lost=total("lost"), unreadable=total("unreadable"), refused=total("refused"),
                message=message)


# the power supply, and a disk that is full

TURNS = 3          # operations in a row while the disk is watched

def begun(home):
    "What is left of a campaign whose creation may have been interrupted: opened, or nothing"
    lab = home/"lab"
    if not lab.exists(): return False
    with Campaign.open(lab) as c:
        c.journal.check()
        assert len(c) == len(c.domain) == 6 and c.observations["value"].tolist() == [1., 2.]
    return True


def watch(name, base, home):
    "The record of some operations in a folder that is there, or of the making of one"
    if name == "create":
        home.mkdir()
        with recorded(home) as record:
            X = graphs(6)
            Campaign.create(home/"lab", X, results={0: 1., 1: 2.}).close()
            record.look(), record.steps.append(("done",))
        return record, 0
    shutil.copytree(base, home/"lab")
    with Campaign.open(home/"lab") as c, recorded(home) as record:
        before = len(c.journal.events())
        for k in range(TURNS):
            OPERATIONS[name](c, k)
            record.look(), record.steps.append(("done",))
    return record, before


def power_cuts(name, base, times, seed=0, waits=True):
    """Power cuts at every step of some operations, each step about equally often: one row.

    waits: whether the disk tells the truth when a program waits for it"""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    out = dict(fault=f"power cut during {name}", steps=0, times=times, acknowledged=0, lost=0,
               unreadable=0)
    with tempfile.TemporaryDirectory() as room:
        record, before = watch(name, base, Path(room)/"home")
        out["steps"] = sum(step != ("done",) for step in record.steps)
        ends = rng.permutation(len(record.steps) + 1).tolist()
        for i in range(times):
            end = ends[i % len(ends)]
            done = record.steps[:end].count(("done",))
            with tempfile.TemporaryDirectory() as place:
                home = after_cut(record, end, rng, Path(place), waits)
                try:
                    if name == "create": lost, told = done*2*(not begun(home)), 2*done
                    else:
                        found = check_after(home/"lab", name, done, before)
                        lost, told = found["lost"], found["acknowledged"]
                except AssertionError: lost, told = max(1, done), max(1, done)
                except (ValueError, OSError) as e:
                    sentence(e)
                    lost, told = 0, max(1, done)
                    out["unreadable"] += 1
            out["acknowledged"] += told
            out["lost"] += lost
    return out


def full_at_every_write(name, base):
    "The disk is full from one write of the journal on, or for this one write only: one row"
    out = dict(fault=f"disk full during {name}", steps=0, times=0, acknowledged=0, lost=0,
               unreadable=0)
    with copied(base) as folder, Campaign.open(folder) as c, full_from(10**9) as count:
        OPERATIONS[name](c, 0)
    out["steps"] = count[0]
    for n in range(1, count[0] + 1):
        for last in (n, 10**9):
            with copied(base) as folder, Campaign.open(folder) as c:
                before, known = content(c), len(c.journal.events())
                with full_from(n, last): said = refuses(c, OPERATIONS[name])
                with Campaign.open(folder) as fresh:
                    after, new = content(fresh), len(fresh.journal.events()) - known
                    assert content(c) == after and new == (not said), (name, n, said)
                    if said: assert after == before and "full" in said, (name, n, said)
                    gone = len(set(before["told"]) - set(after["told"]))
                    fresh.tell("g15", 1.)
            out["times"] += 1
            out["acknowledged"] += 8
            out["lost"] += gone
    return out


def count_power(scale, seed, out):
    "Power cuts at every step, and a full disk at every write"
    rows = []
    with tempfile.TemporaryDirectory() as home:
        base = make(Path(home)/"lab")
        for name in (*OPERATIONS, "create"):
            rows.append(power_cuts(name, base, max(1, round(200*scale)), seed))
            print(*rows[-1].values(), flush=True)
        for name in OPERATIONS:
            rows.append(full_at_every_write(name, base))
            print(*rows[-1].values(), flush=True)
        control = power_cuts("tell", base, max(1, round(200*scale)), seed, waits=False)
        rows.append(control | dict(fault="power cut during tell, and the disk did not wait"))
        print(*rows[-1].values(), flush=True)
    write_table(out, rows)


# the program, killed at random moments

PARTS = ("faults", "power", "files", "calls", "kills")
NEW = "id,SMILES,y\n" + "".join(f"n{k},{'C'*(k + 1)}O,{k}\n" for k in range(5))


def more(home, k):
    "A file with one candidate more"
    file = home/f"more{k}.csv"
    file.write_text(f"id,SMILES\nx{k},{'C'*(k % 30 + 1)}N\n")
    return file


PROGRAM = {
    "new": lambda home, k: ["new", home/"pool.csv", "--smiles", "SMILES", "--value", "y", "--out",
                            home/f"new{k}"],
    "tell": lambda home, k: ["tell", home/"lab", f"m{k % 6}", k],
    "ask": lambda home, k: ["drop", home/"lab", "--all"] if k % 2 else ["ask", home/"lab"],
    "undo": lambda home, k: ["undo", home/"lab"] if k % 2 else ["tell", home/"lab", "m2", k],
    "add": lambda home, k: ["add", home/"lab", more(home, k), "--smiles", "SMILES"],
    "export": lambda home, k: ["export", home/"lab", "--out", home/"tables"],
    "report": lambda home, k: ["report", home/"lab", "--out", home/"page.html"]}
EVENTS = KINDS | dict(new=[], export=[], report=[])
# about how many functions a command calls and leaves, and how many seconds it takes
LENGTH = {"new": (8e4, 0.16), "tell": (7e4, 0.11), "ask": (9e4, 0.11), "undo": (7e4, 0.08),
          "add": (9e4, 0.25), "export": (9e4, 0.2), "report": (1.8e6, 1.5)}


def whole(home, name, done):
    "What a command that was killed left: all of it, or nothing"
    if name == "new":
        for k in range(done): must((home/f"new{k}").exists(), f"new{k} is gone", "lost")
        for folder in home.glob("new*"):
            with Campaign.open(folder) as c:
                told = c.observations["value"].tolist()
                must(len(c) == 5 and told == [0., 1., 2., 3., 4.], f"half a campaign: {c}, {told}")
    if name == "export":
        rows = dict(candidates=7, measurements=2, events=2)
        for word, n in rows.items():
            file = home/f"tables/{word}.csv"
            must(file.exists() or not done, f"{file.name} is gone", "lost")
            text = file.read_text() if file.exists() else "\n"*n
            must(text.count("\n") == n and text.endswith("\n"), f"half of {file.name}")
    if name == "report":
        file = home/"page.html"
        must(file.exists() or not done, f"{file.name} is gone", "lost")
        must(not file.exists() or file.read_text().rstrip().endswith("</html>"), "half a report")


def temporary(home):
    "Files and folders that nobody asked for"
    places = home, home/"lab", home/"tables"
    return [p for place in places if place.exists() for p in place.iterdir()
            if p.name.startswith(".") or p.name.endswith((".new", "-journal"))]


def kill(name, base, seed):
    "One kill of the program while it repeats a command: as `fuzz_files.play`"
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    n, seconds = LENGTH[name]
    by_step, delay = bool(rng.integers(2)), float(rng.uniform(0, 2.5*seconds))
    n = int(rng.integers(1, 2*n))
    out = dict(seed=seed, accepted=True, calls=0, broken="", text="", input="")
    with copied(base) as folder:
        home = folder.parent
        (home/"pool.csv").write_text(NEW)
        before = len(record(folder))
        def work(write):
            write("begin")
            if by_step: at_step(n, lambda: os.kill(os.getpid(), signal.SIGKILL))
            for k in range(10**6):
                code, _, err = program(*PROGRAM[name](home, k))
                write(f"done {code} {err}")
        pid, pipe = fork(work)
        if not by_step:
            assert os.read(pipe, 6) == b"begin\n"
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
        said = [line for line in heard(pid, pipe, must_end=False) if line.startswith("done")]
        done = len(said)
        try:
            must(all(line.startswith("done 0") for line in said), f"{name}: {said[-1:]}")
            with Campaign.open(folder) as c:
                c.journal.check()
                kinds, cycle = [e.kind for e in c.journal.events(after=before - 1)], EVENTS[name]
                must(len(kinds) >= done*bool(cycle), f"{done} done, {len(kinds)} there", "lost")
                must(len(kinds) <= (done + 1)*bool(cycle), f"{done} done, {kinds} there")
                expected = [cycle[k % len(cycle)] for k in range(len(kinds))]
                must(kinds == expected, f"{kinds}, not {expected}")
                size = 6 + (len(kinds) if name == "add" else 0)
                must(len(c) == len(c.domain) == len(c.ids) == size, f"{len(c)} candidates")
            whole(home, name, done)
            for p in temporary(home): os.utime(p, (0, 0))     # a long time ago
            again = done + 1 + (done + 1)*(name == "ask" or name == "undo")    # an even one
            code, _, err = program(*PROGRAM[name](home, again))
            must(code == 0, f"{name} after the kill: {err}")
            left = [p.name for p in temporary(home)]
            must(not left, f"{name} after a kill leaves {left}")
        except Broken as e: out |= dict(broken=e.kind, text=e.text)
        except (ValueError, OSError) as e: out |= dict(broken="lost", text=f"{name}: {e}")
        if out["broken"]:
            out["input"] = f"{name}, {f'step {n}' if by_step else f'{delay:.3f} s'}, {done} done"
        return out | dict(calls=done + 1)


# both tables

def count_faults(scale, seed, out):
    "Every fault, several times"
    rows = []
    with tempfile.TemporaryDirectory() as home:
        base = make(Path(home)/"lab")
        for name, (_, times) in FAULTS.items():
            began = time.perf_counter()
            rows.append(inject(name, max(1, round(scale*times)), base, seed))
            print(*list(rows[-1].values())[:6], f"{time.perf_counter() - began:.1f} s",
                  rows[-1]["message"], flush=True)
    print(f"{sum(r['injections'] for r in rows)} faults, {sum(r['lost'] for r in rows)} lost")
    write_table(out, rows)


INPUTS = {**dict.fromkeys(LOADERS, 60), "large or no file": len(LARGE)}
SEQUENCES = {"create with odd arguments": (beginnings, 80), "random calls": (sequence, 40)}


def players(parts, home):
    "Of each row of robustness.csv: its names, how many, and a function from seeds to what happened"
    base = Path(home)/"six"
    if not base.exists(): six(base)
    for name in LOADERS if "files" in parts else ():
        yield "files", name, INPUTS[name], lambda seeds, name=name: fuzz(name, seeds, home)
    for name, (f, times) in SEQUENCES.items() if "calls" in parts else ():
        yield "calls", name, times, lambda seeds, f=f: [f(s) for s in seeds]
    for name in PROGRAM if "kills" in parts else ():
        times = 6 if name == "report" else 20
        yield "kills", f"kill -9 during {name}", times, \
            lambda seeds, name=name: [kill(name, base, s) for s in seeds]


def play_all(parts, scale, seed, home, found):
    "One round: fills `found`, and prints what breaks the contract"
    for part, name, times, play in players(parts, home):
        began, n = time.perf_counter(), max(1, round(scale*times))
        new = play(range(seed, seed + n))
        found[part, name] = found.get((part, name), []) + new
        row = count(new, part=part, what=name)
        print(*row.values(), f"{time.perf_counter() - began:.1f} s", flush=True)
        for f in new:
            if f["broken"]: print("  ", f["seed"], f["broken"], f["text"], "|", f["input"])
    return max(times for _, _, times, _ in players(parts, home))


def count_robustness(parts, scale, seed, minutes, out):
    "Random files, calls and kills, for a number of rounds or of minutes"
    found, end = {}, time.monotonic() + 60*minutes
    with tempfile.TemporaryDirectory() as home:
        step = play_all(parts, scale, seed, home, found)
        while time.monotonic() < end:
            seed += max(1, round(scale*step))
            play_all(parts, scale, seed, home, found)
    rows = [count(new, part=part, what=name) for (part, name), new in found.items()]
    bad = sum(r["lost"] + r["tracebacks"] + r["wrong"] for r in rows)
    print(f"{sum(r['inputs'] for r in rows)} inputs, {bad} of them break the contract")
    write_table(out, rows)
    return bad


def main(part, scale, seed, minutes, out):
    torch.set_num_threads(1)
    if "faults" in part: count_faults(scale, seed, Path(out)/"faults.csv")
    if "power" in part: count_power(scale, seed, Path(out)/"power.csv")
    rest = [p for p in part if p not in ("faults", "power")]
    if rest: return count_robustness(rest, scale, seed, minutes, Path(out)/"robustness.csv") > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--scale", type=float, default=1.)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.)
    parser.add_argument("--out", default=Path(__file__).parent.parent/"nbs/results")
    sys.exit(main(**vars(parser.parse_args())))
