"Studies: the loop against textbook formulas, cells that are pure functions, kill and resume."
import dataclasses, os, signal, subprocess, sys, time
from pathlib import Path

import numpy as np
import pytest

from gnn_bandits.core import pack_arrays, write_atomically
from gnn_bandits.paper import studies
from gnn_bandits.paper.experiments import Damaged
from gnn_bandits.paper.store import Store
from gnn_bandits.paper.studies import (PLAYERS, SETS, Cell, Instance, Player, arms_of, curve_steps,
                                       instances, play, play_plainly, study_curves, study_table)
from gnn_bandits.paper.sweep import sweep

ROOT = Path(__file__).parent.parent
SMALL = dict(arms=16, T=12)


def cells(players=PLAYERS, runs=(0, 1, 2), **more):
    "One cell a run"
    who = tuple(Player(name, 1e-2, 1., 3) for name in players)
    return [Cell("test", "population", 5, 0.2, 4, (r,), who, **SMALL | more) for r in runs]


def files(folder): return {p.name: p.read_bytes() for p in sorted(Path(folder).glob("cells/*.npz"))}


def instance(n=20, T=30, seed=0):
    "Random kernels and rewards"
    rng = np.random.default_rng(seed)
    K = {}
    for name in ("graph", "vector"):
        x = rng.standard_normal((n, 6))
        K[name] = x @ x.T/6 + 0.1*np.eye(n)
    return Instance(K, rng.standard_normal(n), rng, T=T)


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize("changes", [
    {}, dict(beta=0.), dict(random_pulls=0), dict(always_until=6, train_every=5, final_from=8),
    dict(uncertainty="graph"), dict(uncertainty="vector", beta=3.)])
def test_compiled_loop_is_the_plain_one(name, changes):
    for seed in range(2):
        i, player = instance(seed=seed), dataclasses.replace(Player(name, 1e-2, 1., 4), **changes)
        assert np.array_equal(play(i, player), play_plainly(i, player))


@pytest.mark.parametrize("policy", ["UCB", "PE", "greedy"])
def test_loop_by_the_textbook(policy):
    "The posterior solved anew from all observations at every step"
    i, player = instance(), Player(f"NN-{policy}", 1e-2, 1.5, 3)
    K, n, arms, rewards = i.K["vector"], len(i), [], []
    path, active = play(i, player), np.ones(len(i), bool)
    for t in range(i.T):
        mean, var = np.zeros(n), K.diagonal().copy()
        if arms:
            A = K[np.ix_(arms, arms)] + 1e-2*np.eye(t)
            B = np.linalg.solve(A, K[arms])
            mean, var = B.T @ rewards, var - (K[arms]*B).sum(0)
        std = np.sqrt(var)
        if policy == "PE":
            reach = 1.5*std
            active = mean + reach >= (mean - reach).max() if arms else active
        score = {"UCB": mean + 1.5*std, "greedy": mean, "PE": np.where(active, std, -1)}[policy]
        arm = i.first[t] if t < 3 else score.argmax()
        assert path[0, t] == arm and (t == 0 or path[1, t] == mean.argmax()), t
        rewards.append(i.f[arm] + i.noise[arms.count(arm), arm])
        arms.append(arm)
        assert path[2, t] == arms[int(np.argmax(rewards))]


def test_diagonal_takes_the_plain_loop():
    cell, = cells(["GNN-UCB", "NN-UCB"], (0,), m=16)
    player = dataclasses.replace(cell.players[0], uncertainty="diagonal")
    _, i = next(instances(cell))
    assert np.array_equal(play(i, player), play_plainly(i, player))
    assert {"graph", "vector"} == set(i.networks)


@pytest.mark.parametrize("bad", [
    dict(algorithm="UCB"), dict(lam=0.), dict(lam=-1.), dict(beta=-0.1), dict(random_pulls=-1),
    dict(random_pulls=1.5), dict(always_until=-1), dict(train_every=0),
    dict(uncertainty="wide")])
def test_players_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): Player(**{"algorithm": "GNN-PE"} | bad)


def test_cells_are_checked():
    with pytest.raises(ValueError, match="protocol"):
        Cell("x", "mine", 5, 0.2, 4, (0,), (Player("Random"),))
    with pytest.raises(ValueError, match="jobs"): sweep(cells(), "nowhere", 0)
    assert not Path("nowhere").exists()


def test_keys_tell_cells_apart():
    cell, = cells(runs=(0,))
    changes = dict(N=6, p=0.3, d=5, runs=(1,), players=cell.players[:2], arms=17, T=13, seed=1,
                   noise_std=0.1, m=8, graphs=50, protocol="one reward", study="other")
    keys = [dataclasses.replace(cell, **{k: v}).key for k, v in changes.items()]
    assert len({cell.key, *keys}) == len(changes) + 1 and cells(runs=(0,))[0].key == cell.key


def test_two_processes_give_the_same_bytes(tmp_path):
    one, two = tmp_path/"one", tmp_path/"two"
    assert sweep(cells(), one).done == 3 and sweep(cells(), two, jobs=2).done == 3
    assert files(one) == files(two) and len(files(one)) == 3


def test_players_share_the_instance_and_nothing_else(tmp_path):
    "Who else plays changes no row"
    everybody, alone, store = cells(runs=(0,)), cells(["NN-TS"], (0,)), Store(tmp_path)
    for c in (everybody, alone): sweep(c, store)
    table = study_table(store, everybody)
    mine = table[table["algorithm"] == "NN-TS"].reset_index(drop=True)
    assert mine.equals(study_table(store, alone))
    assert table["mean_gap"].nunique() == 1


