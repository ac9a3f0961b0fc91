"Invariants of the explicit features of the graph kernel; refusals; memory; old places of names."
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.features import GNTKFeatures
from gnn_bandits.gntk import gntk, gntk_diag
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.ntk import ntk
from gnn_bandits.spectrum import multiplicity

AVERAGES = ("nodes", "padded")


def mixed(n, most, d, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, n)
    upper = [np.triu(rng.random((s, s)) < 0.4, 1) for s in sizes]
    features = [rng.standard_normal((s, d)) for s in sizes]
    return GraphDomain.from_arrays([a | a.T for a in upper], features)


def unit(*shape, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64, generator=g),
                                         dim=-1)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("L", (1, 2, 3))
@pytest.mark.parametrize("d, degree", ((2, 9), (3, 6), (5, 4), (4, 0), (4, 1)))
def test_features_are_the_truncated_series(d, degree, L, average):
    X = mixed(30, 12, d, d)
    F = GNTKFeatures(d, L, degree)
    f, gap = F(X, average), F.gap(X, average)
    assert f.shape == (30, len(F)) and f.dtype == torch.float64
    assert len(F) <= sum(multiplicity(d, r) for r in range(degree + 1))
    missing = gntk(X, L=L, average=average) - f @ f.T
    assert (missing.abs() <= (gap[:, None]*gap).sqrt() + 1e-12).all()
    assert torch.linalg.eigvalsh(missing)[0] > -1e-13     # what is missing is a kernel
    assert gap.max() <= F.tail + 1e-12
    assert_close(F(X, average, torch.float32).double(), f, rtol=0, atol=1e-5)
    assert_close(torch.cat(list(F.blocks(X, 7, average))), f, rtol=0, atol=1e-15)
    assert_close(F.diag(X, average), gntk_diag(X, L, average), rtol=0, atol=0)


def test_one_node_features_reach_one_minus_the_tail():
    F = GNTKFeatures(6, 2, 5)
    f = F(GraphDomain(unit(40, 1, 6, seed=1)))
    assert_close((f*f).sum(1), torch.full((40,), 1 - F.tail, dtype=torch.float64), rtol=0,
                 atol=1e-13)


@pytest.mark.parametrize("d", (3, 10, 100, 1000))
def test_eigenvalues_in_many_dimensions(d):
    F = GNTKFeatures(d, 2, 1)
    rng = np.random.default_rng(d)
    x = rng.standard_normal((20_000, d))
    t = torch.from_numpy(x[:, 0]/np.linalg.norm(x, axis=1))
    for samples, lam in ((ntk(t, 2).numpy(), F.eigenvalues[0]),
                         ((ntk(t, 2)*t).numpy(), F.eigenvalues[1])):
        assert abs(samples.mean() - lam) < 5*samples.std()/math.sqrt(len(samples))


