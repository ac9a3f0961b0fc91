"What would bore a reader of 02_graphs: seeds, shapes, precision, conversions, refusals."
import doctest
import io
import pickle
import warnings

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse

import gnn_bandits.graphs
from gnn_bandits.core import pack_arrays, peak_mb, split_rng
from gnn_bandits.graphs import (Edges, GraphDomain, aggregate_graphs, count_twins,
                                erdos_renyi_adjacency, twins)


def rng(seed=0): return np.random.default_rng(seed)


def ragged_arrays(sizes=(4, 7, 1, 12), d=3, seed=0, p=0.4):
    r = rng(seed)
    adjs = [erdos_renyi_adjacency(1, k, p, r)[0].numpy() for k in sizes]
    return adjs, [r.standard_normal((k, d)) for k in sizes]


def same(X, Y):
    "Equal in everything a domain holds"
    arrays = [(X.nodes, Y.nodes), (X.sizes, Y.sizes), (X.offsets, Y.offsets), (X.h, Y.h)]
    assert (X.edges is None) == (Y.edges is None) and X.N == Y.N and X.notes == Y.notes
    assert (X.raw is None) == (Y.raw is None) and X.hops == Y.hops
    if X.raw is not None: arrays.append((X.raw, Y.raw))
    if X.edges is not None:
        assert vars(X.edges).keys() == vars(Y.edges).keys()
        for k, v in vars(X.edges).items():
            assert (v is None) == (getattr(Y.edges, k) is None)
            if v is not None: arrays.append((v, getattr(Y.edges, k)))
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in arrays)


# The bits of random domains

@pytest.mark.parametrize("N,p,d",
                         [(1, 0.5, 2), (2, 0.0, 3), (5, 1.0, 10), (100, 0.05, 2), (7, 0.3, 40)])
def test_domain_invariants(N, p, d):
    X = GraphDomain.erdos_renyi(20, N, p, d, rng())
    assert X.h.shape == (20, N, d) and X.h.dtype == torch.float64 and X.h.is_contiguous()
    assert X.sizes.tolist() == [N]*20
    torch.testing.assert_close(X.h.norm(dim=2), torch.ones(20, N, dtype=torch.float64), rtol=0,
                               atol=1e-14)
    assert torch.equal(X.h, GraphDomain.erdos_renyi(20, N, p, d, rng()).h)
    assert not torch.equal(X.h, GraphDomain.erdos_renyi(20, N, p, d, rng(1)).h)


def test_complete_graphs_have_one_direction():
    X = GraphDomain.erdos_renyi(5, 8, 1.0, 4, rng())
    torch.testing.assert_close(X.h, X.h[:, :1].expand_as(X.h), rtol=0, atol=1e-14)


EXPECTED = [0.6914454073255902, -0.7224287152988511, 0.8938920607571785, 0.44828225897896584,
            0.8111067550010184, -0.584898138133229, 0.5817606904460202, -0.8133600058103237,
            0.10516002153166916, -0.9944553131596506, -0.4148228920928994, -0.9099021750692119,
            -0.06519346616592922, -0.9978726431610758, -0.6018736383737863, -0.7985913369369223,
            -0.8967504227706369, -0.44253664171533225, -0.4919483735194965, -0.8706243723854288,
            -0.8967504227706369, -0.44253664171533225, -0.8967504227706367, -0.4425366417153322]


def test_the_bits_of_a_seed_do_not_change():
    "Fixed for good: saved campaigns and published tables depend on these numbers."
    X = GraphDomain.erdos_renyi(3, 4, 0.5, 2, rng(42))
    expected = torch.tensor(EXPECTED, dtype=torch.float64).view(3, 4, 2)
    assert torch.equal(X.h, expected)


def dense_route(A, x, hops):
    "The aggregation of the first releases: one dense addition for each node, in node order"
    x = x/x.abs().amax((1, 2), keepdim=True)
    x = x.permute(1, 2, 0).contiguous()
    for _ in range(hops):
        total = x.clone()
        for j in range(A.shape[1]):
            a = A[:, j].T.to(x.dtype)
            a[j] = 0
            total.addcmul_(a[:, None], x[j][None])
        x = total
    norm = (x*x).unbind(1)
    return (x/sum(norm[1:], norm[0]).sqrt()[:, None]).permute(2, 0, 1)


@pytest.mark.parametrize("N,p,d,hops",
                         [(20, .2, 10, 1), (5, .95, 10, 1), (60, .05, 3, 2), (9, .5, 17, 3)])
def test_the_sparse_route_has_the_bits_of_the_dense_one(N, p, d, hops):
    X = GraphDomain.erdos_renyi(60, N, p, d, rng(N), hops)
    edges, features = split_rng(rng(N), 2)
    A = erdos_renyi_adjacency(60, N, p, edges)
    x = torch.from_numpy(features.standard_normal((60, N, d)))
    assert torch.equal(X.h, dense_route(A, x, hops))
    assert torch.equal(GraphDomain.from_arrays(A, x, hops).h, X.h)


def test_block_size_does_not_matter():
    "Blocks hold about 2**22 numbers: this domain spans several"
    X = GraphDomain.erdos_renyi(150, 200, 0.1, 3, rng())
    edges, features = split_rng(rng(), 2)
    A, x = erdos_renyi_adjacency(150, 200, 0.1, edges), features.standard_normal((150, 200, 3))
    assert torch.equal(X.h, GraphDomain.from_arrays(A.numpy(), x).h)


def test_a_block_does_not_change_its_neighbours():
    "More than one block of graphs of different sizes: each graph is as it is alone"
    sizes = [3000, 2, 5, 40]*100
    xs = [rng(k).standard_normal((s, 20)) for k, s in enumerate(sizes)]
    adjs = {s: nx.to_scipy_sparse_array(nx.path_graph(s)) for s in set(sizes)}
    X = GraphDomain.from_arrays([adjs[s] for s in sizes], xs)
    for k in (0, 1, 2, 37, 200, 399):
        assert torch.equal(X[k].nodes, GraphDomain.from_arrays([adjs[sizes[k]]], [xs[k]]).nodes)


def test_too_large_domains_are_refused_before_work():
    "The first release began to draw"
    large = dict(n=100_000_000, N=100), dict(n=1000, N=10**7), dict(n=10**9, hops=[0, 1, 2])
    for kwargs in large:
        with pytest.raises(ValueError, match="would take about .* of memory"):
            GraphDomain.erdos_renyi(**dict(n=1, N=20, p=.2, d=10, rng=rng()) | kwargs)


@pytest.mark.parametrize("bad",
                         [dict(n=2.5), dict(n=0), dict(N=0), dict(N="3"), dict(p=2), dict(d=0),
                          dict(d=1.5), dict(rng=1)])
def test_bad_random_domains(bad):
    with pytest.raises(ValueError, match="expected"):
        GraphDomain.erdos_renyi(**dict(n=2, N=3, p=.5, d=2, rng=rng()) | bad)


# Packed storage

