"Invariants of the lazy networks over depth, width, precision, padding; refusals; reproducibility."
import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import gnn_bandits.networks as networks
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import (LazyGNN, LazyNN, distinct_squares, forward, mirror, node_factors,
                                  squared_gradients, unmirror)
from gnn_bandits.ntk import ntk

F64 = torch.float64
rng = np.random.default_rng


pytestmark = pytest.mark.usefixtures("one_thread")


def domain(sizes=(4, 1, 6, 3, 6), d=5, seed=0):
    "Graphs of the given sizes in one domain"
    return GraphDomain.concat([GraphDomain.erdos_renyi(1, N, 0.4, d, rng([seed, i]))
                               for i, N in enumerate(sizes)])


def make(kind, X, m=16, L=2, seed=0, dtype=F64, move=False, **options):
    "A network for X of one of four kinds, at its start or moved away from it"
    cls = LazyNN if kind.startswith("nn") else LazyGNN
    if kind == "gnn padded": options["average"] = "padded"
    if kind.endswith("plain"): options["symmetric"] = False
    net = cls(*cls.shape(X), m, L, rng=rng(seed), dtype=dtype, **options)
    step = lambda W: torch.from_numpy(rng(1).normal(size=W.shape)).to(W)
    if move: net.weights = [W + step(W) for W in net.weights]
    return net


KINDS = ("gnn", "gnn padded", "gnn plain", "nn")
CASES = [dict(kind=k, L=L, move=move)
         for k, L, move in itertools.product(KINDS, (1, 2, 3), (False, True))]
