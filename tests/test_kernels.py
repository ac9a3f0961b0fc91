"Kernels: what would bore a reader of 21_kernels.ipynb."
import gc
import weakref

import networkx as nx
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits import kernels
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.kernels import (GNTK, Columns, Given, Kernel, Matrix, Overlap, Part, Relational,
                                 Sum, Tangent, Typed, Unit, Vector, WeisfeilerLehman, anchors_of,
                                 part_of)
from gnn_bandits.networks import LazyGNN

pytestmark = pytest.mark.usefixtures("one_thread")


def shelf(n=12, seed=0):
    "Small graphs whose nodes and edges are of two kinds"
    draw, out = np.random.default_rng(seed), []
    for i in range(n):
        g = nx.gnp_random_graph(3 + i % 4, 0.6, seed=i)
        nx.set_node_attributes(g, {v: np.eye(3)[draw.integers(3)] for v in g}, "x")
        nx.set_edge_attributes(g, {e: int(draw.integers(2)) for e in g.edges}, "kind")
        out.append(g)
    return GraphDomain.from_networkx(out, edge_type="kind")


EVERY = {"gntk": lambda X: GNTK(), "relational": lambda X: Relational(), "typed": lambda X: Typed(),
         "overlap": lambda X: Overlap(), "wl": lambda X: WeisfeilerLehman(1),
         "vector": lambda X: Vector(),
         "tangent": lambda X: Tangent(LazyGNN(X.d, m=8, L=2, rng=np.random.default_rng(0))),
         "matrix": lambda X: Matrix(torch.eye(len(X)).double()),
         "given": lambda X: Given(Phi=torch.eye(len(X)).double(), missed=torch.zeros(len(X))),
         "sum": lambda X: Matrix(torch.eye(len(X)).double()) + GNTK(),
         "product of a sum": lambda X: GNTK()*(Matrix(torch.eye(len(X)).double()) + GNTK()),
         "unit": lambda X: Unit(Matrix(torch.eye(len(X)).double())),
         "sum of a unit": lambda X: Unit(Matrix(torch.eye(len(X)).double())) + Overlap(1)}


@pytest.mark.parametrize("name", EVERY)
def test_a_pool_is_freed_whatever_kernels_were_used_over_it(name):
    X = shelf()
    part = part_of(EVERY[name](X).fitted(X), X)
    part.rows([1]), part.levels, part.centre
    alive = weakref.ref(X)
    del X, part
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", EVERY)
def test_graphs_are_read_in_any_order_and_any_number_of_times(name):
    "Encodings are sliced as a matrix is; an arm may come twice, and a domain knows its own parts"
    X, at = shelf(), [7, 0, 7, 11]
    k = EVERY[name](X).fitted(X)
    whole, code, K = k.code(X), k.code(X)[np.array(at)], k.gram(X)
    assert len(whole) == 12 and len(code) == 4
    near = dict(rtol=0, atol=3e-6*float(K.max()) if name == "tangent" else 3e-8*float(K.max()))
    assert_close(k.between(code, code), K[at][:, at], **near)
    assert_close(k.between(code, whole), K[at], **near)
    assert_close(k.own(code), K.diagonal()[at], **near)
    assert_close(k.diag(X), K.diagonal(), **near)
    if k.portable: assert_close(k.cross(X, X[at]), K[:, at], **near)


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("tangent", "sum", "given", "matrix",
                                                                "product of a sum", "unit",
                                                                "sum of a unit")])
def test_graphs_are_read_once(name, monkeypatch):
    "Also by an equal kernel that was made elsewhere"
    X, seen = shelf(), []
    k, again = (EVERY[name](X).fitted(X) for _ in range(2))
    encode = type(k).encode
    monkeypatch.setattr(type(k), "encode", lambda self, X: seen.append(1) or encode(self, X))
    first = k.code(X)
    assert again.code(X) is first and len(seen) <= 1