def test_packed_and_padded_agree():
    adjs, xs = ragged_arrays()
    X = GraphDomain.from_arrays(adjs, xs, keep_edges=False)
    assert same(GraphDomain.packed(X.nodes, X.sizes, hops=1), X)
    Y = GraphDomain(X.h, X.sizes)
    assert torch.equal(Y.nodes, X.nodes) and torch.equal(GraphDomain(X.h).sizes, X.sizes)
    assert X.offsets.tolist() == [0, 4, 11, 12, 24] and X.N == 12 and X.sizes.dtype == torch.int64
    assert X.h is X.h                                     # made once
    assert torch.equal(X.vectors(), X.h.flatten(1)/X.sizes.double().sqrt()[:, None])
    torch.testing.assert_close(X.vectors().norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_equal_sizes_are_not_copied():
    h = GraphDomain.erdos_renyi(6, 5, .5, 3, rng()).h.clone()
    X = GraphDomain(h)
    assert X.nodes.data_ptr() == h.data_ptr() == X.h.data_ptr()
    assert X[2:4].nodes.data_ptr() == h[2].data_ptr()
    same_row = GraphDomain(h[:1, :1].expand(10**5, 50, 3))    # no memory behind it
    assert len(same_row) == 10**5 and same_row.h.stride() == (0, 0, 1)


def test_padding_that_would_not_fit_is_refused():
    X = GraphDomain.packed(torch.ones(3, 1), [1, 2], N=10**14)
    for make in (lambda: X.h, X.vectors):
        with pytest.raises(ValueError, match="of memory"): make()
    assert len(X[1:].nodes) == 2 and X[1:].N == 10**14


def test_one_large_graph_among_small_ones_is_cheap():
    "It took 33 s and dense (N, N) matrices in the first release"
    r, n = rng(), 60_000
    i, j = r.integers(n, size=(2, 200_000))
    big = sparse.csr_array((np.ones(400_000), (np.r_[i, j], np.r_[j, i])), shape=(n, n))
    big.data[:] = 1
    adjs = [big] + [np.ones((5, 5))]*99
    xs = [r.standard_normal((a.shape[0], 8)) for a in adjs]
    before = peak_mb()
    X = GraphDomain.from_arrays(adjs, xs)
    assert peak_mb() - before < 1000                       # a dense boolean matrix has 3,600 MB
    y = xs[0] + sparse.csr_array(big - sparse.diags_array(big.diagonal())) @ xs[0]
    want = torch.from_numpy(y/np.linalg.norm(y, axis=1, keepdims=True))
    torch.testing.assert_close(X[0].nodes, want, rtol=0, atol=1e-13)
    assert len(X.nodes) == n + 99*5


@pytest.mark.parametrize("sizes,match", [
    ([2, 2], "3 sizes"), ([2, 2, 3], "at most 2"), ([2, 2, 0], "graph 2"), ([2, 1.5, 2], "graph 1"),
    ([2, 2, 1], "graph 2"), ([], "at least one graph")])
def test_bad_sizes(sizes, match):
    with pytest.raises(ValueError, match=match): GraphDomain(torch.eye(2).repeat(3, 1, 1), sizes)


@pytest.mark.parametrize("nodes,sizes", [
    (torch.ones(3), [3]), (torch.ones(3, 1), [2]), (torch.ones(3, 1)*2, [3]),
    (torch.ones(3, 0), [3]),
    (torch.full((3, 1), np.nan), [3]), (torch.ones(3, 1), [4, -1])])
def test_bad_packed(nodes, sizes):
    with pytest.raises(ValueError): GraphDomain.packed(nodes, sizes)


def test_indices_agree():
    adjs, xs = ragged_arrays((3, 1, 4, 1, 5, 9, 2, 6))
    odd = [np.add.outer(np.arange(len(a)), np.arange(len(a))) % 2 for a in adjs]
    X = GraphDomain.from_arrays([a*(1 + k)/2 for a, k in zip(adjs, odd)], xs, edge_types=odd)
    mask = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1]).bool()
    for a, b in [(slice(2, 6), [2, 3, 4, 5]), (slice(None, None, 3), [0, 3, 6]),
                 (slice(None, None, -1), list(range(7, -1, -1))),
                 (-1, [7]), (np.int64(3), [3]), (np.array([4, -8]), [4, 0]), (mask, [1, 2, 5, 7]),
                 (mask.tolist(), [1, 2, 5, 7]),
                 (range(2), [0, 1]), (torch.tensor([5], dtype=torch.int32), [5])]:
        assert same(X[a], X[b])
        assert same(X[b], GraphDomain.concat([X[i] for i in b]))
    assert same(GraphDomain.concat(list(X)), X)
    for i, g in enumerate(X):
        assert torch.equal(g.h[0, :g.sizes[0]],
                           X.nodes[X.offsets[i]:X.offsets[i + 1]]) and g.N == X.N


@pytest.mark.parametrize("index", [5, -6, [0, 9], 1.5, [True, False], "a", slice(3, 3), []])
def test_bad_index(index):
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    with pytest.raises((ValueError, TypeError)): X[index]


def test_frozen():
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    for name in ("h", "nodes", "sizes", "N", "edges"):
        with pytest.raises(AttributeError): setattr(X, name, getattr(X, name))


def test_pickle_leaves_the_padding_out():
    adjs, xs = ragged_arrays((1, 200))
    X = GraphDomain.from_arrays(adjs, xs)
    size = len(pickle.dumps(X))
    assert X.h.shape == (2, 200, 3) and len(pickle.dumps(X)) == size
    assert same(pickle.loads(pickle.dumps(X)), X)


@pytest.mark.parametrize("seed", range(3))
def test_permutations_carry_edges(seed):
    adjs, xs = ragged_arrays((4, 7, 1, 12), seed=seed)
    r = rng(seed)
    weights = [(w + w.T)*a for a, w in zip(adjs, (r.random(a.shape) for a in adjs))]
    types = [(np.add.outer(np.arange(len(a)), np.arange(len(a))) % 3) for a in adjs]
    X = GraphDomain.from_arrays(weights, xs, edge_types=types)
    Y = X.permute(rng(seed))
    place = torch.cdist(Y.nodes, X.nodes).argmin(1).numpy()            # rows are distinct
    for type in (None, 0, 1, 2):
        assert (Y.adjacency(type).toarray() == X.adjacency(type).toarray()[place][:, place]).all()
    assert (Y.edges.source < Y.edges.target).all()
    source, target = Y.edges.numbers(Y.offsets)
    assert ((source*24 + target).diff() > 0).all()                     # in node order
    assert torch.equal(twins(GraphDomain.concat([X, Y]))[4:], twins(X))


# Conversions

def test_input_containers_agree():
    A, x = erdos_renyi_adjacency(4, 6, 0.4, rng()), rng(1).standard_normal((4, 6, 3))
    want = GraphDomain.from_arrays(A.numpy(), x)
    kinds = sparse.csr_array, sparse.coo_matrix, sparse.lil_array
    for adjacency in (A, A.tolist(), A.float(), A.numpy().astype(np.uint8), iter(A),
                      [a.to_sparse() for a in A.double()], [a.to_sparse_csr() for a in A.double()],
                      A.double().requires_grad_(),
                      *([make(a.numpy().astype(int)) for a in A] for make in kinds)):
        assert same(GraphDomain.from_arrays(adjacency, x), want)
    for features in (torch.from_numpy(x), torch.from_numpy(x).requires_grad_(), x.tolist(), list(x),
                     [sparse.csr_array(v) for v in x]):
        assert same(GraphDomain.from_arrays(A, features), want)
    with_loops = A.numpy() | np.eye(6, dtype=bool)
    looped = GraphDomain.from_arrays(with_loops, x)
    assert torch.equal(looped.h, want.h) and looped.notes == {"dropped": ["self-loops (24)"]}
    stored = [sparse.csr_array(a.astype(float)) for a in np.ones(A.shape)]
    for s, a in zip(stored, A.numpy()): s.data[:] = a.reshape(-1)      # a stored zero is no edge
    assert same(GraphDomain.from_arrays(stored, x), want) and stored[0].nnz == 36


