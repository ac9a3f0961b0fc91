"Rewards, data sets and the environment: invariants over options, sizes and routes; reproducibility; refusals."
import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import gnn_bandits.rewards as rewards
from gnn_bandits.confidence import NOISES
from gnn_bandits.gntk import gntk
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.rewards import (CODE, DATASETS, PAPER, Dataset, DatasetSpec, Environment, Evidence, RewardOptions, action_set,
                                 dataset, draw_evidence, sample_reward, sampling_method, twins)

rng = np.random.default_rng
ALL = [RewardOptions(kind=k, labels=y, evidence=e, average=a, method=m, degree=3, label_noise=v)
       for k, y, e, (a, m, v) in itertools.product(("sample", "mean"), ("normal", "prior"), ("inside", "outside"),
                                                   (("nodes", "exact", 0.), ("padded", "features", 0.1)))]


pytestmark = pytest.mark.usefixtures("one_thread")


def mixed(n=14, d=4, seed=0, most=6):
    "Graphs of 1 to `most` nodes, one of them with all"
    sizes = [most, *rng(seed).integers(1, most + 1, n - 1)]
    return GraphDomain.concat([GraphDomain.erdos_renyi(1, int(N), 0.4, d, rng([seed, i])) for i, N in enumerate(sizes)])


def bandit(n=12, **options):
    X = mixed(n)
    return Environment(X, torch.linspace(-1, 1, n, dtype=torch.float64).flip(0), **{**dict(noise_std=0.1, rng=rng(0)), **options})


@pytest.mark.parametrize("options", ALL, ids=lambda o: "-".join((o.kind, o.labels, o.evidence, o.method)))
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
    assert_close(sample_reward(X, rng(1), dataclasses.replace(o, kind="mean"), evidence=E), mean, rtol=0, atol=1e-7)


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
    f = sample_reward(X, rng(0), o, evidence=Evidence(X[:1], [0.7], torch.tensor([0])), samples=S) - 0.7*A
    v = C.diagonal()
    assert ((f.T @ f/S - C).abs() <= 5*((v[:, None]*v + C**2)/S).sqrt() + 1e-6).all()


def test_scale():
    X = mixed()
    for o in (RewardOptions(labels="prior"), RewardOptions(labels="prior", kind="mean")):
        small, large = (sample_reward(X, rng(0), dataclasses.replace(o, scale=s)) for s in (1., 9.))
        assert_close(large, 3*small, rtol=1e-8, atol=1e-9)
    E = draw_evidence(X, rng(0))
    assert_close(*(sample_reward(X, rng(0), RewardOptions(kind="mean", scale=s), evidence=E) for s in (1., 9.)))


def test_twins():
    X = mixed(20)
    double = GraphDomain.concat([X, X.permute(rng(1)), X[:3]])
    assert twins(double).tolist() == [*range(20), *range(20), 0, 1, 2]
    for o in (PAPER, RewardOptions(method="features", degree=2)):
        f = sample_reward(double, rng(0), o)
        assert torch.equal(f[:20], f[20:40]) and torch.equal(f[:3], f[40:])
    one = GraphDomain.from_arrays([np.zeros((1, 1))], [[[1., 2.]]])
    two = GraphDomain.from_arrays([np.zeros((2, 2))], [[[1., 2.]]*2])
    both = GraphDomain.concat([one, two])
    assert twins(both, "nodes").tolist() == [0, 0] and twins(both, "padded").tolist() == [0, 1]
    with pytest.raises(ValueError, match="5 distinct graphs for the evidence, got 4"): sample_reward(GraphDomain.concat([X[:4]]*3), rng(0))


def test_prefix():
    X, pool = mixed(20), mixed(8, seed=1)
    for o in (RewardOptions(evidence="outside"), RewardOptions(evidence="outside", method="features", degree=2)):
        E = draw_evidence(X, rng(0), o, pool)
        assert_close(sample_reward(X[:9], rng(1), o, evidence=E), sample_reward(X, rng(1), o, evidence=E)[:9], rtol=0, atol=1e-10)


def test_route():
    assert sampling_method(mixed()).method == "exact"
    assert sampling_method(mixed(), RewardOptions(method="features")).degree == 12
    assert sampling_method(mixed(), RewardOptions(degree=3)).degree == 3
    assert sampling_method(mixed(d=1)).method == "exact"
    row = torch.zeros(1, 1, 10, dtype=torch.float64)
    row[..., 0] = 1
    for n, N, method in ((10_000, 5, "exact"), (10_000, 20, "features"), (12_001, 1, "features"), (600, 100, "exact"), (700, 100, "features")):
        assert sampling_method(GraphDomain(row.expand(n, N, 10))).method == method


def test_one_dimension_and_singular():
    X = GraphDomain.from_arrays([np.zeros((1, 1))]*2, [[[1.]], [[-1.]]])
    f = sample_reward(X, rng(0), RewardOptions(count=2))
    assert f.isfinite().all()
    with pytest.raises(ValueError, match="raise jitter"): rewards.cholesky(-torch.eye(3), 0.)


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(name):
    spec = DATASETS[name]
    assert spec.n == 10_000 and spec.name == name and DatasetSpec.from_json(spec.to_json()) == spec
    data = dataset(name, n=8)
    assert data.domain.h.shape == (8, spec.N, spec.d) and data.f.isfinite().all()
    assert torch.equal(dataset(name, n=6).domain.h, data.domain.h[:6])