def test_killed_and_resumed(tmp_path):
    "kill -9 in the middle; what is missing is played, what is there is not touched"
    code = ("import sys; sys.path.insert(0, sys.argv[2]); from test_studies import *; "
            "sweep(cells(runs=range(400), T=200), sys.argv[1])")
    command = [sys.executable, "-c", code, str(tmp_path/"a"), str(ROOT/"tests")]
    p = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while len(files(tmp_path/"a")) < 2:
        assert p.poll() is None
        time.sleep(0.01)
    p.send_signal(signal.SIGKILL)
    p.wait()
    some = cells(runs=range(4), T=200)
    a, b = Store(tmp_path/"a"), Store(tmp_path/"b")
    stamps = lambda: [a.file(c).stat().st_mtime_ns for c in some if c in a][:2]
    before = stamps()
    for store in (a, b): sweep(some, store)
    assert all(a.file(c).read_bytes() == b.file(c).read_bytes() for c in some)
    assert stamps() == before


def test_damaged_files_are_refused_and_redone(tmp_path, capfd):
    some, store = cells(["Random"]), Store(tmp_path)
    sweep(some, store)
    file, other = map(store.file, some[:2])
    good = file.read_bytes()
    for content in (b"", b"PK\x03\x04 cut short", good[:-30], other.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(Damaged, match="sweep again to redo it"): study_table(store, some)
        summary = sweep(some, store)
        assert summary.damaged == (some[0].key,) and file.read_bytes() == good
        assert str(file) in capfd.readouterr().err
    assert str(summary) == "1 cells done, 2 skipped, 0 failed, 1 damaged files redone"


def test_a_failing_cell_leaves_a_record(tmp_path, monkeypatch):
    "The others are played, and the next sweep tries it again"
    some, store, honest = cells(["Random"]), Store(tmp_path), Cell.play
    monkeypatch.setattr(Cell, "play", lambda c, start: 1//0 if 1 in c.runs else honest(c, start))
    summary = sweep(some, store)
    record, = store.failures()
    assert summary.done == 2 and summary.failed == (some[1].key,) == (record.key,)
    assert "1//0" in record.traceback and "study test, protocol population" in str(record)
    monkeypatch.undo()
    assert sweep(some, store).done == 1 and not store.failures() and len(files(tmp_path)) == 3


def test_stores_of_earlier_versions_are_read(tmp_path):
    "The files of a cell as they were written before cells and runs had one store"
    some, store = cells(["Random", "GNN-UCB"]), Store(tmp_path)
    keys = "test-5c96b1b39fb550da", "test-344d6149ded93691", "test-8ed8390fa94d09d9"
    for key, played in zip(keys, (c.play() for c in some)):
        content = pack_arrays(dict(key=key, rows=played.rows), curves=played.curves)
        write_atomically(tmp_path/"cells"/f"{key}.npz", content)
    assert sweep(some, store).skipped == 3 and len(study_table(store, some)) == 6


def test_curves_are_averaged_over_the_right_units(tmp_path):
    "Over rewards where action sets share one; over action sets where there is one reward"
    who = (Player("GNN-UCB", 1e-2, 1., 2), Player("Random"))
    more, store = dict(graphs=60, reward=studies.PAPER_REWARD, **SMALL), Store(tmp_path)
    for protocol, units in ("one reward", 6), ("many rewards", 2), ("population", 6):
        cell = Cell("test", protocol, 5, 0.2, 4, tuple(range(6)), who, **more)
        sweep([cell], store)
        rows, curves = (played := store.read(cell)).rows, played.curves
        assert curves.shape == (12, 3, len(curve_steps(12)))
        mine = [c[0, -1] for r, c in zip(rows, curves) if r["algorithm"] == "GNN-UCB"]
        if protocol == "many rewards": mine = np.reshape(mine, (units, SETS)).mean(1)
        found = study_curves(store, [cell]).query(
            "algorithm == 'GNN-UCB' and t == 12 and regret == 'regret'").iloc[0]
        expected = np.mean(mine), np.std(mine, ddof=1)/np.sqrt(units), units
        assert tuple(found[["mean", "se", "units"]]) == pytest.approx(expected, rel=1e-5)


def test_protocols_draw_what_they_say(tmp_path):
    store, who = Store(tmp_path), (Player("Random"),)
    cell = Cell("test", "population", 5, 0.2, 4, (0, 1), who, graphs=60, **SMALL)
    def get(protocol, run, **more):
        c = dataclasses.replace(cell, protocol=protocol, runs=(run,), **more)
        origin, data = c.origin(run), store.dataset(c.origin(run)) if c.datasets else None
        assert c.datasets == (() if protocol == "population" else (origin,))
        return *arms_of(c, run, data), origin
    fresh = [get("population", r) for r in (0, 1)] + [get("population", 0, seed=2)]
    assert len({origin.seed for _, _, origin in fresh}) == 3 and fresh[0][1] is None
    one = [get("one reward", r) for r in (0, 1)]
    assert one[0][2] == one[1][2] and not np.array_equal(one[0][1], one[1][1])
    many = [get("many rewards", r) for r in range(2*SETS)]
    assert [m[2] == many[0][2] for m in many] == [True]*SETS + [False]*SETS
    assert not np.array_equal(many[0][1], many[1][1])


def test_a_cell_needs_no_folder():
    cell, = cells(["Random"], (0,))
    assert cell.play().pack() == cell.play().pack()