@pytest.mark.parametrize("dtype",
                         [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64, bool])
def test_dtypes(dtype):
    A = erdos_renyi_adjacency(3, 6, 0.4, rng()).numpy()
    x = rng(1).integers(0, 2, (3, 6, 3)).astype(dtype)
    x[..., 0] = 1
    want = GraphDomain.from_arrays(A, x.astype(np.float64))
    assert same(GraphDomain.from_arrays(A.astype(dtype), x), want)
    assert same(GraphDomain.from_arrays(A, torch.from_numpy(x)), want)
    if dtype is np.float32:
        assert same(GraphDomain.from_arrays(A, torch.from_numpy(x).bfloat16()), want)


def test_sparse_input_is_not_changed():
    a = sparse.csr_array((np.ones(4), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 2))
    X = GraphDomain.from_arrays([a], [np.eye(2)])
    assert a.nnz == 4 and X.edges.weight.tolist() == [2.]


def test_scale_of_features_does_not_matter():
    A, x = erdos_renyi_adjacency(3, 6, 0.4, rng()).numpy(), rng(1).standard_normal((3, 6, 3))
    want = GraphDomain.from_arrays(A, x).h
    for scale in (1e-300, 1e-9, 1e300):
        torch.testing.assert_close(GraphDomain.from_arrays(A, scale*x).h, want, rtol=0, atol=1e-14)


def test_weights_by_the_dense_formula():
    adjs, xs = ragged_arrays()
    r = rng(5)
    noise = [r.random(a.shape)*10.**r.integers(-3, 3) for a in adjs]
    weights = [(w + w.T)*a for a, w in zip(adjs, noise)]
    for hops in (1, 2):
        X = GraphDomain.from_arrays(weights, xs, hops)
        for k, (w, x) in enumerate(zip(weights, xs)):
            y = np.linalg.matrix_power(np.eye(len(w)) + w, hops) @ x
            torch.testing.assert_close(X[k].nodes,
                                       torch.from_numpy(y/np.linalg.norm(y, axis=1, keepdims=True)),
                                       rtol=0, atol=1e-12)
    ones = GraphDomain.from_arrays(adjs, xs)
    assert same(GraphDomain.from_arrays([a.astype(float) for a in adjs], xs), ones)
    assert torch.equal(GraphDomain.from_arrays(weights, xs, hops=0).nodes,
                       GraphDomain.from_arrays(adjs, xs, hops=0).nodes)


def all_constructors():
    adjs, xs = ragged_arrays((4, 6))
    graphs = [nx.from_numpy_array(a) for a in adjs]
    for g, x in zip(graphs, xs): nx.set_node_attributes(g, dict(enumerate(x)), "x")
    from torch_geometric.data import Data
    index = [torch.from_numpy(np.stack(a.nonzero())) for a in adjs]
    datas = [Data(x=torch.from_numpy(x), edge_index=e) for e, x in zip(index, xs)]
    return [lambda **o: GraphDomain.from_arrays(adjs, xs, **o),
            lambda **o: GraphDomain.from_networkx(graphs, **o),
            lambda **o: GraphDomain.from_pyg(datas, **o)]


@pytest.mark.parametrize("hops", [0, 1, 3, np.int64(2), [0, 1, 2], (2,), np.array([1, 0])])
def test_hops(hops):
    makers = all_constructors()
    X = makers[0](hops=hops)
    for make in makers[1:]: assert torch.equal(make(hops=hops).nodes, X.nodes)
    several = [int(k) for k in np.atleast_1d(hops)]
    want = torch.cat([makers[0](hops=k).nodes for k in several], 1)/len(several)**.5
    torch.testing.assert_close(X.nodes, want, rtol=0, atol=1e-15)
    R = GraphDomain.erdos_renyi(4, 5, .5, 3, rng(), hops)
    assert R.d == 3*len(several) and GraphDomain.packed(R.nodes, R.sizes).d == R.d


@pytest.mark.parametrize("hops", [-1, 1.5, "two", None, [], [1, 1], [0, -1], True, [True]])
def test_bad_hops(hops):
    for make in (*all_constructors(),
                 lambda hops: GraphDomain.erdos_renyi(2, 3, 0.5, 2, rng(), hops=hops)):
        with pytest.raises(ValueError, match="hops"): make(hops=hops)


def test_keep_edges():
    for make in all_constructors():
        with_edges, without = make(), make(keep_edges=False)
        assert without.edges is None and torch.equal(with_edges.nodes, without.nodes)
        assert with_edges.adjacency().nnz == 2*len(with_edges.edges)
        assert without.raw is None and without.hops == with_edges.hops == 1
        with pytest.raises(ValueError, match="before aggregation"): without.with_hops(2)


# Features before aggregation

@pytest.mark.parametrize("hops", [0, 1, 2, 5, [1, 0], [0, 1, 2]])
def test_another_number_of_hops_has_the_bits_of_a_fresh_domain(hops):
    for make in (*all_constructors(), lambda hops: GraphDomain.erdos_renyi(
            30, 6, 0.4, 3, rng(), hops=hops, keep_edges=True)):
        fresh = make(hops=hops)
        for start in (0, 2, [2, 1]): assert same(make(hops=start).with_hops(hops), fresh)
        for idx in (0, slice(1, 2), [1, 0, 1], slice(None, None, -1)):
            assert same(make(hops=1)[idx].with_hops(hops), fresh[idx])
        parts = GraphDomain.concat([make(hops=1)[1:], make(hops=1)[:1]])
        assert torch.equal(parts.with_hops(hops).nodes,
                           GraphDomain.concat([fresh[1:], fresh[:1]]).nodes)


def test_raw_features_are_what_came_in():
    adjs, xs = ragged_arrays()
    X = GraphDomain.from_arrays(adjs, xs, hops=2)
    assert torch.equal(X.raw, torch.from_numpy(np.concatenate(xs))) and X.hops == 2
    xs[0][:] = 0                                       # the domain has its own copy
    assert X.raw[:4].abs().sum() > 0
    part = X[1:3]                                      # slices share the memory
    assert part.raw.untyped_storage().data_ptr() == X.raw.untyped_storage().data_ptr()
    back = X.permute(rng(3))
    order = [int((X.raw == row).all(1).nonzero()[0, 0]) for row in back.raw]
    assert sorted(order) == list(range(24)) and torch.equal(back.nodes, X.nodes[order])
    assert same(pickle.loads(pickle.dumps(X)), X)


def test_rows_that_are_the_same_are_stored_once(tmp_path):
    X = GraphDomain.from_arrays([np.ones((3, 3)), np.zeros((1, 1))],
                                [[[6], [8], [6]], [[7]]], hops=0)
    for Y in (X, X[[1, 0]], X[:1], X.permute(rng()), GraphDomain.concat([X, X]),
              pickle.loads(pickle.dumps(X)), GraphDomain.load(X.save(tmp_path/"f")),
              X.with_hops(2).with_hops(0)):
        assert Y.raw is Y.nodes and Y.hops == 0
    wide = X.with_hops(1)
    assert wide.raw is not wide.nodes and wide.with_hops(0).raw is not None