def test_what_is_kept_of_a_pool_is_computed_once():
    X = shelf()
    asked = []
    class Counted(Overlap):
        def between(self, a, b):
            asked.append((len(a), len(b)))
            return super().between(a, b)
    k = Counted(1).fitted(X)
    part, K = Part(k, X, torch.tensor([0, 5, 9])), Overlap(1).gram(X)
    for get, arms, want, calls in (
            (part.kept_rows, [2, 3, 2], K[[2, 3, 2]], [(2, 12)]),
            (part.kept_rows, [3, 4], K[[3, 4]], [(1, 12)]),
            (part.near, [2, 3], K[[2, 3]][:, [0, 5, 9]], [(3, 3), (2, 3)][1:]),
            (part.near, [3, 2, 3], K[[3, 2, 3]][:, [0, 5, 9]], []),
            (part.levels_of, [6, 7, 6], K[[6, 7, 6]][:, [0, 5, 9]].mean(1), [(2, 3)]),
            (part.levels_of, [7, 8], K[[7, 8]][:, [0, 5, 9]].mean(1), [(1, 3)]),
            (part.block, [1, 4], K[[1, 4]][:, [1, 4]], [(2, 2)]),
            (part.block, [1, 4], K[[1, 4]][:, [1, 4]], []),
            (part.block, [4, 1], K[[4, 1]][:, [4, 1]], [(2, 2)])):
        asked.clear()
        assert_close(get(arms), want)
        assert asked == calls, (get, arms)


def test_many_rows_are_computed_some_at_a_time():
    asked = []
    class Small(Overlap):
        together = 4
        def between(self, a, b):
            asked.append(len(a))
            return super().between(a, b)
    X = shelf()
    part = Part(Small(1).fitted(X), X, torch.tensor([0]))
    assert_close(part.rows(list(range(11))), Overlap(1).gram(X)[:11])
    assert asked == [4, 4, 3]


def test_parts_are_shared_where_kernels_allow_it():
    X = shelf()
    fitted = lambda k: k.fitted(X)
    eye = Matrix(torch.eye(12).double())
    for k, same in ((GNTK(), True), (GNTK() + Overlap(1), True), (GNTK()*Overlap(1), True),
                    (Unit(GNTK()), True), (eye, False), (eye + GNTK(), False),
                    (GNTK()*eye, False), (Unit(eye), False)):
        k = fitted(k)
        assert (part_of(k, X) is part_of(k, X)) == same == k.shared, k.label
    k = fitted(GNTK())
    assert part_of(k, X, torch.tensor([0, 1])) is not part_of(k, X)      # other anchors


def test_names_for_people():
    eye = Matrix(torch.eye(2).double())
    net = LazyGNN(3, m=4, L=3, rng=np.random.default_rng(0))
    for k, name in ((GNTK(), "GNTK, depth 2"), (GNTK(3, hops=1), "GNTK, depth 3, 1 hop"),
                    (GNTK(hops=(1, 2), over="sum"), "GNTK, depth 2, [1, 2] hops, sum over nodes"),
                    (Relational(blocks=1), "relational kernel, 1 block"),
                    (Relational(), "relational kernel, 2 blocks"),
                    (Typed(), "relational kernel, 1 block"),
                    (Overlap(1), "overlap of surroundings, 1 block"),
                    (WeisfeilerLehman(3), "Weisfeiler-Lehman kernel, 3 rounds"),
                    (Vector(1), "vector network, depth 1"),
                    (Tangent(net), "graph network, depth 3"),
                    (eye, "a kernel of your own"),
                    (Given(Phi=torch.eye(2), missed=torch.zeros(2)), "explicit features"),
                    (2*GNTK() + Vector(), "GNTK, depth 2 + vector network, depth 2"),
                    (GNTK()*eye, "(GNTK, depth 2) × (a kernel of your own)"),
                    (Unit(Overlap(0)), "overlap of surroundings, 0 blocks"),
                    (Columns(), "columns"), (Columns(("a", "b")), "columns (a, b)"),
                    (Columns(("a", "b"), (1, 0.254)), "columns (a 1, b 0.25)")):
        assert k.label == name, name


def test_depths_that_fit_the_blocks():
    assert [Relational(blocks=b).L for b in (1, 2, 3)] == [2, 2, 3]
    assert Relational(3, blocks=2).L == 3
    with pytest.raises(ValueError, match="hidden layers L"): Relational(1, blocks=2)
    with pytest.raises(ValueError, match="blocks"): Relational(blocks=0)
    with pytest.raises(ValueError, match="hidden layers L"): GNTK(0)
    with pytest.raises(ValueError, match="radius"): Overlap(-1)
    assert Overlap(0).radius == 0


def test_only_whether_a_column_is_there():
    "Relational kernels with columns do not see how large a feature is; without, they do"
    X = shelf()
    graphs = [[int(v) for v in X.sizes], X.raw*torch.tensor([1., 2., 5.]).double()]
    longer = GraphDomain.packed(torch.nn.functional.normalize(graphs[1], dim=1), graphs[0],
                                edges=X.edges, raw=graphs[1], hops=0)
    some = Relational(columns=[0, 1, 2])
    assert some.columns == (0, 1, 2)
    assert_close(some.gram(longer), some.gram(X))
    assert float((Relational().gram(longer) - some.gram(X)).abs().max()) > 1e-3


