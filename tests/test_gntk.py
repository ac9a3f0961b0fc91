"Invariants of the graph neural tangent kernel that would bore a reader."
import math
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.gntk import (gntk, gntk_diag, node_table, permutation_kernel, pieces, some_nodes,
                              unit_cosines, vector_kernel)
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.ntk import STRIP, TERMS, ntk, series_of

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


@pytest.fixture(scope="module")
def X(): return mixed(40, 15, 4, 0)


@pytest.fixture(scope="module")
def Y(): return mixed(25, 15, 4, 1)


def reference(X, Y, L, average):
    "Whole node matrices with cosines accurate next to 1"
    K = torch.empty(len(X), len(Y), dtype=torch.float64)
    for i, (x, nx) in enumerate(zip(X.h, X.sizes)):
        for j, (y, ny) in enumerate(zip(Y.h, Y.sizes)):
            u = 1 - ((x[:nx, None] - y[:ny])**2).sum(2)/2
            K[i, j] = ntk(u, L).sum()/(nx*ny if average == "nodes" else X.N*Y.N)
    return K


@pytest.mark.parametrize("L", (1, 2, 4, 12))  # 12: the recursion instead of the polynomial
@pytest.mark.parametrize("average", AVERAGES)
def test_definition(X, Y, L, average):
    X, Y = X[:7], Y[:4]
    assert_close(gntk(X, L=L, average=average), reference(X, X, L, average), rtol=0, atol=1e-12)
    assert_close(gntk(X, Y, L=L, average=average), reference(X, Y, L, average), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype, tol", ((torch.float64, 1e-13), (torch.float32, 1e-5)))
@pytest.mark.parametrize("average", AVERAGES)
def test_kernel_properties(X, Y, dtype, tol, average):
    K = gntk(X, average=average, dtype=dtype)
    assert K.dtype == dtype and torch.equal(K, K.T)
    assert torch.linalg.eigvalsh(K.double())[0] > -tol and K.max() <= 1 + tol
    assert_close(gntk_diag(X, 2, average, dtype), K.diagonal(), rtol=0, atol=tol)
    assert_close(gntk(X, X, average=average, dtype=dtype), K, rtol=0, atol=tol)
    assert_close(gntk(X.permute(np.random.default_rng(0)), average=average, dtype=dtype), K, rtol=0,
                 atol=tol)
    both = gntk(GraphDomain.concat([X, Y]), average=average, dtype=dtype)
    assert_close(gntk(X, Y, average=average, dtype=dtype), both[:40, 40:], rtol=0, atol=tol)
    assert_close(gntk(Y, X, average=average, dtype=dtype), both[40:, :40], rtol=0, atol=tol)
    assert_close(gntk(X, average=average, dtype=dtype), gntk(X, average=average).to(dtype), rtol=0,
                 atol=tol)


def test_same_bits_again(X): assert torch.equal(gntk(X), gntk(X))


@pytest.mark.parametrize("N", (1, 2, STRIP - 1, STRIP, STRIP + 1, 2*STRIP + 7))
def test_graphs_of_every_size_against_the_strip(N):
    X = GraphDomain.erdos_renyi(2, N, 0.02, 3, np.random.default_rng(N))
    K = gntk(X)
    z = X.h.reshape(-1, 3)
    u = 1 - ((z[:, None] - z)**2).sum(2)/2
    assert_close(K, ntk(u, 2).view(2, N, 2, N).mean((1, 3)), rtol=0, atol=1e-12)
    assert_close(gntk_diag(X), K.diagonal(), rtol=0, atol=1e-13)


def test_repeated_graphs_and_equal_nodes_are_exact():
    X = GraphDomain.erdos_renyi(30, 20, 0.95, 10,
                                np.random.default_rng(0))      # many equal neighbourhoods
    K = gntk(GraphDomain.concat([X, X]))
    assert_close(K[:30, :30], K[30:, :30], rtol=0, atol=1e-14)
    one = GraphDomain(unit(50, 1, 10, seed=0))
    ones = torch.ones(50, dtype=torch.float64)
    assert_close(gntk_diag(one), ones, rtol=0, atol=1e-15)
    assert_close(gntk(one, GraphDomain(-one.h)).diagonal(), ntk(-ones, 2), rtol=0, atol=1e-14)
    nearly = GraphDomain(one.h*(1 + 5e-9))  # a domain accepts rows of length 1 to 1e-8
    assert_close(gntk_diag(nearly), ones, rtol=0, atol=1e-15)


def test_padding_room_changes_nothing_but_the_padded_average(X):
    roomy = GraphDomain(torch.nn.functional.pad(X.h, (0, 0, 0, 15)), X.sizes)
    assert_close(gntk(roomy), gntk(X), rtol=0, atol=1e-15)
    assert_close(4*gntk(roomy, average="padded"), gntk(X, average="padded"), rtol=1e-13, atol=0)


def test_threads_are_left_as_they_were(X):
    before, seen = torch.get_num_threads(), []
    gntk(X)
    gntk_diag(X)
    with pytest.raises(ValueError): gntk(X, L=0)
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == before and seen == [before]


@pytest.mark.parametrize("N", (1, 2, 3, 4))
def test_permutation_kernel_term_by_term(N):
    from itertools import permutations
    X = GraphDomain.erdos_renyi(2, N, 0.5, 3, np.random.default_rng(N))
    Y = GraphDomain.erdos_renyi(2, N, 0.5, 3, np.random.default_rng(N + 5))
    bases = [lambda u, j=j: torch.exp(u/(j + 1)) for j in range(N)]
    orders = list(permutations(range(N)))
    for a, x in enumerate(X.h):
        for b, y in enumerate(Y.h):
            terms = [math.exp(float(x[c[j]] @ y[e[j]])/(j + 1))
                     for c in orders for e in orders for j in range(N)]
            assert abs(float(permutation_kernel(X, Y, bases)[a, b]) - np.mean(terms)) < 1e-13


def test_permutation_kernel_at_its_limit():
    X = GraphDomain.erdos_renyi(2, 6, 0.5, 3, np.random.default_rng(0))
    assert_close(permutation_kernel(X, X, lambda u: ntk(u, 2)), gntk(X), rtol=0, atol=1e-12)


def rounding(x, y, L, dtype, nodes):
    """How far an entry may move when sums and products are taken in another order, or fused:
    two sums over nodes, a polynomial in each layer, and cosines of d terms times the slope of
    the kernel, which is at most (L + 1)/sqrt(1 - |u|) for pairs that are not snapped to ±1"""
    eps, d = torch.finfo(dtype).eps, x.shape[1]
    gap = 1 - (x.double() @ y.double().T).abs()
    slope = (L + 1)/float(gap.where(gap > (d + 4)*eps, 1.).min())**0.5
    return eps*(nodes + TERMS[dtype]*(L + 1) + d*slope)


@pytest.mark.parametrize("L", (1, 2, 4, 12, 40))
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32))
def test_a_row_has_the_same_bits_whatever_other_rows_there_are(X, Y, L, dtype):
    "The columns are the same, so the same compiled loop takes them in the same order"
    whole = gntk(X, Y, L=L, dtype=dtype)
    for i in (0, 17, 39): assert torch.equal(gntk(X[i:i + 1], Y, L=L, dtype=dtype)[0], whole[i])
    some = [24, 3, 3, 11]
    assert torch.equal(gntk(X[some], Y, L=L, dtype=dtype), whole[some])