def test_large_random_domains_keep_their_aggregated_features_only():
    X = GraphDomain.erdos_renyi(50, 10, 0.2, 4, rng())
    assert X.raw is None and X.edges is None and X.hops == 1
    held = sum(v.nbytes for v in vars(X).values() if isinstance(v, torch.Tensor))
    assert held <= 8*50*10*4 + 8*50 + 8*51             # nodes, sizes, offsets


def test_domains_of_different_hops_do_not_mix():
    adjs, xs = ragged_arrays()
    one, two = (GraphDomain.from_arrays(adjs, xs, hops) for hops in (1, 2))
    with pytest.raises(ValueError, match="got 1 and 2.*with_hops"): GraphDomain.concat([one, two])
    assert same(GraphDomain.concat([one, two.with_hops(1)]), GraphDomain.concat([one, one]))
    unknown = GraphDomain.concat([one, GraphDomain(one.h)])
    assert unknown.hops is None and unknown.raw is None


def labelled(values):
    "Paths whose nodes carry one number each"
    paths = [nx.to_numpy_array(nx.path_graph(len(v))) for v in values]
    return paths, [np.array(v)[:, None] for v in values]


CLASSES = [[6, 6, 8], [6, 8, 6], [7, 6, 6], [6, 7, 6], [8, 8, 6]]


def test_integer_classes_do_not_make_all_graphs_equal():
    "They did in the first release"
    X = GraphDomain.from_arrays(*labelled(CLASSES))
    assert count_twins(X) == 0 and X.d == 3 and X.notes["labels"] == [6, 7, 8]
    eye = np.eye(3)
    Y = GraphDomain.from_arrays(labelled(CLASSES)[0],
                                [eye[np.searchsorted([6, 7, 8], v)] for v in CLASSES])
    assert torch.equal(X.nodes, Y.nodes)
    words = [["CNO"[v - 6] for v in c] for c in CLASSES]
    W = GraphDomain.from_arrays(*labelled(words))
    assert torch.equal(W.nodes, X.nodes) and W.notes["labels"] == ["C", "N", "O"]
    floats = [np.array(v, float) for v in CLASSES]
    assert torch.equal(GraphDomain.from_arrays(*labelled(floats), labels="onehot").nodes, X.nodes)
    with pytest.warns(UserWarning, match="5 of 5 graphs have a twin"):
        N = GraphDomain.from_arrays(*labelled(CLASSES), labels="number", keep_edges=False)
    assert N.d == 1 and (N.nodes == 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")                   # kernels with relations see the numbers
        N = GraphDomain.from_arrays(*labelled(CLASSES), labels="number")
    assert (N.report().twins, N.report().lost) == (5, 0)


def test_classes_of_a_second_batch():
    first = GraphDomain.from_arrays(*labelled(CLASSES))
    adjs, xs = labelled([[6, 7, 7], [6, 6, 6]])
    with pytest.raises(ValueError, match="dimension|classes"):
        GraphDomain.concat([first, GraphDomain.from_arrays(adjs, xs)])
    second = GraphDomain.from_arrays(adjs, xs, labels=first.notes["labels"])
    both = GraphDomain.concat([first, second])
    assert torch.equal(both.nodes,
                       GraphDomain.from_arrays(*labelled(CLASSES + [[6, 7, 7], [6, 6, 6]])).nodes)
    assert both.notes["labels"] == [6, 7, 8]
    with pytest.raises(ValueError, match="graph 1: expected node classes among"):
        GraphDomain.from_arrays(*labelled([[6, 6], [9, 6]]), labels=[6, 7, 8])


@pytest.mark.parametrize("words", [["123", "112", "321"], ["12a", "112", "321"],
                                   ["1e5", "nan", "-1"]])
def test_words_are_classes_also_if_they_are_digits(words):
    "They were read as numbers where a whole graph had no letters"
    graphs = [words, [*words[1:], words[0]], [words[1]]*2, [words[2], words[1]]]
    want = GraphDomain.from_arrays(*labelled([[sorted(words).index(w) for w in g] for g in graphs]))
    assert want.d == 3
    paths, columns = labelled(graphs)
    for features in (columns, [c.tolist() for c in columns], [c.astype(object) for c in columns],
                     [c.astype("S") for c in columns]):
        X = GraphDomain.from_arrays(paths, features)
        assert torch.equal(X.nodes, want.nodes) and X.notes["labels"] == sorted(words)
    X = GraphDomain.from_networkx([molecule(g, nx.path_graph(len(g)).edges) for g in graphs])
    assert torch.equal(X.nodes, want.nodes) and X.notes["labels"] == sorted(words)
    second = GraphDomain.from_arrays(*labelled([words[1:]]), labels=X.notes["labels"])
    assert torch.equal(second.raw, want.raw[1:3][[0, 1]]) and GraphDomain.concat([X, second])
    with pytest.raises(ValueError, match="words such as"):
        GraphDomain.from_arrays(paths, columns, labels="number")


def test_words_of_a_pyg_graph_are_classes():
    from types import SimpleNamespace
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    d = SimpleNamespace(x=np.array(["123", "112", "321"]), edge_index=edges)
    assert GraphDomain.from_pyg([d]).notes["labels"] == ["112", "123", "321"]


def test_numbers_among_words_are_refused():
    for wrong in ([[6], ["C"], [8]], np.array([["C"], [6], ["O"]], dtype=object)):
        with pytest.raises(ValueError, match="graph 0: .*among words"):
            GraphDomain.from_arrays(labelled([[1, 2, 3]])[0], [wrong])
    with pytest.raises(ValueError, match="graph 0: .*among words"):
        GraphDomain.from_networkx(molecule(["C", 6], [(0, 1)]))
    with pytest.raises(ValueError, match="graph 1: expected words as in graph 0, got numbers"):
        GraphDomain.from_networkx([molecule("CO", [(0, 1)]), molecule([6, 8], [(0, 1)])])
    with pytest.raises(ValueError, match="2 columns with words"):
        GraphDomain.from_arrays([np.ones((2, 2))], [[["1", "2"], ["3", "4"]]])


@pytest.mark.parametrize("x,labels,match", [
    ([["a"], ["b"]], "number", "words"), ([[1, 2], [3, 4]], "onehot", "single column"),
    ([[1], [2]], "auto!", "labels"),
    ([[1j], [2]], "auto", "not numeric"), ([[None], [{}]], "number", "not numeric"),
    ([[1, "a"], [2, "b"]], "auto", "not numeric"),
    ([], "auto", "two dimensions"), ([[[1]]], "auto", "two dimensions"),
    ([[1.], [np.inf]], "auto", "NaN or infinity")])
def test_bad_features(x, labels, match):
    with pytest.raises(ValueError, match=match):
        GraphDomain.from_arrays([np.ones((2, 2))], [x], labels=labels)


@pytest.mark.parametrize("types,match", [
    ([np.ones((3, 3))], "integers"), ([np.triu(np.ones((3, 3), int))], "differ in type"),
    ([np.ones((2, 2), int)], "3 x 3"), ([], "one matrix of edge types"),
    ([np.full((3, 3), 2**63, np.uint64)], "below 2\\*\\*62")])
def test_bad_edge_types(types, match):
    with pytest.raises(ValueError, match=match):
        GraphDomain.from_arrays([np.ones((3, 3))], [np.eye(3)], edge_types=types)


def test_edge_types_of_sparse_matrices():
    A, t = np.ones((3, 3), int) - np.eye(3, dtype=int), np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
    X = GraphDomain.from_arrays([sparse.csr_array(A)], [np.eye(3)],
                                edge_types=[sparse.coo_array(t)])
    assert X.edges.type.tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match="no types"):
        GraphDomain.from_arrays([A], [np.eye(3)]).adjacency(1)