ids = lambda case: "-".join(str(v) for v in case.values()) if isinstance(case, dict) else None


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("dtype", (torch.float32, F64), ids=str)
def test_tangent_kernel_is_the_gram_matrix_of_autograd(case, dtype):
    X = domain()
    net = make(X=X, dtype=dtype, **case)
    x, counts = net.embed(X)
    weights = [W.clone().requires_grad_() for W in net.weights]
    G = torch.stack([torch.cat([g.flatten() for g in torch.autograd.grad(f, weights,
                                                                         retain_graph=True)])
                     for f in forward(weights, x, counts)]).double()
    close = dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=1e-10, atol=1e-11)
    K = net.tangent_kernel(X)
    assert K.dtype == net.gradients(X).dtype == F64 and net(X).dtype == dtype
    assert_close(net.gradients(X), G, **close)
    assert_close(K, G @ G.T/net.m, **close)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_kernel_invariants(case):
    X = domain()
    net = make(X=X, **case)
    K = net.tangent_kernel(X)
    assert torch.equal(K, K.T)
    assert torch.linalg.eigvalsh(K)[0] > -1e-12*K.norm()
    assert_close(net.tangent_kernel(X[:2], X), K[:2], rtol=1e-11, atol=1e-13)
    assert_close(net.tangent_kernel(X, X[:2]), K[:, :2], rtol=1e-11, atol=1e-13)
    assert_close(net.tangent_kernel(X, X[:]), K, rtol=1e-11, atol=1e-13)
    assert_close(net.tangent_kernel(X, normalize=True)*(net.L + 1), K)
    if case["kind"] != "nn":
        Y = X.permute(rng(3))
        assert_close(net.tangent_kernel(Y), K, rtol=1e-11, atol=1e-13)
        assert_close(net(Y), net(X), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", (1, 3, 512))
@pytest.mark.parametrize("memory", (1, 3000, 2**28))
def test_blocks_do_not_change_the_kernel(kind, nodes, memory, monkeypatch):
    X = domain()
    net = make(kind, X, L=3)
    G = net.gradients(X)
    monkeypatch.setattr(networks, "gram_by_nodes", partial(networks.gram_by_nodes, block=nodes))
    assert_close(net.tangent_kernel(X, memory=memory), G @ G.T/net.m, rtol=1e-10, atol=1e-12)
    assert_close(net.tangent_kernel(X, X[1:3], memory=memory), G @ G[1:3].T/net.m, rtol=1e-10,
                 atol=1e-12)


def test_both_routes_are_taken(monkeypatch):
    "Few nodes in a wide network go by nodes, many nodes in a narrow one by graphs"
    seen = []
    for name in ("gram_by_nodes", "gram_by_graphs"):
        f = getattr(networks, name)
        monkeypatch.setattr(networks, name, lambda *a, f=f, name=name: seen.append(name) or f(*a))
    few, many = domain((2, 1)), domain((30,)*3)
    make("gnn", few, m=128).tangent_kernel(few)
    assert "gram_by_nodes" in seen
    seen.clear()
    make("gnn", many, m=8).tangent_kernel(many)
    assert set(seen) == {"gram_by_graphs"}


@pytest.mark.parametrize("L", (1, 2, 3))
@pytest.mark.parametrize("kind", ("gnn", "gnn padded", "nn"))
@pytest.mark.parametrize("dtype", (torch.float32, F64), ids=str)
def test_zero_at_the_start(kind, L, dtype):
    X = domain()
    net = make(kind, X, m=50, L=L, dtype=dtype)
    assert torch.equal(net(X), torch.zeros(len(X), dtype=dtype))
    blind = forward(net.weights, *net.embed(X)).abs().max()
    assert blind < 1e3*torch.finfo(dtype).eps
    net.weights[-1] = net.weights[-1].clone()
    net.weights[-1][0, 0] += 1                        # any move away from symmetry shows
    assert net(X).abs().max() > 1e-4


def test_mirror_keeps_count_and_scale():
    g = torch.Generator().manual_seed(0)
    half = [torch.randn(s, dtype=F64, generator=g) for s in ((40, 5), (40, 40), (1, 40))]
    whole = mirror(half)
    assert [tuple(W.shape) for W in whole] == [(80, 5), (80, 80), (1, 80)]
    assert_close((whole[1]**2).mean(), (half[1]**2).mean())
    for a, b in zip(unmirror(whole), half): assert_close(a, b, rtol=1e-15, atol=0)
    for l, index in ((0, (3, 2)), (1, (2, 2)), (1, (50, 3)), (1, (3, 50)), (2, (0, 7))):
        broken = [W.clone() for W in whole]
        broken[l][index] += 1
        assert unmirror(broken) is None
    assert unmirror([W[:79, :79] if i == 1 else W for i, W in enumerate(half)]) is None


def test_same_seed_same_network():
    X = domain()
    for kind in KINDS:
        a, b, c = (make(kind, X, seed=s) for s in (4, 4, 5))
        assert all(torch.equal(u, v) for u, v in zip(a.weights, b.weights))
        assert not torch.equal(a.weights[0], c.weights[0])
        low = make(kind, X, seed=4, dtype=torch.float32)
        assert all(torch.equal(u, v.float()) for u, v in zip(low.weights, a.weights))
        assert a.p == sum(W.numel() for W in a.weights) == 16*a.D + 256 + 16


def test_weights_are_standard_normal():
    net = LazyGNN(50, 400, 2, rng=rng(0), dtype=F64)
    for W in unmirror(net.weights):
        n = W.numel()
        assert abs(W.mean()) < 5/n**0.5 and abs(W.var() - 1) < 5*(2/n)**0.5


def test_nothing_is_changed_or_tracked():
    X = domain()
    net = make("gnn", X, move=True)
    before = [W.clone() for W in net.weights]
    out = net(X), net.gradients(X), net.tangent_kernel(X)
    assert all(torch.equal(a, b) for a, b in zip(before, net.weights))
    for W in net.weights: W.requires_grad_()
    again = net(X), net.gradients(X), net.tangent_kernel(X)
    for a, b in zip(out, again): assert torch.equal(a, b) and not b.requires_grad


def test_weighted_sum_of_outputs():
    "Coefficients of `node_factors` give the gradient of any weighted sum, as training needs it"
    X = domain()
    net = make("gnn", X, L=3, move=True)
    x, counts = net.embed(X)
    residual = torch.linspace(-1, 1, len(X), dtype=F64)
    coef = (residual/counts)[:, None].expand(x.shape[:2])
    ours = [d.flatten(0, 1).T @ a.flatten(0, 1) for d, a in node_factors(net.weights, x, coef)]
    weights = [W.clone().requires_grad_() for W in net.weights]
    theirs = torch.autograd.grad((residual*forward(weights, x, counts)).sum(), weights)
    for a, b in zip(ours, theirs): assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_padding_is_inert():
    X = domain()
    wider = GraphDomain(torch.nn.functional.pad(X.h, (0, 0, 0, 4)), X.sizes)
    net = make("gnn", X, L=3, move=True)
    assert_close(net(wider), net(X), rtol=1e-12, atol=1e-14)
    assert_close(net.tangent_kernel(wider), net.tangent_kernel(X), rtol=1e-11, atol=1e-13)
    padded = make("gnn padded", X, L=3, move=True)
    assert_close(padded(wider), padded(X)*6/10, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("L", (1, 2))
@pytest.mark.parametrize("kind", ("gnn", "gnn plain", "gnn padded", "nn"))
def test_mean_over_networks_is_the_limit(kind, L):
    "Within five standard errors of the neural tangent kernel averaged over real nodes"
    X = domain((3, 1, 2))
    K = torch.stack([make(kind, X, m=128, L=L, seed=[L, s]).tangent_kernel(X) for s in range(20)])
    h = X.h.flatten(0, 1)
    if kind == "nn":
        h = torch.nn.functional.normalize(X.h.flatten(1), dim=1)
        expected = ntk(h @ h.T, L, normalize=False)
    else:
        real = (X.h != 0).any(2)
        mean = torch.block_diag(*(r.double()[None]/(X.N if kind == "gnn padded" else r.sum())
                                  for r in real))
        expected = mean @ ntk(h @ h.T, L, normalize=False) @ mean.T
    assert ((K.mean(0) - expected).abs() <= 5*K.std(0)/20**0.5).all()


@pytest.mark.parametrize("bad, words", [
    (dict(m=7), "even"), (dict(m=1), "at least 2"), (dict(m=0), "at least 2"),
    (dict(m=-2), "at least 2"),
    (dict(m=8.0), "integer"), (dict(m=True), "integer"), (dict(L=0), "hidden layer"),
    (dict(L=1.5), "hidden layer"), (dict(d=0), "d to be"), (dict(d=2.0), "d to be"),
    (dict(rng=None), "default_rng"), (dict(rng=3), "default_rng"),
    (dict(dtype=torch.int64), "float32"),
    (dict(dtype="float32"), "float32"), (dict(m=400_000), "smaller width")])
def test_refusals(bad, words):
    options = dict(d=5, m=8, L=2, rng=rng(0)) | bad
    with pytest.raises(ValueError, match=words): LazyGNN(**options)
    with pytest.raises(ValueError, match=words): LazyNN(N=6, **options)


def test_refusals_of_domains():
    X = domain()
    with pytest.raises(ValueError, match="average"): LazyGNN(5, 8, rng=rng(0), average="sum")
    with pytest.raises(ValueError, match="N to be"): LazyNN(5, 0, 8, rng=rng(0))
    with pytest.raises(TypeError): LazyGNN(5, 8)      # no default generator
    for net in (make("gnn", domain(d=4)), make("nn", domain(d=4))):
        for call in (net, net.gradients, net.tangent_kernel):
            with pytest.raises(ValueError, match="dimension 4"): call(X)
            for wrong in (X.h, X.h.numpy(), None, [1]):
                with pytest.raises(ValueError, match="GraphDomain"): call(wrong)
        with pytest.raises(ValueError, match="dimension 4"): net.tangent_kernel(domain(d=4), X)
    with pytest.raises(ValueError, match="padded to 6"): make("nn", X)(domain((3, 2)))
    with pytest.raises(ValueError, match="one N"):
        make("gnn padded", X).tangent_kernel(X, domain((3, 2)))
    with pytest.raises(ValueError, match="GraphDomain"):
        make("gnn padded", X).tangent_kernel(X, X.h)
    assert LazyGNN(5, 7, rng=rng(0), symmetric=False).m == 7


def test_sizes_that_do_not_fit_are_refused_before_work(monkeypatch):
    one = domain((1,))
    X = GraphDomain.packed(one.nodes.expand(10**7, -1), torch.ones(10**7))
    net = make("gnn", X, m=512)
    monkeypatch.setattr(networks, "node_factors", None)   # no work before the estimate
    with pytest.raises(ValueError, match=r"rows at a time, net.tangent_kernel\(X\[i:j\], X\)"):
        net.tangent_kernel(X)
    for call in (net.gradients, lambda X: squared_gradients(net, X),
                 lambda X: distinct_squares(net, X)):
        with pytest.raises(ValueError, match="of memory"): call(X)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_changes_no_bit(kind):
    X = domain((600, 3, 1, 700, 20))
    net, threads, seen = make(kind, X, m=64, move=kind == "gnn plain"), torch.get_num_threads(), []
    try:
        for k in (1, 2, 3):
            torch.set_num_threads(k)
            squares = distinct_squares(net, X)[0]
            seen.append((net.tangent_kernel(X), net.tangent_kernel(X[:2], X), net(X),
                         net.gradients(X), squares))
    finally: torch.set_num_threads(threads)
    for other in seen[1:]:
        for a, b in zip(seen[0], other): assert torch.equal(a, b)


def test_large_graphs_are_not_padded():
    X = GraphDomain.concat([domain((1, 2)), domain((3000,)), domain((2,))])
    for kind in ("gnn", "gnn padded", "gnn plain"):
        net = make(kind, X, m=8, move=True)
        G = net.gradients(X)
        assert_close(net.tangent_kernel(X), G @ G.T/net.m, rtol=1e-10, atol=1e-12)
        net(X), squared_gradients(net, X), distinct_squares(net, X)
    assert "h" not in vars(X)                             # the padded array was never made


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_rows_are_the_real_rows_of_the_padded_array(case):
    X = domain()
    net = make(X=X, **case)
    (x, counts), (rows, sizes, divisors) = net.embed(X), net.rows(X)
    assert torch.equal(rows, x[(x != 0).any(2)]) and torch.equal(counts, divisors)
    assert torch.equal(sizes, (x != 0).any(2).sum(1))
    close = dict(rtol=1e-11, atol=1e-12)
    if case["move"]: assert_close(net(X), forward(net.weights, x, counts), **close)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("move", (False, True))
def test_distinct_squares_are_all_squares(kind, move):
    X = domain()
    net = make(kind, X, move=move)
    squares, (fewer, copies) = squared_gradients(net, X, F64), distinct_squares(net, X, F64)
    assert_close(squares, net.gradients(X)**2/net.m, rtol=1e-12, atol=0)
    repeated = torch.repeat_interleave(fewer, copies.long(), dim=1)
    assert_close(repeated.sort(1).values, squares.sort(1).values, rtol=1e-8, atol=1e-18)


def test_integers_of_numpy_are_integers():
    X = domain()
    net = LazyGNN(np.int64(5), np.int64(8), np.int32(2), rng=rng(0))
    assert all(type(v) is int for v in (net.d, net.m, net.L, net.D))
    assert torch.equal(net.tangent_kernel(X), LazyGNN(5, 8, 2, rng=rng(0)).tangent_kernel(X))