def test_weights_of_sums():
    X = shelf()
    a, b = GNTK(), Overlap(1)
    two = Sum((a, b), (1, 3), standard=True)
    assert two.weights == (0.25, 0.75) and Sum((a, b)).weights == (1., 1.)
    s, t = (part_of(k.fitted(X), X).centre[1] for k in (a, b))
    assert_close(two.gram(X), 0.25*a.gram(X)/s + 0.75*b.gram(X)/t)
    nested = 2*(a + 3*b)
    assert [(w, type(k)) for w, k in nested.terms()] == [(2., GNTK), (6., Overlap)]
    assert two.fitted(X).free is False and Sum((a, b), free=True).fitted(X).free is True
    for bad in ((), (a, 3)):
        with pytest.raises(ValueError, match="expected"): Sum(bad)
    assert (a + b).features(X) is None                        # one of them has none


def test_columns_decide_once():
    X = shelf(6).with_columns(dict(heat=[1., 1, 3, 3, 5, 5], salt=list("aababb")))
    k = Columns().fitted(X)
    assert k.names == ("heat", "salt") == k.open and k.fitted(shelf(6)) is k
    assert [u for u, _ in k.units] == [8., 1.]           # mean squared distance of 1, 3 and 5
    assert Columns(("heat",)).fitted(X[[0, 1]]).units == ((1., None),)
    some = Columns(["heat"], [2])
    assert (some.names, some.lengths, some.open) == (("heat",), (2,), ())
    assert some.with_lengths({"heat": 9.}) is some
    found = k.with_lengths({"heat": 2., "salt": 3.})
    assert found.lengths == (2., 3.) and found.units is k.units
    assert Columns(("salt",)).with_lengths({"heat": 2., "salt": 3.}).lengths == (3.,)
    for wrong in (dict(lengths=(1,)), dict(names=("heat",), lengths=(1, 2)),
                  dict(names=("heat",), lengths=(0,))):
        with pytest.raises(ValueError, match="length scale"): Columns(**wrong)
    with pytest.raises(ValueError, match="cold"): Columns(("cold",)).fitted(X)
    with pytest.raises(ValueError, match="no column 'heat'"): k.encode(shelf(6))
    assert len(anchors_of(X)) == 6 and len(anchors_of(GraphDomain.joined(
        {"g": X}).with_columns(dict(heat=range(6))))) == 6


def test_a_kernel_in_a_product_is_fitted_and_opened_with_it():
    X = shelf(6).with_columns(dict(heat=[1., 1, 3, 3, 5, 5]))
    k = (Unit(GNTK())*Columns(("heat",))).fitted(X)
    assert k.open == ("heat",) and (k + Overlap(1)).open == ("heat",) and Unit(k).open == ("heat",)
    closed = k.with_lengths({"heat": 0.5})
    assert closed.open == () and (k + k).with_lengths({"heat": 0.5}).open == ()
    d = (X.beside["heat"].values[:, None] - X.beside["heat"].values).square()/8
    cosines = Unit(GNTK()).gram(X)
    assert_close(closed.gram(X), cosines*torch.exp(-2*d))
    assert_close(closed.diag(X), torch.ones(6).double())
    assert not Matrix(torch.eye(6)).portable and not (Matrix(torch.eye(6))*GNTK()).portable
    assert not (Matrix(torch.eye(6)) + GNTK()).portable and k.portable and (k + k).portable


def test_features_of_weisfeiler_and_lehman_are_those_that_weigh_most():
    X = shelf()
    k = WeisfeilerLehman(1).fitted(X)
    assert k.fitted(shelf(3, seed=5)) is k
    F = k.code(X).table.toarray()
    weights = np.sort((F**2).sum(0))[::-1]
    for most in (1, 3):
        Phi, missed = k.features(X, most=most)
        assert float(Phi.square().sum()) == weights[:most].sum()
        assert_close(missed, k.diag(X) - Phi.square().sum(1))


def test_a_kernel_of_ones_own_only_needs_three_methods():
    class Size(Kernel):
        def encode(self, X): return X.sizes.double()
        def between(self, a, b): return torch.exp(-(a[:, None] - b)**2)
        def own(self, a): return torch.ones_like(a)
    k, X = Size(), shelf()
    assert k.label == "a kernel" and k.features(X) is None and k.terms() == [(1., k)]
    assert k.fitted(X) is k and k.with_lengths({}) is k and k.open == () and not k.free
    assert k.portable and k.shared and k.together == 1
    assert_close(k.cross(X, X[[3]])[:, 0], k.gram(X)[:, 3])
    assert X in kernels.ENCODED