# networkx

def molecule(elements, edges, graph=nx.Graph):
    g = graph()
    g.add_nodes_from((k, dict(x=e)) for k, e in enumerate(elements))
    g.add_edges_from(edges)
    return g


def test_a_single_networkx_graph():
    "`from_networkx(g)` took the nodes for graphs in the first release"
    g = molecule("CCO", [(0, 1), (1, 2)])
    assert same(GraphDomain.from_networkx(g), GraphDomain.from_networkx([g]))


def test_networkx_weights_and_parallel_edges():
    plain = molecule("CCO", [(0, 1), (1, 2)])
    double = molecule("CCO", [(0, 1), (0, 1), (1, 2), (2, 2)], nx.MultiGraph)
    X, Y = GraphDomain.from_networkx(plain), GraphDomain.from_networkx(double)
    assert Y.edges.weight.tolist() == [2., 1.] and Y.notes["dropped"] == ["self-loops (1)"]
    weighted = molecule("CCO", [(0, 1, dict(weight=.5)), (0, 1, dict(weight=1.5)), (1, 2)],
                        nx.MultiGraph)
    W = GraphDomain.from_networkx(weighted)
    assert W.edges.weight.tolist() == [2., 1.]
    assert X.edges.weight is None and torch.equal(W.nodes, Y.nodes)
    ignored = GraphDomain.from_networkx(weighted, weight=None)
    assert ignored.edges.weight.tolist() == [2., 1.]
    assert ignored.notes["dropped"] == ["edge attribute 'weight'"]
    for bad in (-1, np.inf, "x", None):
        with pytest.raises(ValueError, match="graph 1: "):
            GraphDomain.from_networkx([plain, molecule("CO", [(0, 1, dict(weight=bad))])])


@pytest.mark.parametrize("weights", [None, [1, 1, 1, 1, 1], [.5, 2, 1, 3, .25], [1, 1, 2, 1, None]])
def test_parallel_edges_add_up_with_and_without_weights(weights):
    "Two edges without weights counted as one, with a weight of 1 each as two"
    ends = [(0, 1), (1, 0), (1, 2), (1, 2), (0, 2)]
    some = [{} if w is None else dict(weight=w) for w in weights or [None]*5]
    edges = [(*e, w) for e, w in zip(ends, some)]
    g = molecule(np.eye(3).tolist(), edges, nx.MultiGraph)
    want = GraphDomain.from_arrays([nx.to_numpy_array(g)], [np.eye(3)])
    assert same(GraphDomain.from_networkx(g), want) and want.edges.weight is not None
    for u, v, k in g.edges: g.edges[u, v, k]["type"] = u + v
    typed = GraphDomain.from_networkx(g, edge_type="type")
    assert typed.edges.type.tolist() == [1, 2, 3]
    assert torch.equal(typed.edges.weight, want.edges.weight)
    from types import SimpleNamespace
    both = np.array(ends + [e[::-1] for e in ends]).T
    d = SimpleNamespace(x=np.eye(3), edge_index=both)
    if weights: d.edge_weight = np.array([w.get("weight", 1) for w in some]*2)
    assert same(GraphDomain.from_pyg([d]), want)
    d.edge_index = both[:, 1:]                            # one direction of one edge is missing
    if weights: d.edge_weight = d.edge_weight[1:]
    with pytest.raises(ValueError, match="differ in weight"): GraphDomain.from_pyg([d])


@pytest.mark.parametrize("graphs,options,match", [
    ([], {}, "empty"), (["a"], {}, "graph 0: expected a networkx graph"),
    ([nx.Graph()], {}, "no nodes"),
    ([molecule("CO", [(0, 1)]), molecule("CO", [(0, 1)], nx.DiGraph)], {},
     "graph 1 is directed and graph 0 is not"),
    ([molecule("CO", [(0, 1)])], dict(directed=True), "graph 0 is not directed"),
    ([nx.path_graph(2)], dict(features=["x", "y"]), "node 0 has no attribute 'x'"),
    ([nx.path_graph(2)], {}, "no attribute 'x'"),
    ([molecule("CO", [(0, 1)])], dict(weight="w"), "no edge has"),
    ([molecule("CO", [(0, 1)])], dict(edge_type="bond"), "no edge has"),
    ([molecule("CCO", [(0, 1, dict(b=1)), (1, 2)])], dict(edge_type="b"), "has no attribute 'b'"),
    ([molecule("CO", [(0, 1, dict(b=1.5))])], dict(edge_type="b"), "integers"),
    ([molecule("CO", [(0, 1, dict(b="single"))]), molecule("CO", [(0, 1, dict(b=1))])],
     dict(edge_type="b"), "graph 1: expected words as edge types, as in graph 0, got 1"),
    ([molecule("CO", [(0, 1, dict(b=1)), (0, 1, dict(b=2))], nx.MultiGraph)], dict(edge_type="b"),
     "different types"),
    ([molecule([[1., 2], [1.]], [(0, 1)])], {}, "different shapes"),
    ([molecule([[[1.]], [[1.]]], [])], {}, "two dimensions")])
def test_bad_networkx(graphs, options, match):
    with pytest.raises(ValueError, match=match): GraphDomain.from_networkx(graphs, **options)


def test_networkx_feature_tensors():
    rows = [torch.tensor([1., 2.]).requires_grad_(), torch.tensor([3., 4.])]
    X = GraphDomain.from_networkx(molecule(rows, [(0, 1)]))
    assert torch.equal(X.nodes,
                       GraphDomain.from_networkx(molecule([[1., 2], [3, 4]], [(0, 1)])).nodes)


# PyTorch Geometric

def data(seed=0, **more):
    from torch_geometric.data import Data
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x=x, edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), **more)


def test_pyg_loader_and_batch_are_unpacked():
    "A loader of 200 graphs became 25 in the first release"
    from torch_geometric.data import Batch
    from torch_geometric.loader import DataLoader
    graphs = [data(k, edge_weight=torch.full((4,), k + 1.)) for k in range(20)]
    X = GraphDomain.from_pyg(graphs)
    for form in (DataLoader(graphs, batch_size=8), Batch.from_data_list(graphs), tuple(graphs),
                 iter(graphs),
                 [Batch.from_data_list(graphs[:5]), *graphs[5:]]):
        assert same(GraphDomain.from_pyg(form), X)
    assert len(X) == 20 and X.edges.weight[:4].tolist() == [1, 1, 2, 2]
    assert torch.equal(GraphDomain.from_pyg(graphs[3]).nodes, X[3].nodes)