@pytest.mark.parametrize("L", (1, 2, 4, 12, 40))
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32))
def test_diagonal_columns_and_halves_agree_with_the_matrix_up_to_rounding(X, Y, L, dtype):
    whole, some = gntk(X, Y, L=L, dtype=dtype), [24, 3, 3, 11]
    near = dict(rtol=0, atol=rounding(X.nodes, Y.nodes, L, dtype, X.N + Y.N))
    assert_close(gntk(X, Y[some], L=L, dtype=dtype), whole[:, some], **near)
    K = gntk(X, L=L, dtype=dtype)
    near = dict(rtol=0, atol=rounding(X.nodes, X.nodes, L, dtype, 2*X.N))
    assert_close(gntk(X, X, L=L, dtype=dtype), K, **near)
    assert_close(gntk_diag(X, L, dtype=dtype), K.diagonal(), **near)


def test_one_compiled_loop_serves_matrix_rows_and_diagonal(monkeypatch, X):
    import gnn_bandits.gntk as module
    loop, seen = module.graph_sums, []
    monkeypatch.setattr(module, "graph_sums", lambda *a: (seen.append(a[6]), loop(*a)))
    gntk(X), gntk(X[:3], X), gntk_diag(X)
    assert sorted({*seen}) == [module.ALL, module.HALF, module.OWN]
    before = len(loop.signatures)
    gntk_diag(X[:5])
    assert len(loop.signatures) == before                 # the same machine code


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32))
@pytest.mark.parametrize("D", (1, 3, 4, 5, 31, 200))
def test_vectors(D, dtype):
    x, y = unit(300, D, seed=D).to(dtype), unit(40, D, seed=D + 1).to(dtype)
    tol = 1e-12 if dtype == torch.float64 else 2e-6
    for L in (1, 2, 12):
        u = unit_cosines(x.double(), y.double(), torch.empty(300, 40, dtype=torch.float64))
        assert_close(vector_kernel(x, y, L).double(), ntk(u, L), rtol=0, atol=(L + 2)*tol)
    assert (vector_kernel(x).diagonal() == 1).all()
    opposite = vector_kernel(x, -x).diagonal()
    assert torch.equal(opposite, ntk(-torch.ones(300, dtype=dtype), 2))
    assert_close(vector_kernel(7*x[:5]), vector_kernel(7*x)[:5, :5], rtol=0,
                 atol=rounding(x, x, 2, dtype, 2))


