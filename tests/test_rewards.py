"Rewards and the environment: invariants over options, sizes and routes; refusals."
import dataclasses
import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import gnn_bandits.rewards as rewards
from gnn_bandits.core import NOISES
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.rewards import (Environment, Evidence, RewardOptions, draw_evidence, sample_reward,
                                 sampling_method, twins)

rng = np.random.default_rng
ALL = [RewardOptions(kind=k, labels=y, evidence=e, average=a, method=m, degree=3, label_noise=v)
       for k, y, e, (a, m, v) in itertools.product(
           ("sample", "mean"), ("normal", "prior"), ("inside", "outside"),
           (("nodes", "exact", 0.), ("padded", "features", 0.1)))]


pytestmark = pytest.mark.usefixtures("one_thread")


def mixed(n=14, d=4, seed=0, most=6):
    "Graphs of 1 to `most` nodes, one of them with all"
    sizes = [most, *rng(seed).integers(1, most + 1, n - 1)]
    return GraphDomain.concat([GraphDomain.erdos_renyi(1, int(N), 0.4, d, rng([seed, i]))
                               for i, N in enumerate(sizes)])


def bandit(n=12, **options):
    f = torch.linspace(-1, 1, n, dtype=torch.float64).flip(0)
    return Environment(mixed(n), f, **{**dict(noise_std=0.1, rng=rng(0)), **options})


def words(o): return "-".join((o.kind, o.labels, o.evidence, o.method))


@pytest.mark.parametrize("options", ALL, ids=words)
def test_every_option(options):
    X, pool = mixed(), mixed(8, seed=1)
    f = sample_reward(X, rng(1), options, pool)
    assert f.shape == (14,) and f.dtype == torch.float64 and f.isfinite().all()
    assert torch.equal(f, sample_reward(X, rng(1), options, pool))
    assert not torch.equal(f, sample_reward(X, rng(2), options, pool))
    assert_close(f, sample_reward(X.permute(rng(3)), rng(1), options, pool), rtol=0, atol=1e-9)
    batch = sample_reward(X, rng(1), options, pool, samples=3)
    assert batch.shape == (3, 14)
    assert (options.kind == "mean") == torch.allclose(batch[0], batch[1], rtol=0, atol=1e-12)
    assert_close(batch[0], f, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["exact", "features"])