def test_pyg_edge_attributes():
    a, t = torch.tensor([[2.], [2], [.5], [.5]]), torch.tensor([1, 1, 3, 3])
    rich = data(edge_attr=a, edge_type=t, pos=torch.zeros(3, 3))
    X = GraphDomain.from_pyg([rich])
    assert torch.equal(X.nodes, GraphDomain.from_pyg([data()]).nodes)
    assert X.notes["dropped"] == ["edge_attr", "pos"] and X.edges.type.tolist() == [1, 3]
    W = GraphDomain.from_pyg([rich], weight="edge_attr")
    assert W.edges.weight.tolist() == [2, .5]
    assert torch.equal(W.nodes, GraphDomain.from_pyg([data(edge_weight=a[:, 0])]).nodes)
    named = GraphDomain.from_pyg([data(edge_attr=t)], edge_type="edge_attr")
    assert named.edges.type.tolist() == [1, 3]
    assert "edge types" in GraphDomain.from_pyg([rich], keep_edges=False).notes["dropped"]


def test_a_weight_of_zero_is_no_edge():
    w = torch.tensor([0., 0, 3, 3])
    zero = molecule("CCO", [(0, 1, dict(weight=0)), (1, 2, dict(weight=3))])
    for X in (GraphDomain.from_pyg([data(edge_weight=w)]), GraphDomain.from_networkx(zero)):
        assert X.edges.source.tolist() == [1] and X.edges.weight.tolist() == [3]
        assert X.report().isolated == 1
    half = data(edge_weight=torch.tensor([0., 1, 3, 3]))
    with pytest.raises(ValueError, match="differ in weight"): GraphDomain.from_pyg([half])


def test_pyg_integer_classes():
    a, b = data(), data()
    a.x, b.x = torch.tensor([[6], [6], [8]]), torch.tensor([[6], [8], [6]])
    assert GraphDomain.from_pyg([a, b]).notes["labels"] == [6, 8]
    a.x, b.x = a.x[:, 0], b.x[:, 0]
    assert GraphDomain.from_pyg([a, b]).d == 2


def test_pyg_refusals():
    outside, nothing = data(), data()
    wide, uneven = data(edge_attr=torch.ones(4, 2)), data(edge_weight=torch.arange(4.))
    outside.edge_index = outside.edge_index + 1
    nothing.x = None
    for bad, options, match in [(outside, {}, "outside 0..2"),
                                (wide, dict(weight="edge_attr"), "one value of edge_attr"),
                                (nothing, {}, "with x and edge_index"),
                                (uneven, {}, "differ in weight"),
                                (data(), dict(weight="w"), "no graph has"),
                                (data(edge_type=torch.ones(4)), {}, "integers|no types"),
                                (data(edge_weight=-torch.ones(4)), {}, "not negative")]:
        with pytest.raises(ValueError, match=match): GraphDomain.from_pyg([data(), bad], **options)
    with pytest.raises(ValueError, match="empty"): GraphDomain.from_pyg([])


# Directions, edge words, several attributes

def directed_pool(n=12, seed=0):
    "Random directed graphs with two attributes and words on their edges"
    rng, graphs = np.random.default_rng(seed), []
    for i in range(n):
        g = nx.gnp_random_graph(4 + i % 4, 0.5, seed=seed*1000 + i, directed=True)
        for v in g: g.nodes[v].update(op=["conv", "pool", "skip"][rng.integers(3)], at=float(v))
        for e in g.edges: g.edges[e]["kind"] = ["data", "control"][rng.integers(2)]
        graphs.append(g)
    return graphs

def test_directed_graphs_come_alike_by_every_door(tmp_path):
    from types import SimpleNamespace
    graphs = directed_pool()
    X = GraphDomain.from_networkx(graphs, features=["op", "at"])
    rows = [[[*(float(g.nodes[v]["op"] == k) for k in ("conv", "pool", "skip")), g.nodes[v]["at"]]
             for v in g] for g in graphs]
    A = GraphDomain.from_arrays([nx.to_numpy_array(g) for g in graphs], rows)
    P = GraphDomain.from_pyg([SimpleNamespace(x=np.array(x), edge_index=np.array(list(g.edges)).T)
                              for g, x in zip(graphs, rows)])
    for other in (A, P, GraphDomain.load(X.save(tmp_path/"x.npz"))):
        assert torch.equal(other.nodes, X.nodes) and torch.equal(other.edges.way, X.edges.way)
        assert torch.equal(other.edges.target, X.edges.target)
    matrices = [torch.from_numpy(nx.to_numpy_array(g)) for g in graphs]
    assert (X.adjacency(way=1).toarray() == torch.block_diag(*matrices).numpy()).all()
    flat = GraphDomain.from_networkx([g.to_undirected() for g in graphs], features=["op", "at"])
    assert torch.equal(flat.nodes, X.nodes)                       # aggregation ignores directions
    flat = GraphDomain.from_networkx(graphs, ["op", "at"], directed=False)
    assert torch.equal(flat.nodes, X.nodes)
    assert "Edges have a direction" in str(X.report())

def test_renumbered_directed_graphs_are_the_same_to_kernels_with_relations():
    from gnn_bandits.kernels import Overlap, Relational, Typed
    X = GraphDomain.from_networkx(directed_pool(), features=["op", "at"], edge_type="kind")
    for kernel in (Relational(), Overlap(), Typed()):
        k, Y = kernel.fitted(X), X.permute(np.random.default_rng(1))
        torch.testing.assert_close(k.cross(X, Y), k.gram(X), rtol=0, atol=3e-8)
        torch.testing.assert_close(k.gram(X), k.gram(X).T, rtol=0, atol=3e-8)
        turned = GraphDomain.from_networkx([g.reverse() for g in directed_pool()],
                                           features=["op", "at"], edge_type="kind")
        assert (k.cross(X, turned) - k.gram(X)).abs().max() > 1e-3

def test_edge_words_mean_the_same_in_domains_made_apart():
    graphs = directed_pool()
    X = GraphDomain.from_networkx(graphs, features=None, edge_type="kind")
    parts = [GraphDomain.from_networkx(graphs[k:k + 4], features=None, edge_type="kind")
             for k in (0, 4, 8)]
    joined = GraphDomain.concat(parts)
    assert torch.equal(joined.edges.type, X.edges.type) and torch.equal(joined.nodes, X.nodes)
    assert joined.notes["edge_words"] == ["control", "data"] == sorted(X.report().types)
    assert "No features were given" in str(X.report()) and X.d == 3
    for g in graphs:
        for e in g.edges: g.edges[e]["kind"] = 1
    with pytest.raises(ValueError, match="words as edge types and others numbers"):
        GraphDomain.concat([X, GraphDomain.from_networkx(graphs, features=None, edge_type="kind")])

def test_attributes_of_a_second_pool_follow_the_first():
    graphs = directed_pool()
    X = GraphDomain.from_networkx(graphs, features=["op", "at"])
    few = GraphDomain.from_networkx(graphs[:1], features=["op", "at"], like=X)
    assert torch.equal(few.nodes, X[0].nodes)
    graphs[0].nodes[0]["op"] = "dense"
    with pytest.raises(ValueError, match="'op' to be one of conv, pool, skip, got 'dense'"):
        GraphDomain.from_networkx(graphs[:1], features=["op", "at"], like=X)
    with pytest.raises(ValueError, match="directed and others are not"):
        GraphDomain.concat([X, GraphDomain.from_networkx(graphs[1:2], ["op", "at"], like=X,
                                                         directed=False)])

