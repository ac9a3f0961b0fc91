"What would bore a reader of nbs/25_scale.ipynb: kills, damaged files, many random worlds, ties."
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.features import GNTKFeatures
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.posterior import FeaturePosterior, growth
from gnn_bandits.scale import (AnchorFeatures, LazyPosterior, Library, RandomBlocks, choose_degree,
                               each, featurize, make_part, missed_share, part_name, rank,
                               read_part, save_part, top_of, weigh)

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[1]
FEATURES = GNTKFeatures(4, degree=2)
BLOCKS = RandomBlocks(n=230, N=6, p=0.3, d=4, seed=5, size=50)


class SlowBlocks:
    "The same blocks, but one can watch them being made."
    def __init__(self, pause): self.pause = pause
    def __len__(self): return len(BLOCKS)
    def __getitem__(self, i):
        time.sleep(self.pause)
        return BLOCKS[i]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A finished library and its folder"
    folder = tmp_path_factory.mktemp("scale")/"whole"
    return featurize(folder, BLOCKS, FEATURES), folder


def bits(folder): return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def world(seed, n=None, F=None):
    "Features with twins, private variances and a reward"
    rng = np.random.default_rng(seed)
    n, F = n or int(rng.integers(5, 2000)), F or int(rng.integers(2, 60))
    Phi = torch.from_numpy(rng.standard_normal((n, F))*rng.random(F)**3).float()
    Phi[:, 0] += 1
    r = torch.from_numpy(rng.random(n)*0.1*(seed % 3)).float()
    if n > 20: Phi[n//2:n//2 + 5], r[n//2:n//2 + 5] = Phi[:5], r[:5]
    f = (Phi @ torch.from_numpy(rng.standard_normal(F)).float()).double()
    return Phi, r, f, rng


def pretend(model, k, beta, repeats):
    "A batch by the plain way: one fantasy after another over all arms"
    chosen, seen = [], model.arms
    while len(chosen) < min(k, len(model) - (0 if repeats else len(seen))):
        score = model.mean + beta*model.std
        if not repeats: score[seen] = -math.inf
        score[chosen] = -math.inf
        chosen.append(int((score >= score.max() - 1e-11).nonzero()[0]))
        model = model.fantasy(chosen[-1])
    return chosen


# the lazy posterior

@pytest.mark.parametrize("seed", range(16))
def test_same_choices_as_the_plain_posterior(seed):
    Phi, r, f, rng = world(seed)
    lam, beta, repeats = 10**rng.uniform(-4, 0), float(rng.uniform(0, 3)), bool(seed % 2)
    library = Library.of(Phi, r)
    lazy = LazyPosterior(library, lam, lead=int(rng.integers(1, 20)), few=int(rng.integers(1, 8)))
    plain, arms, values = FeaturePosterior(Phi.double(), lam, r), [], []
    for _ in range(min(15, len(Phi)//3)):
        batch = lazy.suggest(k := int(rng.choice([1, 1, 3, 7])), beta, repeats)
        assert batch == pretend(plain, k, beta, repeats)
        y = f[batch] + lam**0.5*torch.from_numpy(rng.standard_normal(len(batch)))
        lazy.observe(batch, y), plain.observe(batch, y)
        arms += batch; values += y.tolist()
        found, brute = lazy.best(5, beta, repeats), rank(library, weigh(library, arms, values, lam),
                                                         5, beta, repeats)
        assert found[0].tolist() == brute[0].tolist()
        assert_close(found[1], brute[1], rtol=1e-8, atol=1e-8)
    assert_close(lazy.mean, plain.mean, rtol=0, atol=1e-4)
    assert_close(lazy.std**2, plain.std**2, rtol=0, atol=1e-4)
    assert lazy.t == len(arms) and lazy.arms.tolist() == plain.arms.tolist()


@pytest.mark.parametrize("unit", [1e-3, 1., 1e4])
def test_rewards_in_any_unit(unit):
    Phi, r, f, rng = world(4, 600, 12)
    lazy = LazyPosterior(Library.of(Phi*unit, r*unit**2), 0.01*unit**2, lead=4)
    plain = FeaturePosterior(Phi.double()*unit, 0.01*unit**2, r.double()*unit**2)
    for _ in range(25):
        assert lazy.suggest() == pretend(plain, 1, 2., False)
        arm = lazy.suggest()[0]
        lazy.observe(arm, unit*float(f[arm])), plain.observe(arm, unit*float(f[arm]))


def test_copies_and_draws_leave_the_original_alone():
    Phi, r, f, rng = world(5, 400, 15)
    lazy = LazyPosterior(Library.of(Phi, r), 0.05).observe([1, 9, 1], [0.3, -1., 0.5])
    plain = FeaturePosterior(Phi.double(), 0.05, r).observe([1, 9, 1], [0.3, -1., 0.5])
    other = lazy.copy()
    for step in range(30): other.observe(other.suggest(), [float(step % 2)])
    draw, same = (p.draw(np.random.default_rng(3)) for p in (lazy, plain))
    assert_close(draw, same, rtol=0, atol=1e-4)
    assert_close(lazy.std, plain.std, rtol=0, atol=1e-4)
    assert lazy.t == 3 and other.t == 33
    assert_close(lazy.evidence(), plain.evidence(), rtol=1e-9, atol=1e-9)
    assert lazy.suggest() == pretend(plain, 1, 2., False)
    empty = LazyPosterior(Library.of(Phi, r), 0.05)
    assert empty.evidence() == 0 and torch.isfinite(empty.draw(rng)).all()


def test_another_multiplier_between_passes():
    Phi, r, f, _ = world(8, 900, 20)
    library = Library.of(Phi, r)
    lazy, arms = LazyPosterior(library, 0.01, lead=8), []
    for step in range(30):
        beta = (0., 0.5, 3.)[step % 3]
        found = lazy.best(3, beta, True)[0]
        assert found.tolist() == rank(library, weigh(library, arms, f[arms], 0.01), 3, beta,
                                      True)[0].tolist()
        arms.append(lazy.suggest(beta=beta)[0])
        lazy.observe(arms[-1], float(f[arms[-1]]))


def test_ties_go_to_the_lowest_number():
    same = Library.of(torch.ones(50, 3), torch.full((50,), 0.1))
    lazy = LazyPosterior(same, 0.1)
    assert lazy.suggest() == [0] and lazy.suggest(4) == [0, 1, 2, 3]
    assert rank(same, weigh(same, [], [], 0.1), 5)[0].tolist() == [0, 1, 2, 3, 4]
    lazy.observe([0, 1], [-1., -1.])
    assert lazy.suggest() == [2]
    arms, scores = top_of(torch.tensor([7, 3, 5]), torch.tensor([1., 1 + 1e-15, 2.]).double(), 3)
    assert arms.tolist() == [5, 3, 7]


def test_every_arm_in_turn_and_then_none():
    lazy = LazyPosterior(Library.of(torch.eye(6)), 0.1)
    for _ in range(6): lazy.observe(lazy.suggest(), [0.5])
    assert sorted(lazy.arms.tolist()) == list(range(6))
    assert lazy.suggest() == [] and len(lazy.suggest(3, repeats=True)) == 3
    assert len(rank(lazy.library, weigh(lazy.library, range(6), [0.5]*6, 0.1))[0]) == 0
    assert lazy.reset().t == 0 and lazy.suggest() == [0]


def test_bad_observations_change_nothing():
    Phi, r, f, _ = world(6, 100, 5)
    lazy = LazyPosterior(Library.of(Phi, r), 0.1).observe(3, 1.)
    before = lazy.m.clone()
    for arms, values in ((100, 1.), (-1, 1.), (3, math.nan), ([1, 2], [1.]), (1.5, 1.)):
        with pytest.raises(ValueError): lazy.observe(arms, values)
    assert torch.equal(lazy.m, before) and lazy.t == 1
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="k to be an integer"): lazy.suggest(bad)
        with pytest.raises(ValueError, match="k to be an integer"): lazy.best(bad)
    for bad in (0, -1., math.nan):
        with pytest.raises(ValueError, match="lam"): LazyPosterior(lazy.library, bad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
def test_features_of_any_type_become_single(dtype):
    Phi = torch.arange(12).reshape(4, 3).to(dtype)
    library = Library.of(Phi, torch.ones(4, dtype=dtype))
    assert library.parts[0].dtype == torch.float32 and library.rows([2]).dtype == torch.float64
    assert library.rows([2]).tolist() == [[6., 7., 8., 1.]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_refused(value, tmp_path):
    Phi = torch.ones(5000, 3)
    Phi[4999, 1] = value
    with pytest.raises(ValueError, match="NaN or infinity"): LazyPosterior(Library.of(Phi), 0.1)
    library = Library.of(Phi)
    with pytest.raises(ValueError, match="NaN or infinity"):
        rank(library, weigh(library, [], [], 0.1))
    with pytest.raises(ValueError, match="finite"): save_part(tmp_path/"x.npy", Phi.numpy())
    assert not list(tmp_path.iterdir())


def test_negative_private_variance_is_refused(tmp_path):
    rows = np.ones((5, 3), np.float32)
    rows[2, 2] = -0.1
    with pytest.raises(ValueError, match="at least 0"): save_part(tmp_path/"x.npy", rows)
    with pytest.raises(ValueError, match="private variance is negative"):
        LazyPosterior(Library([torch.from_numpy(rows)]), 0.1)


def test_pulls_of_one_arm_in_any_grouping():
    old, total = (0, 0., 0.), 0.
    for y in (1., 3., -2.):                           # precisions add up
        noise, _ = growth(old, (1, y, 0.), 0.3, 0.2)
        total += 1/noise
        old = old[0] + 1, (old[1]*old[0] + y)/(old[0] + 1), 0.
    assert_close(total, 1/growth((0, 0., 0.), (3, 2/3, 0.), 0.3, 0.2)[0])


# features

def test_degree_and_anchors_refuse_what_they_cannot_do():
    alike = BLOCKS[0][[3, 3, 3]]
    with pytest.raises(ValueError, match="same for all graphs"): choose_degree(alike)
    X = GraphDomain.erdos_renyi(40, 5, 0.4, 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="share"): choose_degree(X, share=0.)
    twice = AnchorFeatures(GraphDomain.concat([X, X]))      # twins among the anchors
    assert len(twice) <= 40 and missed_share(twice, X) < 1e-6
    with pytest.raises(ValueError):
        twice(GraphDomain.erdos_renyi(3, 5, 0.4, 3, np.random.default_rng(0)))


def test_anchor_features_in_a_folder(tmp_path):
    X = BLOCKS[0]
    features = AnchorFeatures(X[:20])
    library = featurize(tmp_path/"a", [X, BLOCKS[1]], features)
    assert_close(library.rows(range(50))[:, :-1], features(X), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="differs in: .*anchors"):
        featurize(tmp_path/"a", [X, BLOCKS[1]], AnchorFeatures(X[1:21]))


# files

@pytest.mark.parametrize("damage", ["cut", "more", "text", "empty", "pickle", "zip", "columns"])
def test_damaged_parts_are_refused_and_made_again(damage, whole, tmp_path):
    library, folder = whole
    for name, content in bits(folder).items(): (tmp_path/name).write_bytes(content)
    file, good = tmp_path/part_name(2), (folder/part_name(2)).read_bytes()
    rows = read_part(file).numpy().copy()
    if damage in ("cut", "more", "text", "empty"):
        file.write_bytes({"cut": good[:-5], "more": good + b"x", "text": b"hello",
                          "empty": b""}[damage])
    if damage == "pickle": np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    if damage == "zip":
        with open(file, "wb") as f: np.savez(f, rows=rows)
    if damage == "columns": np.save(file, rows[:, 1:])
    with pytest.raises(ValueError, match="part-000002"): Library.open(tmp_path)
    featurize(tmp_path, BLOCKS, FEATURES)
    assert bits(tmp_path) == bits(folder)


def test_a_changed_number_is_found_by_its_checksum(whole, tmp_path):
    library, folder = whole
    for name, content in bits(folder).items(): (tmp_path/name).write_bytes(content)
    rows = read_part(tmp_path/part_name(1)).numpy().copy()
    rows[3, 2] += 0.5
    save_part(tmp_path/part_name(1), rows)
    with pytest.raises(ValueError, match="part-000001.npy has changed"):
        Library.open(tmp_path).verify()
    library.verify()


def test_foreign_descriptions_are_refused(whole, tmp_path):
    for text in ("", "[]", "{}", '{"format": "other"}', "\x00"):
        (tmp_path/"library.json").write_text(text)
        with pytest.raises(ValueError, match="library.json"): Library.open(tmp_path)
    with pytest.raises(ValueError, match="not a finished library"): Library.open(tmp_path/"no")
    facts = json.loads((whole[1]/"library.json").read_text())
    facts["rows"][0] += 1
    for name, content in bits(whole[1]).items(): (tmp_path/name).write_bytes(content)
    (tmp_path/"library.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="expected 51 rows, got 50"): Library.open(tmp_path)


def test_a_killed_run_leaves_nothing_that_looks_whole(whole, tmp_path):
    program = ("import sys; sys.path.insert(0, 'tests'); import test_scale as t; "
               f"t.featurize({str(tmp_path)!r}, t.SlowBlocks(0.2), t.FEATURES)")
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT,
                           env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        began = time.monotonic()
        while not (tmp_path/part_name(1)).exists():
            assert run.poll() is None and time.monotonic() - began < 60
            time.sleep(0.01)
    finally: run.send_signal(signal.SIGKILL); run.wait()
    assert not (tmp_path/"library.json").exists()
    with pytest.raises(ValueError, match="not a finished library"): Library.open(tmp_path)
    (tmp_path/".part-000003.npy.abc").write_bytes(b"half of a part")
    made = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("part-*")}
    featurize(tmp_path, BLOCKS, FEATURES)
    assert bits(tmp_path) == bits(whole[1])
    for name, when in made.items(): assert (tmp_path/name).stat().st_mtime_ns == when


def test_threads_and_parts_change_nothing(whole):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for i in range(len(BLOCKS)):
            assert np.array_equal(make_part(BLOCKS[i], FEATURES), whole[0].parts[i].numpy())
    finally: torch.set_num_threads(threads)
    one = Library([torch.cat(whole[0].parts)])
    arms, y = [3, 77, 200], [1., -1., 0.5]
    for k in (1, 7, 500):
        many = rank(whole[0], weigh(whole[0], arms, y, 0.1), k)
        both = rank(one, weigh(one, arms, y, 0.1), k)
        assert many[0].tolist() == both[0].tolist()
        assert len(many[0]) == min(k, 227)


# Dask

def test_a_killed_worker_changes_nothing(whole, tmp_path):
    "Two worker processes make and score the parts; one is killed half way"
    distributed = pytest.importorskip("distributed")
    weights = weigh(whole[0], [3, 77, 200], [1., -1., 0.5], 0.1)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True,
                                  dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with distributed.Client(address, set_as_default=False) as client:
            victim = next(iter(client.run(os.getpid).values()))
        def kill():
            began = time.monotonic()
            while not list(tmp_path.glob("part-*")) and time.monotonic() - began < 60:
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)
            left.append(len(BLOCKS) - len(list(tmp_path.glob("part-*"))))
        left, killer = [], threading.Thread(target=kill, daemon=True)
        killer.start()
        library = featurize(tmp_path, SlowBlocks(0.5), FEATURES, address)
        killer.join()
        assert left[0] > 0, "the worker was killed too late to matter"
        found = rank(tmp_path, weights, 40, scheduler=address)
        with pytest.raises(ZeroDivisionError): list(each(lambda x: 1/x, [0], address))
    assert bits(tmp_path) == bits(whole[1])
    local = rank(whole[1], weights, 40)
    assert torch.equal(found[0], local[0]) and torch.equal(found[1], local[1])
    assert library.facts == whole[0].facts


def test_a_cluster_that_is_not_there(whole):
    pytest.importorskip("distributed")
    weights = weigh(whole[0], [], [], 0.1)
    with pytest.raises(OSError, match="no Dask scheduler"):
        rank(whole[1], weights, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="needs the folder"):
        rank(whole[0], weights, scheduler="tcp://127.0.0.1:1")