def test_labels_are_met_and_mean_is_exact(method):
    X = mixed(30)
    o = RewardOptions(method=method, degree=2)
    E = draw_evidence(X, rng(0), o)
    assert len(E.arms.unique()) == 5 and torch.equal(E.graphs.h, X[E.arms].h)
    f = sample_reward(X, rng(1), o, evidence=E, samples=50)
    assert_close(f[:, E.arms], E.labels.expand(50, -1), rtol=0, atol=1e-6)
    K = gntk(X)
    mean = K[:, E.arms] @ torch.linalg.solve(K[E.arms][:, E.arms], E.labels)
    ours = sample_reward(X, rng(1), dataclasses.replace(o, kind="mean"), evidence=E)
    assert_close(ours, mean, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method, noise", list(itertools.product(["exact", "features"], [0., 0.3])))
def test_covariance_of_each_route(method, noise):
    "The covariance is what the two displayed formulas say, for the features with their error"
    X, S, scale = mixed(9), 6000, 2.
    o = RewardOptions(method=method, degree=1, count=1, scale=scale, label_noise=noise)
    F = rewards.GNTKFeatures(4, 2, 1)
    K = gntk(X)
    prior = scale*(K if method == "exact" else F(X) @ F(X).T + F.gap(X).diag())
    assert_close(prior.diagonal(), scale*K.diagonal())
    move = torch.eye(9, dtype=torch.float64)
    A = scale*K[:, 0]/(scale*K[0, 0] + noise)
    move[:, 0] -= A
    C = move @ prior @ move.T + noise*A[:, None]*A
    E = Evidence(X[:1], [0.7], torch.tensor([0]))
    f = sample_reward(X, rng(0), o, evidence=E, samples=S) - 0.7*A
    v = C.diagonal()
    assert ((f.T @ f/S - C).abs() <= 5*((v[:, None]*v + C**2)/S).sqrt() + 1e-6).all()


def test_scale():
    X = mixed()
    for o in (RewardOptions(labels="prior"), RewardOptions(labels="prior", kind="mean")):
        small, large = (sample_reward(X, rng(0), dataclasses.replace(o, scale=s)) for s in (1., 9.))
        assert_close(large, 3*small, rtol=1e-8, atol=1e-9)
    E = draw_evidence(X, rng(0))
    assert_close(*(sample_reward(X, rng(0), RewardOptions(kind="mean", scale=s), evidence=E)
                   for s in (1., 9.)))


def test_twins():
    X = mixed(20)
    double = GraphDomain.concat([X, X.permute(rng(1)), X[:3]])
    assert twins(double).tolist() == [*range(20), *range(20), 0, 1, 2]
    for o in (RewardOptions(), RewardOptions(method="features", degree=2)):
        f = sample_reward(double, rng(0), o)
        assert torch.equal(f[:20], f[20:40]) and torch.equal(f[:3], f[40:])
    one = GraphDomain.from_arrays([np.zeros((1, 1))], [[[1., 2.]]])
    two = GraphDomain.from_arrays([np.zeros((2, 2))], [[[1., 2.]]*2])
    both = GraphDomain.concat([one, two])
    assert twins(both, "nodes").tolist() == [0, 0] and twins(both, "padded").tolist() == [0, 1]
    with pytest.raises(ValueError, match="5 distinct graphs for the evidence, got 4"):
        sample_reward(GraphDomain.concat([X[:4]]*3), rng(0))


def test_prefix():
    X, pool = mixed(20), mixed(8, seed=1)
    for o in (RewardOptions(evidence="outside"),
              RewardOptions(evidence="outside", method="features", degree=2)):
        E = draw_evidence(X, rng(0), o, pool)
        part, whole = (sample_reward(G, rng(1), o, evidence=E) for G in (X[:9], X))
        assert_close(part, whole[:9], rtol=0, atol=1e-10)


def test_route():
    assert sampling_method(mixed()).method == "exact"
    assert sampling_method(mixed(), RewardOptions(method="features")).degree == 12
    assert sampling_method(mixed(), RewardOptions(degree=3)).degree == 3
    assert sampling_method(mixed(d=1)).method == "exact"
    for n, N, method in ((10_000, 5, "exact"), (10_000, 20, "features"), (12_001, 1, "features"),
                         (600, 100, "exact"), (700, 100, "features")):
        assert sampling_method(blank(n, N)).method == method


def blank(n, N, d=10):
    "A domain of equal graphs that takes no room"
    row = torch.zeros(1, 1, d, dtype=torch.float64)
    row[..., 0] = 1
    return GraphDomain(row.expand(n, N, d))


def test_memory_is_estimated_before_work():
    "Seen before: the Gram matrix of too many graphs was asked for, and the process was killed"
    exact, features = (RewardOptions(method=m, degree=1) for m in ("exact", "features"))
    with pytest.raises(ValueError, match="1600000 graphs would take about .* TB .*features"):
        rewards.prior_draws(blank(1_600_000, 1), 1, exact, rng(0), rng(1))
    with pytest.raises(ValueError, match="would take about .* TB .*fewer samples"):
        sample_reward(mixed(), rng(0), features, samples=10**11)


def test_one_dimension_and_singular():
    X = GraphDomain.from_arrays([np.zeros((1, 1))]*2, [[[1.]], [[-1.]]])
    f = sample_reward(X, rng(0), RewardOptions(count=2))
    assert f.isfinite().all()
    with pytest.raises(ValueError, match="raise jitter"): rewards.cholesky(-torch.eye(3), 0.)


def test_books():
    env = bandit()
    assert env.best == 0 and env.optimum == 1 and env.t == 0 and env.total_regret == 0
    first = env.pull(3)
    assert isinstance(first, float) and isinstance(env.regret(3), float)
    later = env.pull(torch.tensor([3, 3, 11]))
    assert later.shape == (3,) and len({first, *later.tolist()}) == 4
    assert env.counts.tolist() == [0, 0, 0, 3] + [0]*7 + [1] and env.t == 4
    assert_close(env.total_regret, float(env.regret([3, 3, 3, 11]).sum()))
    s = env.statistics()
    assert (s["arms"], s["best"], s["largest_gap"]) == (12, 0, 2)
    assert math.isclose(s["mean_gap"], 1) and math.isclose(s["smallest_gap"], 2/11)
    env.f[0] = 5                                          # its own copy of the rewards
    assert bandit().f[0] == 1


def test_flat_and_noiseless():
    X = mixed(3)
    env = Environment(X, [1., 1., 1.], 0, rng=rng(0))
    assert env.pull([0, 1, 2]).tolist() == [1, 1, 1] and env.statistics()["optimal_arms"] == 3
    assert env.statistics()["pulls_to_tell"] == math.inf and env.best == 0


@pytest.mark.parametrize("noise", NOISES)
def test_pause_and_resume(noise):
    schedule = rng(1).integers(12, size=60).tolist()
    whole, part = bandit(noise=noise), bandit(noise=noise)
    paid = [whole.pull(a) for a in schedule]
    assert [part.pull(a) for a in schedule[:25]] == paid[:25]
    other = bandit(noise=noise, rng=rng(7)).restore(json.loads(json.dumps(part.state())))
    assert [other.pull(a) for a in schedule[25:]] == paid[25:] and other.state() == whole.state()
    assert other.total_regret == whole.total_regret
    bound = {"normal": math.inf, "uniform": math.sqrt(3), "rademacher": 1}[noise]
    e = (bandit(noise=noise).pull([0]*2000) - whole.f[0]).numpy()/0.1
    assert np.abs(e).max() <= bound + 1e-9 and abs(e.mean()) < 5/math.sqrt(2000)
    assert abs((e**2).mean() - 1) <= 5*(e**2).std()/math.sqrt(2000) + 1e-9


def test_refusals_leave_the_state():
    env = bandit()
    env.pull([1, 2, 2])
    before = env.state()
    assert env.pull([]).tolist() == env.regret([]).tolist() == []
    for bad in (12, -1, 1.0, "1", None, True, [0, 12], [[]], math.nan):
        for call in (env.pull, env.regret):
            with pytest.raises(ValueError, match="integers from 0 to 11"): call(bad)
    other = dict(version=2, noise="uniform", noise_std=0.2, rewards="x", key=[1, 2**64],
                 counts={"x": 1})
    changed = [{**before, k: v} for k, v in other.items()] + [{**before, "counts": {"1": 1.5}}]
    for bad in (*changed, {k: v for k, v in before.items() if k != "key"}, 3, None):
        with pytest.raises(ValueError, match="not the state of this environment"): env.restore(bad)
    assert env.state() == before


def test_an_interrupt_leaves_all_pulls_in_or_all_out(monkeypatch):
    "Seen before: an interrupt among several pulls left some of them in the books"
    env, made = bandit(), []
    def stop_at_third(key, i, a):
        made.append(a)
        if len(made) == 3: raise KeyboardInterrupt
        return rng(0)
    before = env.state()
    with monkeypatch.context() as m:
        m.setattr(rewards, "counter_rng", stop_at_third)
        with pytest.raises(KeyboardInterrupt): env.pull([4, 4, 5, 6])
    assert env.state() == before
    assert torch.equal(env.pull([4, 4, 5, 6]), bandit().pull([4, 4, 5, 6])) and env.t == 4


def test_arms_come_in_any_form():
    for arms in (np.array([3, 3, 1]), torch.tensor([3, 3, 1]), (3, 3, 1),
                 [np.int64(3), torch.tensor(3), 1]):
        assert torch.equal(bandit().pull(arms), bandit().pull([3, 3, 1]))
    for arm in (np.int64(3), torch.tensor(3), np.array(3)):
        assert bandit().pull(arm) == bandit().pull(3) and bandit().regret(arm) == bandit().regret(3)


@pytest.mark.parametrize("bad, said", [
    (dict(noise_std=-1), "noise_std"), (dict(noise_std=math.inf), "noise_std"),
    (dict(noise_std="1"), "noise_std"), (dict(noise="cauchy"), "rademacher"),
    (dict(rng=None), "Generator")])
def test_environment_refuses(bad, said):
    with pytest.raises(ValueError, match=said): bandit(**bad)


@pytest.mark.parametrize("f", [[0., 1., math.nan], [0., 1., math.inf], [0., 1.], [[0., 1., 2.]],
                               3.])
def test_environment_refuses_rewards(f):
    with pytest.raises(ValueError, match="expected (finite|one) reward"):
        Environment(mixed(3), f, rng=rng(0))


def test_unknown():
    away = RewardOptions(evidence="outside")
    with pytest.raises(ValueError, match="needs a pool"): sample_reward(mixed(), rng(0), away)
    with pytest.raises(ValueError, match="one feature dimension"):
        sample_reward(mixed(), rng(0), away, mixed(d=3))
    with pytest.raises(ValueError, match="Generator"): sample_reward(mixed(), None)


def test_the_library_knows_no_data_set_of_the_paper():
    "Importing rewards imports nothing of the paper wing"
    code = ("import sys, gnn_bandits.rewards; "
            "print([m for m in sys.modules if 'gnn_bandits.paper' in m])")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