def test_a_loop_of_a_directed_graph_is_left_out_and_said():
    g = molecule("CO", [(0, 1), (1, 1)], nx.DiGraph)
    assert GraphDomain.from_networkx(g).notes["dropped"] == ["self-loops (1)"]

def test_graphs_that_are_read_otherwise_are_refused_in_one_line():
    pool, other = molecule("CNO", [(0, 1), (1, 2)]), molecule("CNS", [(0, 1), (1, 2)])
    both = [molecule("CO", [(0, 1)], nx.DiGraph), molecule("CO", [(0, 1)])]
    with pytest.raises(ValueError, match="graph 0 is directed and graph 1 is not"):
        GraphDomain.from_networkx(both)
    bare = molecule("CO", [(0, 1)])
    del bare.nodes[1]["x"]
    with pytest.raises(ValueError, match="graph 1: node 1 has no attribute 'x'"):
        GraphDomain.from_networkx([pool, bare])
    X, few = GraphDomain.from_networkx(pool), molecule("CO", [(0, 1)])
    for g in (other, few):                                # as many classes, and fewer
        with pytest.raises(ValueError, match="expected one list of classes"):
            GraphDomain.concat([X, GraphDomain.from_networkx(g)])
    assert GraphDomain.concat([X, GraphDomain.from_networkx(few, like=X)]).d == 3
    with pytest.raises(ValueError, match=r"among \['C', 'N', 'O'\], got 'S'"):
        GraphDomain.from_networkx(other, like=X)


# Twins and the report

def multiset(X, i):
    rows = X[i].nodes.numpy().round(9)
    return tuple(map(tuple, rows[np.lexsort(rows.T)] + 0.))