@pytest.mark.parametrize("d, L, degree", [(2, 2, 5), (3, 1, 6), (17, 2, 2), (18, 2, 3), (40, 2, 3)])
def test_linear_is_the_product_with_the_features(d, L, degree):
    "Also where the coordinates are cut into runs, and where the highest degree is missing"
    X = GraphDomain.concat([GraphDomain.erdos_renyi(3, N, 0.4, d, np.random.default_rng([d, N]))
                            for N in (1, 4, 6)])
    F = GNTKFeatures(d, L, degree)
    w = torch.from_numpy(np.random.default_rng(0).standard_normal((2, len(F))))
    for average in AVERAGES:
        assert_close(F.linear(X, w, average), w @ F(X, average).T, rtol=0, atol=1e-11)
    assert_close(F.linear(X, w[:1]), F.linear(X, w)[:1], rtol=0, atol=1e-12)
    products = F(X) @ F(X).T
    whole = products + F.gap(X).diag()
    assert_close(whole.diagonal(), F.diag(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("w", [torch.zeros(5), torch.zeros(1, 3), torch.zeros(1, 1, 5)])
def test_linear_refuses(w):
    X = GraphDomain.erdos_renyi(3, 2, 0.4, 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="expected weights"): GNTKFeatures(4, 2, 1).linear(X, w)


@pytest.mark.parametrize("d, L, degree", [(10, 2, 4), (100, 2, 2), (3, 1, 6)])
def test_numbers_are_those_of_a_plain_construction(d, L, degree):
    "Features through one coordinate after another, against products of Legendre polynomials"
    from gnn_bandits.spectrum import eigenvalues, legendre
    X = GraphDomain.erdos_renyi(5, 4, 0.4, d, np.random.default_rng(d))
    x = X.h.flatten(0, 1)
    P, lam = legendre(d, degree, (x @ x.T).clamp(-1, 1)), eigenvalues(L, d, degree)
    series = sum(float(lam[r])*multiplicity(d, r)*P[r] for r in range(degree + 1))
    f = GNTKFeatures(d, L, degree)(X)
    assert_close(f @ f.T, series.view(5, 4, 5, 4).mean((1, 3)), rtol=0, atol=1e-13)


def test_refusals():
    X = mixed(40, 15, 4, 0)
    for call, said in [
        (lambda: GNTKFeatures(10, degree=-1), "degree"),
        (lambda: GNTKFeatures(10, degree=2.5), "degree"),
        (lambda: GNTKFeatures(10, L=0), "hidden layer"), (lambda: GNTKFeatures(1), "dimension"),
        (lambda: GNTKFeatures(10)(X), "d=10"), (lambda: GNTKFeatures(4)(X.h), "expected a "
                                                "GraphDomain"),
        (lambda: GNTKFeatures(10).gap(X), "d=10"), (lambda: GNTKFeatures(4)(X, average="x"),
                                                    "padded"),
        (lambda: GNTKFeatures(4)(X, dtype=torch.float16), "torch.float64"),
        (lambda: next(GNTKFeatures(4).blocks(X, 0)), "size of a block"),
    ]:
        with pytest.raises(ValueError, match=said): call()


def test_too_many_features_are_refused_before_work(monkeypatch):
    import gnn_bandits.features as features
    monkeypatch.setattr(features, "eigenvalues", None)    # nothing is built before the estimate
    with pytest.raises(ValueError, match="lower degree"): GNTKFeatures(2000)
    with pytest.raises(ValueError, match="lower degree"): GNTKFeatures(10**6, degree=100)
    monkeypatch.undo()
    one = GraphDomain.erdos_renyi(1, 1, 0.4, 10, np.random.default_rng(0))
    many = GraphDomain.packed(one.nodes.expand(10**7, -1), torch.ones(10**7))
    with pytest.raises(ValueError, match="features of 10000000 graphs .* block by block"):
        GNTKFeatures(10, degree=7)(many)


def test_integers_of_numpy_are_integers():
    F = GNTKFeatures(np.int64(3), np.int32(2), np.int64(4))
    assert (F.d, F.L, F.degree) == (3, 2, 4) and type(F.d) is int
    X = GraphDomain.erdos_renyi(3, 2, 0.4, 3, np.random.default_rng(0))
    assert torch.equal(F(X), GNTKFeatures(3, 2, 4)(X))
    assert len(list(F.blocks(X, np.int64(2)))) == 2


def test_one_large_graph_among_small_ones():
    "Nothing is padded, and a graph with more nodes than a group is taken in parts"
    rng = np.random.default_rng(0)
    z, sizes = unit(5099, 5, seed=3), torch.cat([torch.ones(50), torch.tensor([5000.]),
                                                 torch.ones(49)])
    X, F = GraphDomain.packed(z, sizes), GNTKFeatures(5, 2, 3)
    w = torch.from_numpy(rng.standard_normal((2, len(F))))
    f = F(X)
    alone = F(GraphDomain.packed(z[50:5050], torch.ones(5000))).mean(0)
    assert_close(f[50], alone, rtol=0, atol=1e-13)
    assert_close(F.linear(X, w), w @ f.T, rtol=0, atol=1e-12)
    gntk_diag(X), F.gap(X), gntk(X[45:55])
    assert "h" not in vars(X)                             # the padded array was never made


def test_old_places_of_names():
    code = ("import sys, gnn_bandits.gntk as g; assert 'gnn_bandits.features' not in sys.modules; "
            "from gnn_bandits.gntk import GNTKFeatures; import gnn_bandits.features as f; "
            "assert GNTKFeatures is f.GNTKFeatures; assert not hasattr(g, 'nothing')")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
