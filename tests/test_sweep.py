"The store and sweeps: killed, interrupted, out of disk, two at once, on joblib and on Dask."
import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import gnn_bandits.core as core
import gnn_bandits.paper.experiments as experiments
import gnn_bandits.paper.sweep as sweeping
from gnn_bandits.bandits import ALGORITHMS
from gnn_bandits.core import pack_arrays
from gnn_bandits.paper.experiments import Damaged, RunSpec, Start, grid, run_spec, spec_fields
from gnn_bandits.paper.store import Store, seed_means
from gnn_bandits.paper.studies import PROTOCOLS, Cell, Player
from gnn_bandits.core import progress_bar
from gnn_bandits.paper.sweep import make_datasets, piece_seconds, pieces, sweep, tasks_for
from gnn_bandits.paper.datasets import DatasetSpec

ROOT = Path(__file__).parent.parent
SMALL = DatasetSpec(5, 0.2, 3, n=60)
SPEC = RunSpec(SMALL, "GNN-UCB", "gntk", arms=20, T=40)
NET = dict(m=32, random_pulls=10)
pytestmark = pytest.mark.usefixtures("one_thread")


PAPER = ["GNN-PE", "GNN-UCB", "NN-PE", "NN-UCB"]


def tiny_specs():
    "24 runs of every kind, a fraction of a second each"
    return (grid(data=SMALL, algorithm=PAPER, model="gntk", arms=20, T=60, seed=range(3))
            + grid(data=SMALL, algorithm=["GNN-PE", "NN-UCB", "GNN-TS"], model="linearized",
                   arms=15, T=50, seed=range(3), **NET)
            + grid(data=SMALL, algorithm=["GNN-UCB", "Random"], model="trained", arms=10, T=25,
                   noise="uniform", J=20, **NET)
            + grid(data=SMALL, algorithm="GNN-UCB", model="gntk", arms=70, T=30, replace=True))


def text(store, specs=None):
    return store.table(specs, timings=False).to_csv(index=False)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    "An undisturbed sweep in this process"
    store = Store(tmp_path_factory.mktemp("reference")/"store")
    summary = sweep(tiny_specs(), store)
    assert (summary.done, summary.skipped, summary.failed) == (len(tiny_specs()), 0, ())
    return store


@pytest.fixture(scope="module")
def processes():
    "Processes forked from a clean one that has imported everything: quick to start, safe to kill"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gnn_bandits.paper.sweep"])
    started = []
    def start(f, *args):
        started.append(context.Process(target=f, args=args))
        started[-1].start()
        return started[-1]
    yield start
    for p in started:
        if p.is_alive(): p.kill()
        p.join()


def test_sweeps_refuse():
    for bad, jobs in ((["GNN-PE"], 1), ([SPEC], 0), ([SPEC], -2), ([SPEC], 1.5)):
        with pytest.raises(ValueError): sweep(bad, "nowhere", jobs=jobs)
    huge = dataclasses.replace(SPEC, data=dataclasses.replace(SMALL, n=10**10))
    for jobs in (1, 2):
        with pytest.raises(ValueError, match="fewer graphs"):
            sweep([SPEC, huge], "nowhere", jobs=jobs)
    assert not Path("nowhere").exists()


def test_algorithms_are_paired(tmp_path):
    "While all explore at random, they see the same arms and the same noise"
    store = Store(tmp_path/"s")
    specs = grid(data=SMALL, algorithm=list(ALGORITHMS), model="gntk", arms=20, T=45,
                 random_pulls=45,
                 seed=[3])
    sweep(specs, store)
    runs = [store.read(s) for s in specs]
    for r in runs[1:]:
        np.testing.assert_array_equal(r.history.rewards, runs[0].history.rewards)
        assert (r.optimum, r.mean_gap) == (runs[0].optimum, runs[0].mean_gap)


# the store