@pytest.mark.parametrize("seed", range(4))
def test_twins_against_multisets(seed):
    "Small graphs with two classes of nodes: many twins, found by comparing sorted rows"
    r = rng(seed)
    adjs = [erdos_renyi_adjacency(1, 4, .5, r)[0].numpy() for _ in range(80)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = GraphDomain.from_arrays(adjs, [r.integers(0, 2, (4, 1)) for _ in adjs])
    keys = [multiset(X, i) for i in range(80)]
    assert twins(X, "padded").tolist() == [keys.index(k) for k in keys] == twins(X).tolist()
    assert count_twins(X) == sum(keys.count(k) > 1 for k in keys) == X.report().twins


def test_a_doubled_graph_is_a_twin_for_one_average():
    one = GraphDomain.erdos_renyi(1, 4, .5, 3, rng())
    X = GraphDomain.concat([one, GraphDomain.packed(one.nodes.repeat(2, 1), [8])])
    assert twins(X, "nodes").tolist() == [0, 0] and twins(X, "padded").tolist() == [0, 1]


def test_errors_number_the_graphs_of_all_blocks():
    x, none = np.ones((2, 1)), torch.zeros(0, dtype=torch.int32)
    x[1] = 0
    with pytest.raises(ValueError, match="graph 8: the features around node 0"):
        aggregate_graphs(x, np.array([1, 1]), Edges(none, none, torch.tensor([0, 0, 0])), (1,), 7)


def test_warning_of_twins():
    one, many = labelled([[8, 6, 6, 7]*k for k in range(1, 11)]), labelled([[1, 2]]*3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphDomain.erdos_renyi(20, 4, .5, 3, rng())
        GraphDomain.from_arrays(*one)
    with pytest.warns(UserWarning, match="3 of 3 graphs have a twin") as caught:
        GraphDomain.from_arrays(*many)
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(UserWarning, match="1000 of 1000") as caught:
        GraphDomain.erdos_renyi(2000, 1, .5, 1, rng())
    assert caught[0].filename == __file__


def test_twins_that_other_kernels_tell_apart_are_not_called_lost():
    "The count is that of two rounds of Weisfeiler and Leman, and of the kernels themselves"
    from gnn_bandits.surrogate import candidate_priors
    small = [g for g in nx.graph_atlas_g() if 4 <= len(g) <= 6 and nx.is_connected(g)]
    for g in small: nx.set_node_attributes(g, {v: [1.] for v in g}, "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = GraphDomain.from_networkx(small)
    look = lambda g, seen: {v: (seen[v], sorted(seen[u] for u in g[v])) for v in g}
    name = [sorted(look(g, look(g, dict.fromkeys(g, 0))).values()) for g in small]
    lost = sum(name.count(k) > 1 for k in name)
    r = X.report()
    assert (r.graphs, r.twins, r.lost) == (139, 139, lost) and 0 < lost < 14
    assert f"all but {lost} of them" in str(r) and "No model" not in str(r)
    alike = torch.ones(139, 139, dtype=torch.bool)
    for p in candidate_priors(X):
        K = p.block(range(139))
        alike &= K.diagonal() + K.diagonal()[:, None] - 2*K < 1e-7
    assert int((alike.sum(1) > 1).sum()) == lost
    regular = [nx.random_regular_graph(3, 8, seed=i) for i in range(20)]
    for g in regular: nx.set_node_attributes(g, {v: [1.] for v in g}, "x")
    with pytest.warns(UserWarning, match="20 of 20 .* no model here can tell them apart"):
        R = GraphDomain.from_networkx(regular)
    assert R.report().lost == 20 and "No model here can tell twins apart" in str(R.report())


def test_edge_types_tell_twins_apart():
    "Features that do not repeat, and a pair of graphs for each that differ in one type"
    x = rng().standard_normal((30, 4, 3))
    types = [np.ones((4, 4), int), np.ones((4, 4), int)]
    types[1][0, 1] = types[1][1, 0] = -1
    make = lambda **kw: GraphDomain.from_arrays(np.ones((60, 4, 4)), np.repeat(x, 2, 0), **kw)
    with pytest.warns(UserWarning, match="60 of 60"): assert make().report().lost == 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = make(edge_types=types*30)
    assert (X.report().twins, X.report().lost) == (60, 0)
    with pytest.warns(UserWarning, match="60 of 60"): make(edge_types=types*30, keep_edges=False)


def test_report_fields_and_words():
    adjs, xs = ragged_arrays((4, 7, 1, 12))
    for x in xs: x[:, 1] = 5.
    X = GraphDomain.from_arrays(adjs, xs)
    r = X.report()
    degree = np.concatenate([a.sum(0) for a in adjs])
    assert (r.graphs, r.nodes, r.sizes, r.constant, r.labels) == (4, 24, (1, 5.5, 12), (1,), None)
    assert r.degrees == (degree.min(), degree.mean(), degree.max())
    assert r.isolated == (degree == 0).sum() > 0
    for words in ("Nodes without neighbours", "Feature columns 1", "No two graphs"):
        assert words in str(r)
    assert r._repr_markdown_().count("\n- ") == str(r).count("\n")
    bare = GraphDomain.erdos_renyi(5, 3, .5, 2, rng()).report()
    assert bare.degrees is None and "not known" in str(bare)


def test_notes_survive_subsets_unions_and_files(tmp_path):
    oxide = molecule("CO", [(0, 1, dict(bond=2))])
    amine = molecule("CCN", [(0, 1, dict(bond=1)), (2, 2, dict(bond=1))])
    X = GraphDomain.from_networkx([oxide, amine], edge_type="bond")
    assert X.notes == {"labels": ["C", "N", "O"], "dropped": ["self-loops (1)"]}
    for Y in (X[1:], X[[1, 0]], X.permute(rng()), GraphDomain.concat([X, X]),
              GraphDomain.load(X.save(tmp_path/"x"))):
        assert Y.notes == X.notes and Y.edges.type is not None
    untyped = GraphDomain.from_networkx(molecule("CO", [(0, 1)]), labels=["C", "N", "O"])
    Z = GraphDomain.concat([X, untyped])
    assert Z.edges.type is None and Z.notes["dropped"] == ["self-loops (1)", "edge types"]


# Files

def test_files(tmp_path):
    adjs, xs = ragged_arrays()
    domains = [GraphDomain.from_arrays(adjs, xs),
               GraphDomain.from_arrays([a*.5 for a in adjs], xs,
                                       edge_types=[a.astype(int) for a in adjs]),
               GraphDomain.erdos_renyi(5, 3, .5, 2, rng()), GraphDomain.from_arrays(adjs, xs)[:1]]
    for k, X in enumerate(domains): assert same(GraphDomain.load(X.save(tmp_path/f"{k}.npz")), X)


def test_save_replaces_only_when_complete(tmp_path, monkeypatch):
    X = GraphDomain.erdos_renyi(5, 3, 0.5, 2, rng())
    path = X.save(tmp_path/"d.npz")
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError): X[:2].save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["d.npz"]


def test_load_refuses_pickles(tmp_path):
    np.savez(tmp_path/"evil.npz", nodes=np.array([{"a": 1}], dtype=object), sizes=[1], N=1,
             version=1)
    with pytest.raises(ValueError, match="cannot read"): GraphDomain.load(tmp_path/"evil.npz")
    with pytest.raises(FileNotFoundError): GraphDomain.load(tmp_path/"none.npz")


def old_file(**changes):
    buffer = io.BytesIO()
    content = dict(nodes=np.ones((3, 1)), sizes=np.array([1, 2]), N=np.int64(2),
                   version=np.int64(1))
    np.savez(buffer, **content | changes)
    return buffer.getvalue()


def new_file(**changes):
    edges = dict(edge_source=np.array([0]), edge_target=np.array([1]),
                 edge_offsets=np.array([0, 0, 1]))
    content = dict(nodes=np.ones((3, 1)), sizes=np.array([1, 2]), **edges) | changes
    meta = dict(kind="GraphDomain", version=2, N=2) | content.pop("meta", {})
    return pack_arrays(meta, **{k: v for k, v in content.items() if v is not None})


def raw_file(hops=0, **changes):
    return new_file(raw=changes.pop("raw", np.full((3, 1), 5.)), meta=dict(version=3, hops=hops),
                    **changes)


def test_files_of_all_versions_are_read(tmp_path):
    for content, hops in ((old_file(), None), (new_file(), None), (raw_file(), 0),
                          (raw_file(None, raw=None), None)):
        (tmp_path/"f").write_bytes(content)
        X = GraphDomain.load(tmp_path/"f")
        assert X.sizes.tolist() == [1, 2] and X.N == 2 and X.h.shape == (2, 2, 1)
        assert X.hops == hops and (X.raw is None) == (hops is None)


def zipped(**members):
    import zipfile
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        for name, content in members.items(): z.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def npy(a):
    buffer = io.BytesIO()
    np.save(buffer, a)
    return buffer.getvalue()



HUGE = npy(np.ones((3, 1))).replace(b"(3, 1), }        ", b"(30000000000, 1), }")[:-1]


@pytest.mark.parametrize("content", [
    b"", b"PK", old_file()[:-30], new_file()[:-30], old_file(N=1), old_file(N=-5), old_file(N=2.5),
    old_file(version=3), old_file(version="a"),
    old_file(sizes=np.array([1, 1])), old_file(sizes=np.array([0, 3])),
    old_file(sizes=np.array([-1, 4])), old_file(sizes=np.array(["a", "b"])),
    old_file(nodes=np.ones(3)), old_file(nodes=np.full((3, 1), 2.)),
    old_file(nodes=np.full((3, 1), np.nan)), old_file(nodes=np.ones((3, 1), complex)),
    old_file(N=np.arange(3)),
    zipped(nodes=HUGE, sizes=npy(np.array([1, 2])), N=npy(2), version=npy(1)),
    zipped(nodes=npy(np.ones((3*10**6, 1))), sizes=npy(np.array([3*10**6])), N=npy(3*10**6),
           version=npy(1)),
    new_file(meta=dict(kind="Other")), new_file(meta=dict(version=7)), new_file(meta=dict(N=1)),
    new_file(meta=dict(N="2")), new_file(nodes=None),
    new_file(edge_source=np.array([1])), new_file(edge_target=np.array([2])),
    new_file(edge_offsets=np.array([0, 1, 1])),
    new_file(edge_offsets=np.array([0, 0, 2])), new_file(edge_weight=np.array([-1.])),
    new_file(edge_weight=np.array([1., 1.])),
    new_file(edge_colour=np.array([1])), new_file(edge_target=None),
    raw_file(None), raw_file(-1), raw_file([0, 1]), raw_file("one"), raw_file(raw=np.ones((2, 1))),
    raw_file(raw=np.ones((3, 2))), raw_file(raw=np.full((3, 1), np.nan)),
    raw_file(raw=np.ones((3, 1), complex))])
def test_bad_files_are_refused_by_name(content, tmp_path):
    (tmp_path/"bad.npz").write_bytes(content)
    with pytest.raises(ValueError, match="cannot read a graph domain from .*bad.npz"):
        GraphDomain.load(tmp_path/"bad.npz")


def test_a_crafted_file_allocates_nothing(tmp_path):
    "The first release allocated by the N that the file names"
    before = peak_mb()
    (tmp_path/"f").write_bytes(old_file(N=np.int64(10**11)))
    X = GraphDomain.load(tmp_path/"f")
    with pytest.raises(ValueError, match="of memory"): X.h
    assert peak_mb() - before < 100


@pytest.mark.parametrize("position", range(0, 100, 7))
def test_a_flipped_byte_is_noticed(position, tmp_path):
    X = GraphDomain.erdos_renyi(5, 3, .5, 2, rng())
    content = bytearray(X.save(tmp_path/"f").read_bytes())
    at = len(content)*position//100
    content[at] ^= 0x41
    (tmp_path/"f").write_bytes(bytes(content))
    try: back = GraphDomain.load(tmp_path/"f")
    except ValueError as e: assert str(tmp_path/"f") in str(e)
    else: assert same(back, X)                            # a byte of the archive that says nothing


# Examples

def test_the_examples_of_the_docstrings_run():
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for name in ("GraphDomain", "erdos_renyi", "from_arrays", "from_networkx", "from_pyg",
                 "from_smiles", "report"):
        thing = GraphDomain if name == "GraphDomain" else getattr(GraphDomain, name)
        examples = finder.find(getattr(thing, "__func__", thing), name, module=gnn_bandits.graphs,
                               globs=dict(GraphDomain=GraphDomain))
        assert sum(len(t.examples) for t in examples)
        for t in examples: runner.run(t)
    assert runner.summarize(verbose=False).failed == 0


def test_edges_are_checked():
    ends = torch.tensor([0]), torch.tensor([1])
    for offsets in ([0], [0, 2], [1, 1]):
        with pytest.raises(ValueError, match="do not fit"):
            GraphDomain.packed(torch.ones(2, 1), [2], edges=Edges(*ends, torch.tensor(offsets)))