@pytest.mark.parametrize("bad", ([[1., 2.]], torch.ones(3), torch.ones(2, 2, dtype=torch.int64),
                                 torch.tensor([[float("nan"), 1.]])))
def test_what_is_not_vectors_is_refused(bad):
    with pytest.raises(ValueError, match="expected finite vectors"): vector_kernel(bad)
    with pytest.raises(ValueError, match="expected finite vectors"):
        vector_kernel(torch.ones(2, 2), bad)


def test_pieces_cover_every_graph_once(X):
    start = node_table(X.nodes, X.sizes).start
    for nodes in (1, 7, 64, 10**6):
        runs = pieces(start, nodes)
        assert [i for a, b in runs for i in range(a, b)] == list(range(len(X)))


def test_a_part_of_the_table_is_the_table_of_the_part(X):
    whole, some = node_table(X.nodes, X.sizes), [5, 0, 39, 5]
    part, own = some_nodes(whole, some), node_table(X[some].nodes, X[some].sizes)
    assert np.array_equal(part.start, own.start) and np.array_equal(part.T, own.T)


@pytest.mark.parametrize("L", (1, 2, 11, 12, 40))
def test_series_say_when_the_recursion_is_needed(L):
    assert bool(series_of(L, torch.float64).steps) == (L > 11)


def test_unit_cosines_in_batches():
    z = unit(5, 7, 3, seed=2)
    u = unit_cosines(z, z, z.new_empty(5, 7, 7))
    assert (u.diagonal(dim1=1, dim2=2) == 1).all()
    assert_close(u, z @ z.mT, rtol=0, atol=1e-15)