def test_bad_files_do_not_hide_the_good_ones(reference, tmp_path):
    shutil.copytree(reference.path, tmp_path/"store")
    store, bad = Store(tmp_path/"store"), []
    foreign, misplaced = pack_arrays({"kind": "another"}, x=[1.]), store.files()[0].read_bytes()
    for name, content in (("a", b""), ("b", b"text"), ("c", foreign), ("d", misplaced)):
        (store.path/"runs"/f"{name}.npz").write_bytes(content)
    (store.path/"runs"/"e.npz").mkdir()
    for name, content in (("a", "{"), ("b", "[]"), ("c", '{"spec": {}}'), ("d", "\x00")):
        (store.path/"failed"/f"{name}.json").write_text(content)
    (store.path/"failed"/"e.json").write_bytes(b"\xff\xfe")
    table = store.table(timings=False, onerror=bad.append)
    assert table.to_csv(index=False) == text(reference) and len(bad) == 5
    assert store.failures(onerror=bad.append) == [] and len(bad) == 10
    assert all(isinstance(e, (Damaged, OSError)) for e in bad)
    with pytest.raises(Damaged): store.failures()


def test_means_are_over_seeds_only(reference):
    "Settings that some runs do not have (None) are settings too"
    table = reference.table()
    means = seed_means(table)
    assert means["runs"].sum() == len(table) and set(means["runs"]) == {1, 3}
    changed = table.assign(horizon=[None, 7.]*(len(table)//2))
    assert seed_means(changed)["runs"].sum() == len(table)
    assert set(seed_means(changed)["runs"]) <= {1, 2}


def test_damage_is_detected_reported_and_redone(reference, tmp_path, capfd):
    shutil.copytree(reference.path, tmp_path/"store")
    store, specs = Store(tmp_path/"store"), tiny_specs()
    cut, flipped, empty, swapped, forged = bad = specs[0], specs[5], specs[9], specs[12], specs[14]
    store.file(cut).write_bytes(store.file(cut).read_bytes()[:-1000])
    data = bytearray(store.file(flipped).read_bytes())
    data[len(data)//2] ^= 1
    store.file(flipped).write_bytes(data)
    store.file(empty).write_bytes(b"")
    shutil.copy(store.file(specs[1]), store.file(swapped))
    with np.load(store.file(forged)) as z: arrays = dict(z)
    np.savez(store.file(forged), **arrays | {"regret": arrays["regret"] + 1})  # other numbers
    with pytest.raises(Damaged): store.table()
    summary = sweep(specs, store)
    assert set(summary.damaged) == {s.key for s in bad} and summary.done == 5
    said = capfd.readouterr().err
    assert all(f"{s.key}.npz" in said for s in bad) and said.count("\n") == 5
    assert text(store) == text(reference)


def test_damaged_data_set_is_made_again(tmp_path, capfd):
    store = Store(tmp_path)
    store.dataset(SMALL)
    file, = tmp_path.glob("data/*.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    Store(tmp_path).dataset(SMALL)
    assert "making it again" in capfd.readouterr().err and file.read_bytes() == whole


def test_data_sets_are_made_side_by_side(tmp_path):
    "Same files as one after another; nothing is done for one alone, nor for those that are there"
    sets = [dataclasses.replace(SMALL, seed=k) for k in range(4)]
    here, there = Store(tmp_path/"here"), Store(tmp_path/"there")
    for store in (here, there): store.prepare()
    for s in sets: here.dataset(s)
    make_datasets(sets[:1], there, 2, False)
    make_datasets(sets, there, 1, False)
    assert not list(there.path.glob("data/*"))
    make_datasets(sets + sets[:2], there, 2, False)
    files = lambda store: {p.name: p.read_bytes() for p in store.path.glob("data/*")}
    assert files(here) == files(there)
    stamps = {p: p.stat().st_mtime_ns for p in there.path.glob("data/*")}
    make_datasets(sets, there, 2, False)
    assert stamps == {p: p.stat().st_mtime_ns for p in there.path.glob("data/*")}


def test_a_run_of_the_future_is_left_alone(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr(experiments, "SPEC_VERSION", experiments.SPEC_VERSION + 1)
    sweep([SPEC], store)
    file, = store.files()
    content = file.read_bytes()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="upgrade gnn_bandits"): store.table()
    assert SPEC not in store                                # another version is another key
    sweep([SPEC], store)
    assert file.read_bytes() == content and len(store) == 2


def test_old_temporaries_go_young_ones_stay(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    old, young = tmp_path/"runs/.a.npz.1", tmp_path/"runs/.b.npz.2"
    for p in (old, young): p.write_bytes(b"x")
    os.utime(old, (0, 0))
    store.tidy()
    assert not old.exists() and young.exists() and len(store) == 0


def test_table_and_curves(reference):
    table = reference.table()
    assert len(table) == len(tiny_specs()) and table["key"].is_unique
    assert (table["peak_mb"] > 50).all()
    assert set(spec_fields(SPEC)) <= set(table.columns)
    written = pd.read_csv(io.StringIO(text(reference)), dtype=str)
    for c in ("regret", "inference_regret", "mean_gap", "noise_std", "p"):
        assert [float(v) for v in written[c]] == table[c].tolist()  # floats survive the text
    with pytest.raises(ValueError, match="differ in"): reference.curves(by=("algorithm",))
    some = [s for s in tiny_specs() if s.model == "gntk" and s.arms == 20]
    curves = reference.curves(some, unit="mean_gap")
    assert (curves.groupby("algorithm").size() == 60).all() and (curves["runs"] == 3).all()
    assert len(Store(reference.path/"none").table()) == 0


def test_a_run_is_a_function_of_its_spec(reference):
    for spec in random.Random(0).sample(tiny_specs(), 6):
        alone, stored = run_spec(spec).history.columns(), reference.read(spec).history.columns()
        for name, column in alone.items():
            np.testing.assert_array_equal(column, stored[name], f"{spec} {name}")


# sweeps

def test_pieces_cover_and_are_sorted():
    specs = tiny_specs()
    parts = pieces(specs, most=2)
    assert sorted(s.key for p in parts for s in p) == sorted(s.key for s in specs)
    assert max(map(len, parts)) <= 2
    total = [p[0].seconds[0] + sum(s.seconds[1] for s in p) for p in parts]
    assert total == [*map(piece_seconds, parts)] and total == sorted(total, reverse=True)
    assert all(len(p) == 1 for p in parts if p[0].model == "trained")


def test_order_does_not_matter(reference, tmp_path):
    specs = tiny_specs()
    random.Random(1).shuffle(specs)
    for half in (specs[:9], specs): sweep(half, tmp_path)
    assert text(Store(tmp_path)) == text(reference)


def test_two_jobs_give_the_same_table(reference, tmp_path):
    threads = torch.get_num_threads()
    assert sweep(tiny_specs(), tmp_path, jobs=2).done == len(tiny_specs())
    assert text(Store(tmp_path)) == text(reference) and torch.get_num_threads() == threads
    assert not list(tmp_path.glob("*/.*")) and not list(tmp_path.glob("partial/*"))


def test_runs_have_one_thread_and_give_the_others_back(tmp_path, monkeypatch):
    honest, inside, before = RunSpec.play, [], torch.get_num_threads()
    def play(*args):
        inside.append(torch.get_num_threads())
        return honest(*args)
    monkeypatch.setattr(RunSpec, "play", play)
    torch.set_num_threads(2)
    try:
        sweep([SPEC], tmp_path)
        run_spec(SPEC)
        assert inside == [1, 1] and torch.get_num_threads() == 2
        task, = tasks_for([[SPEC]], Store(tmp_path), {SPEC})
        sweeping.work(task)                                 # as in a worker, which keeps to one
        assert inside == [1, 1, 1]
    finally: torch.set_num_threads(before)


def test_what_another_driver_finished_is_left_out(reference):
    parts = pieces(tiny_specs())
    assert list(tasks_for(parts, reference, set())) == []
    task, = tasks_for(parts, reference, {parts[0][-1]})
    assert task.items == (parts[0][-1],)


def test_kill_nine_five_times(reference, processes, tmp_path):
    store, left, moments = Store(tmp_path/"store"), [0], random.Random(time.time_ns())
    for _ in range(5):
        p = processes(sweep, tiny_specs(), store.path)
        time.sleep(moments.uniform(0.05, 1.0))
        p.kill()
        p.join()
        left.append(len(store))
    assert left == sorted(left)
    summary = sweep(tiny_specs(), store)
    print("files after each kill:", left)
    assert summary.skipped == left[-1] and not summary.damaged
    assert text(store) == text(reference)


def test_kill_nine_with_workers_leaves_no_orphans(reference, tmp_path):
    code = ("import sys; from gnn_bandits.paper.experiments import *; "
            "from gnn_bandits.paper.sweep import sweep; "
            "sweep([RunSpec.from_json(s) for s in open(sys.argv[1])], sys.argv[2], jobs=2)")
    (tmp_path/"specs").write_text("\n".join(s.to_json() for s in tiny_specs()))
    store = Store(tmp_path/"store")
    p = subprocess.Popen([sys.executable, "-c", code, tmp_path/"specs", store.path],
                         env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(store) >= 2 or p.poll() is not None)
    children = Path(f"/proc/{p.pid}/task/{p.pid}/children")
    workers = children.read_text().split() if sys.platform == "linux" else []
    p.kill()
    assert p.wait() == -signal.SIGKILL
    wait_for(lambda: not any(Path(f"/proc/{w}").exists() for w in workers))
    sweep(tiny_specs(), store)
    assert text(store) == text(reference)


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_two_drivers_on_one_store(reference, processes, tmp_path):
    specs = tiny_specs()
    drivers = [processes(sweep, s, tmp_path) for s in (specs, specs[::-1])]
    for d in drivers: d.join(60)
    assert [d.exitcode for d in drivers] == [0, 0]
    assert text(Store(tmp_path)) == text(reference) and not list(tmp_path.glob("*/.*"))


def test_failing_run_does_not_stop_the_others(tmp_path, monkeypatch, capfd):
    specs = grid(data=SMALL, algorithm=["GNN-UCB", "GNN-PE"], model="gntk", arms=20, T=20,
                 seed=range(2))
    honest = RunSpec.play
    def play(spec, *args):
        return 1//0 if spec.algorithm == "GNN-PE" and spec.seed else honest(spec, *args)
    monkeypatch.setattr(RunSpec, "play", play)
    summary = sweep(specs, tmp_path)
    monkeypatch.undo()
    store = Store(tmp_path)
    record, = store.failures()
    assert summary.done == 3 and summary.failed == (specs[3].key,) == (record.key,)
    assert record.spec == json.loads(specs[3].to_json()) and "algorithm GNN-PE" in str(record)
    assert record.error.startswith("ZeroDivisionError") and "1//0" in record.traceback
    assert "failed" in capfd.readouterr().err
    assert sweep(specs, tmp_path).done == 1 and not store.failures() and len(store) == 4


def test_failures_of_earlier_versions_are_read(tmp_path):
    "Their records had no key of their own; the name of the file is the key"
    store, spec = Store(tmp_path), json.loads(SPEC.to_json())
    old = dict(spec=spec, error="E: x", traceback="here", versions={})
    store.write(store.failure(SPEC), json.dumps(old))
    record, = store.failures()
    assert (record.key, record.spec) == (SPEC.key, spec) and "seed 0: E: x" in str(record)


def test_a_run_that_kills_its_worker_is_found_out(tmp_path):
    specs = grid(data=SMALL, algorithm=["GNN-UCB", "GNN-PE"], model="gntk", arms=20, T=20,
                 seed=[1, 2])
    honest = sweeping.work
    def deadly(task):
        if any(s.algorithm == "GNN-UCB" and s.seed == 1 for s in task.items):
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(task)
    sweeping.work = deadly
    try: summary = sweep(specs, tmp_path, jobs=2)
    finally: sweeping.work = honest
    assert summary.failed == (specs[0].key,) and summary.done == 3


def test_a_bad_checkpoint_is_not_the_end(tmp_path):
    spec, = grid(data=SMALL, algorithm="GNN-UCB", model="trained", arms=10, T=20, J=5, **NET)
    store = Store(tmp_path)
    store.prepare()
    store.partial(spec).write_bytes(b"nonsense")
    assert sweep([spec], store).done == 1 and not store.partial(spec).exists()


def interrupting(f, moments):
    "`f` with Ctrl-C before some of its calls, by number, or after them, by negative number"
    calls = []
    def interrupted(*args, **kw):
        calls.append(1)
        if len(calls) in moments: raise KeyboardInterrupt
        result = f(*args, **kw)
        if -len(calls) in moments: raise KeyboardInterrupt
        return result
    return interrupted


@pytest.mark.parametrize("moment", [1, -2, 3])
@pytest.mark.parametrize("owner, name", [
    (RunSpec, "play"), (Start, "prior"), (sweeping, "play_task"), (Store, "add"),
    (Store, "write"), (Store, "dataset"), (Store, "missing"), (sweeping, "pieces")])
def test_interrupted_a_sweep_resumes(owner, name, moment, reference, tmp_path, monkeypatch):
    specs = tiny_specs()[:6]                                # three pieces of two runs
    monkeypatch.setattr(owner, name, interrupting(getattr(owner, name), (moment,)))
    for _ in range(2):
        before = len(Store(tmp_path))
        with contextlib.suppress(KeyboardInterrupt): sweep(specs, tmp_path)
        assert len(Store(tmp_path)) >= before
    assert text(Store(tmp_path)) == text(reference, specs)
    assert not list(tmp_path.glob("*/.*")) and not Store(tmp_path).failures()


def test_an_interrupt_loses_one_run_of_a_piece(tmp_path, monkeypatch):
    specs = grid(data=SMALL, algorithm="GNN-UCB", model="gntk", arms=20, T=20, lam=[.1, .2, .3, .4])
    monkeypatch.setattr(RunSpec, "play", interrupting(RunSpec.play, (4,)))
    with pytest.raises(KeyboardInterrupt, match="3 of 4 runs are finished"): sweep(specs, tmp_path)
    assert len(pieces(specs)) == 1 and len(Store(tmp_path)) == 3


def test_a_retried_checkpoint_lets_ctrl_c_through(tmp_path, monkeypatch):
    spec, = grid(data=SMALL, algorithm="GNN-UCB", model="trained", arms=10, T=20, J=5, **NET)
    store = Store(tmp_path)
    store.prepare()
    store.partial(spec).write_bytes(b"nonsense")
    monkeypatch.setattr(RunSpec, "play", interrupting(RunSpec.play, (2,)))         # the second try
    with pytest.raises(KeyboardInterrupt): sweep([spec], store)
    assert not len(store) and not store.failures()
    assert sweep([spec], store).done == 1
    np.testing.assert_array_equal(store.read(spec).history.rewards, run_spec(spec).history.rewards)


def test_workers_that_start_never_see_ctrl_c():
    with core.process_pool(2) as (pool, _):
        mask = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
        handler = pool.submit(signal.getsignal, signal.SIGINT).result()
    assert signal.SIGINT in mask and handler == signal.SIG_IGN
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_bars_are_for_people(monkeypatch):
    terminal = lambda: monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = lambda show: not progress_bar(total=1, show=show, file=io.StringIO()).disable
    assert [shown(s) for s in (None, True, False)] == [False, False, False]        # a pipe
    kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
    with monkeypatch.context() as m:
        m.setattr(core, "in_notebook", lambda: True)
        assert [shown(s) for s in (None, True, False)] == [False, True, False]     # a notebook
    with monkeypatch.context() as m:
        assert not core.in_notebook()
        m.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
        assert core.in_notebook()
    terminal()
    assert [shown(s) for s in (None, True, False)] == [True, True, False]


def test_an_interrupted_training_goes_on(tmp_path, monkeypatch):
    spec, = grid(data=SMALL, algorithm="GNN-UCB", model="trained", arms=10, T=20, J=5, **NET)
    import gnn_bandits.bandits as bandits
    honest, calls = bandits.step, []
    def step(*args):
        calls.append(1)
        if len(calls) == 15: raise KeyboardInterrupt
        return honest(*args)
    monkeypatch.setattr(bandits, "step", step)
    with pytest.raises(KeyboardInterrupt, match="0 of 1 runs"): sweep([spec], tmp_path)
    assert Store(tmp_path).partial(spec).exists()
    sweep([spec], tmp_path)
    assert len(calls) == 15 + 6                             # 14 steps were kept
    resumed = Store(tmp_path).read(spec).history.rewards
    np.testing.assert_array_equal(resumed, run_spec(spec).history.rewards)


@contextlib.contextmanager
def small_disk(path):
    "A folder that is full after 200 kB, and a function that makes room"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(path)]
    may = os.getuid() == 0 and shutil.which("mount")
    more = ["mount", "-o", "remount,size=20m", str(path)]
    if may and subprocess.run(mount, capture_output=True).returncode == 0:
        try: yield lambda: subprocess.run(more, check=True)
        finally: subprocess.run(["umount", str(path)], check=True)
    else:                                                   # no right to mount: limited file size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
        room = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        try: yield room
        finally: room()


def test_full_disk(reference, tmp_path):
    with small_disk(tmp_path/"disk") as make_room:
        store = Store(tmp_path/"disk/store")
        with pytest.raises(OSError, match="cannot write to .*; what it held before is intact"):
            sweep(tiny_specs(), store, jobs=2)
        kept = store.files()
        for f in kept: store.read(f)
        assert not list(store.path.glob("*/.*"))
        make_room()
        assert sweep(tiny_specs(), store).skipped == len(kept)
        assert text(store) == text(reference)


# Dask

@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    "A real scheduler and two real workers on this machine"
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("dask")
    file, started = folder/"scheduler.json", []
    def dask(*argv):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(folder/f"log{len(started)}", "w") as log:
            command = [sys.executable, "-m", "dask", *argv]
            started.append(subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log))
        return started[-1]
    common = "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)
    dask("scheduler", "--host", "127.0.0.1", "--port", "0", *common)
    wait_for(file.exists)
    worker = lambda: dask("worker", "--nthreads", "1", "--no-nanny", *common)
    workers = [worker(), worker()]
    yield json.loads(file.read_text())["address"], workers, folder
    for p in reversed(started): p.kill(); p.wait()


def test_cells_on_dask_are_those_played_here(cluster, tmp_path):
    "Arms from data sets travel; workers write nothing"
    who = Player("GNN-UCB", 1e-2, 1., 3), Player("NN-TS", 1e-2, 1., 3)
    cells = [Cell("test", protocol, 5, 0.2, 4, runs, who, arms=16, T=12, graphs=60)
             for protocol in PROTOCOLS for runs in ((0, 1), (2, 3))]
    here, there = Store(tmp_path/"here"), Store(tmp_path/"there")
    assert sweep(cells, here).done == sweep(cells, there, scheduler=cluster[0]).done == len(cells)
    assert all(here.file(c).read_bytes() == there.file(c).read_bytes() for c in cells)


def test_dask_gives_the_same_table_though_a_worker_is_killed(reference, cluster, tmp_path):
    address, workers, folder = cluster
    from distributed import Client
    with Client(address, set_as_default=False) as client: client.wait_for_workers(2, timeout=60)
    store = Store(tmp_path)
    more = grid(data=SMALL, algorithm="NN-UCB", model="gntk", arms=20, T=300, seed=range(10, 30))
    def kill_one():
        with contextlib.suppress(AssertionError): wait_for(lambda: len(store) >= 3)
        workers[0].kill()
    killer = threading.Thread(target=kill_one)
    killer.start()
    summary = sweep(tiny_specs() + more, store, scheduler=address)
    killer.join()
    assert workers[0].wait() == -signal.SIGKILL
    assert summary.done == len(tiny_specs() + more) and not summary.failed
    assert text(store, tiny_specs()) == text(reference)