def test_dataset_hashes():
    "Pinned: a change of the stream or of the spec is a change of the data sets"
    assert len(DATASETS) == 17 and "N100_p0.05_d100" not in DATASETS
    spec = DatasetSpec(5, 0.05, 10, n=6)
    assert DatasetSpec(5, 0.05, 10, n=7).hash != spec.hash
    domains = {dataset(DatasetSpec(5, 0.2, 3, n=5, seed=s, reward=r)).domain_hash() for s in (0, 1) for r in (PAPER, CODE)}
    assert len(domains) == 2
    assert dataset(spec).domain_hash() == PINNED["domain"] and DATASETS["N20_p0.2_d10"].hash == PINNED["spec"]


PINNED = dict(domain="aa1462d7816a34760effcba4f834ec4ed17fb00db70c0a08d9525ba9d4e80fa1", spec="f3b478ab2b605efc206dacb92c206f26f7d66368d3c5c76cfce07ce69e0bfa75")


def test_save_and_load(tmp_path):
    for reward in (PAPER, CODE):
        data = dataset("N5_p0.2_d10", n=7, seed=2, reward=reward)
        file = data.save(tmp_path/"sub"/"x.npz")
        back = Dataset.load(file)
        assert back.spec == data.spec and torch.equal(back.f, data.f) and torch.equal(back.domain.h, data.domain.h)
        assert data.agrees(back) and not data.agrees(dataclasses.replace(back, f=back.f + 1e-6))
        assert file.read_bytes() == data.save(file).read_bytes()
    with np.load(file) as z: parts = dict(z)
    text = data.spec.to_json().replace('"seed":2', '"seed":3').encode()
    forged = {**parts, "spec": np.frombuffer(text, np.uint8)}
    keys = ("spec", "domain", "f", "labels", "arms")
    for change, said in (({"f": parts["f"][:-1]}, "do not belong"), ({"spec": forged["spec"]}, "other bits"), ({"domain": parts["domain"][::-1]}, "other bits")):
        bad = {**parts, **change}
        bad["checksum"] = np.frombuffer(rewards.array_hash(*(bad[k] for k in keys)).encode(), np.uint8)
        np.savez(file, **bad)
        with pytest.raises(ValueError, match=said): Dataset.load(file)
    np.savez(file, **{**parts, "f": parts["f"] + 1})
    with pytest.raises(ValueError, match="checksum"): Dataset.load(file)
    np.savez(file, **{k: v for k, v in parts.items() if k != "labels"})
    with pytest.raises(ValueError, match="labels"): Dataset.load(file)
    with pytest.raises(FileNotFoundError): Dataset.load(tmp_path/"none.npz")


def test_action_set():
    X, f = mixed(), torch.arange(14.)
    G, g, arms = action_set(X, f, 14, rng(0))
    assert sorted(arms.tolist()) == list(range(14)) and torch.equal(G.h, X.h[arms]) and torch.equal(g, arms.double())
    assert torch.equal(action_set(X, f, 5, rng(1))[2], action_set(X, f, 5, rng(1))[2])
    for bad, said in ((dict(size=15), "at most 14"), (dict(size=1.5), "size"), (dict(rng=1), "Generator"), (dict(f=f[:3]), "each of 14")):
        with pytest.raises(ValueError, match=said): action_set(**{**dict(domain=X, f=f, size=3, rng=rng(0)), **bad})


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
    assert s["arms"] == 12 and s["best"] == 0 and math.isclose(s["mean_gap"], 1) and math.isclose(s["smallest_gap"], 2/11) and s["largest_gap"] == 2
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
    for bad in (12, -1, 1.0, "1", None, True, [0, 12], [], [[]], math.nan):
        for call in (env.pull, env.regret):
            with pytest.raises(ValueError, match="integers from 0 to 11"): call(bad)
    changed = [{**before, k: v} for k, v in dict(version=2, noise="uniform", noise_std=0.2, rewards="x", key=[1, 2**64], counts={"x": 1}).items()]
    for bad in (*changed, {k: v for k, v in before.items() if k != "key"}, {**before, "counts": {"1": 1.5}}, 3, None):
        with pytest.raises(ValueError, match="not the state of this environment"): env.restore(bad)
    assert env.state() == before


@pytest.mark.parametrize("bad, said", [(dict(noise_std=-1), "noise_std"), (dict(noise_std=math.inf), "noise_std"), (dict(noise_std="1"), "noise_std"), (dict(noise="cauchy"), "rademacher"),
                                       (dict(rng=None), "Generator")])
def test_environment_refuses(bad, said):
    with pytest.raises(ValueError, match=said): bandit(**bad)


@pytest.mark.parametrize("f", [[0., 1., math.nan], [0., 1., math.inf], [0., 1.], [[0., 1., 2.]], 3.])
def test_environment_refuses_rewards(f):
    with pytest.raises(ValueError, match="expected (finite|one) reward"): Environment(mixed(3), f, rng=rng(0))


def test_unknown():
    for bad in ("N20_p0.2_d11", "", 3, None):
        with pytest.raises(ValueError, match="expected a DatasetSpec or one of"): dataset(bad)
    with pytest.raises(ValueError, match="RewardOptions"): dataset("N5_p0.2_d10", n=6, reward="CODE")
    with pytest.raises(ValueError, match="expected n"): dataset("N5_p0.2_d10", n=-6)
    with pytest.raises(ValueError, match="needs a pool"): sample_reward(mixed(), rng(0), RewardOptions(evidence="outside"))
    with pytest.raises(ValueError, match="one feature dimension"): sample_reward(mixed(), rng(0), RewardOptions(evidence="outside"), mixed(d=3))
    with pytest.raises(ValueError, match="Generator"): sample_reward(mixed(), None)
    assert set(DATASETS) == {f"N{N}_p{p}_d{d}" for N in (5, 20, 100) for p in (0.05, 0.2, 0.95) for d in (10, 100)} - {"N100_p0.05_d100"}