def test_refusals(X):
    other = mixed(3, 5, 3, 0)
    full = GraphDomain.erdos_renyi(2, 4, 0.5, 4, np.random.default_rng(0))
    seven = GraphDomain.erdos_renyi(2, 7, 0.5, 4, np.random.default_rng(0))
    base = lambda u: u
    for call, said in [
        (lambda: gntk(X, L=0), "hidden layers L to be"), (lambda: gntk(X, L=1.5), "hidden layers L "
                                                          "to be"),
        (lambda: gntk_diag(X, -1), "hidden layers L to be"), (lambda: gntk(X, other), "one feature "
                                                              "dimension"),
        (lambda: gntk(X.h), "expected a GraphDomain"), (lambda: gntk(X, X.h), "expected a "
                                                        "GraphDomain"),
        (lambda: gntk_diag([X]), "expected a GraphDomain"),
        (lambda: gntk(X, average="mean"), "padded"),
        (lambda: gntk_diag(X, average=None), "padded"),
        (lambda: gntk(X, dtype=torch.int64), "torch.float64, torch.float32"),
        (lambda: gntk_diag(X, dtype=torch.float16), "torch.float64, torch.float32"),
        (lambda: gntk(X, mixed(3, 5, 4, 0), average="padded"), "needs one N"),
        (lambda: permutation_kernel(seven, seven, base), "at most 6 nodes"),
        (lambda: permutation_kernel(full, X.h, base), "expected a GraphDomain"),
        (lambda: permutation_kernel(full, other, base), "one feature dimension"),
        (lambda: permutation_kernel(full, mixed(5, 4, 4, 0), base), "all have 4 nodes"),
        (lambda: permutation_kernel(full, full, [base]), "one base kernel or 4"),
        (lambda: permutation_kernel(full, full, 3), "one base kernel"),
    ]:
        with pytest.raises(ValueError, match=said): call()


def test_import_is_light():
    code = ("import sys, gnn_bandits.gntk; heavy = 'matplotlib', 'networkx', 'jax', 'sklearn'; "
            "sys.exit(any(m in sys.modules for m in heavy))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_kernels_that_do_not_fit_are_refused_before_work(monkeypatch):
    import gnn_bandits.gntk as module
    monkeypatch.setattr(module, "node_table", None)       # no work before the estimate
    X = GraphDomain.packed(unit(1, 4, seed=0).expand(10**6, -1), torch.ones(10**6))
    with pytest.raises(ValueError, match=r"8.0 TB .* gntk\(X\[i:j\], X\)"): gntk(X)
    with pytest.raises(ValueError, match="4.0 TB"): gntk(X, X, dtype=torch.float32)
    with pytest.raises(ValueError, match="fewer graphs at a time"):
        permutation_kernel(X, X, lambda u: u)


def test_the_number_of_threads_changes_no_bit():
    X, Y = mixed(60, 30, 6, 5), mixed(40, 30, 6, 6)
    threads, seen = torch.get_num_threads(), []
    try:
        for k in (1, 2, 3):
            torch.set_num_threads(k)
            seen.append((gntk(X), gntk(X, Y), gntk_diag(X),
                         ntk(torch.linspace(-1, 1, 10**5).double(), 2)))
    finally: torch.set_num_threads(threads)
    for other in seen[1:]:
        for a, b in zip(seen[0], other): assert torch.equal(a, b)


def test_integers_of_numpy_are_integers(X):
    assert torch.equal(gntk(X, L=np.int64(2)), gntk(X)) and torch.equal(gntk_diag(X, np.int32(2)),
                                                                        gntk_diag(X))


def test_a_domain_made_of_tracked_tensors_is_detached():
    z = unit(3, 2, 4, seed=1).requires_grad_()
    assert not gntk(GraphDomain(z)).requires_grad


def test_large_graphs_are_not_padded():
    X = GraphDomain.packed(unit(5002, 4, seed=2), [1, 5000, 1])
    K = gntk(X)
    assert_close(gntk_diag(X), K.diagonal(), rtol=0, atol=1e-12)
    assert "h" not in vars(X)
