"Kernels with kinds of edges: invariance, odd graphs, weights, and the surrogate that uses them."
import networkx as nx
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from gnn_bandits import GraphDomain
from gnn_bandits.gntk import gntk
from gnn_bandits.molecules import ATOM_FEATURES, MORGAN_FEATURES, featurize_like
from gnn_bandits.kernels import GNTK, Overlap, Relational, Sum, Typed, Unit, WeisfeilerLehman
from gnn_bandits.priors import Prior
from gnn_bandits.relations import (ByType, counts, evidence_weights, features_of,
                                   look_alike, neighbours, overlap, relational_kernel,
                                   surroundings, with_itself)
from gnn_bandits.surrogate import Surrogate, candidate_priors, weighed_sum

pytestmark = pytest.mark.usefixtures("one_thread")


def over(kernel, X):
    "A kernel over a pool, in the standard form"
    return Prior(kernel, X, "rows", "anchors")


def graphs_of(sizes, seed=0, kinds=3, d=4, p=0.4):
    rng, out = np.random.default_rng(seed), []
    for i, n in enumerate(sizes):
        g = nx.gnp_random_graph(n, p, seed=seed + i)
        nx.set_node_attributes(g, {v: np.eye(d)[rng.integers(d)].tolist() for v in g}, "x")
        nx.set_edge_attributes(g, {e: int(rng.integers(kinds)) for e in g.edges}, "kind")
        nx.set_edge_attributes(g, {e: float(rng.integers(1, 3)) for e in g.edges}, "w")
        out.append(g)
    return out


def domain_of(graphs, **kw):
    return GraphDomain.from_networkx(graphs, features="x", **{"edge_type": "kind"} | kw)


def gram(X, blocks=2, L=2):
    E = surroundings(X, X.raw.numpy(), blocks)
    own = with_itself(E, L)
    return relational_kernel(E, E, L), own


def shuffled(g, rng):
    new = rng.permutation(len(g))
    h = nx.Graph()
    h.add_nodes_from((int(v), g.nodes[int(np.flatnonzero(new == v)[0])]) for v in range(len(g)))
    h.add_edges_from((int(new[u]), int(new[v]), data) for u, v, data in g.edges(data=True))
    return h


@pytest.mark.parametrize("blocks,L", [(1, 1), (2, 2), (3, 4)])
def test_the_names_of_nodes_do_not_matter(blocks, L):
    graphs, rng = graphs_of([5, 8, 3, 9, 1, 2]), np.random.default_rng(1)
    other = [shuffled(g, rng) for g in graphs]
    assert_allclose(*(gram(domain_of(g), blocks, L)[0] for g in (graphs, other)), atol=3e-8)
    C, D = (counts(domain_of(g), domain_of(g).raw.numpy(), blocks)[0] for g in (graphs, other))
    assert_allclose(overlap(C, C), overlap(D, D), rtol=1e-14)


def test_kinds_and_weights_matter():
    graphs = graphs_of([6, 7, 8])
    base = gram(domain_of(graphs))[0]
    for kw in (dict(edge_type=None), dict(weight="w")):
        assert (gram(domain_of(graphs, **kw))[0] - base).abs().max() > 1e-3
    twice = domain_of(graphs, weight="w")
    v, u, kind, weight = neighbours(twice)
    assert set(weight) == {1., 2.} and len(v) == 2*sum(g.size() for g in graphs) + 21


def test_graphs_without_edges_are_bags_of_nodes():
    graphs = graphs_of([1, 4, 6], p=0.)
    K, own = gram(domain_of(graphs, edge_type=None), 2, 3)
    assert_allclose(K, gntk(domain_of(graphs, edge_type=None, hops=0), L=3), atol=3e-8)
    assert_allclose(own, K.diagonal(), atol=3e-8)


def test_a_row_is_the_same_alone_and_among_others():
    X = domain_of(graphs_of([5, 6, 7, 8]*5))
    for kernel in (Relational(), Overlap(), GNTK()):
        p, q = over(kernel, X), over(kernel, X)
        assert torch.equal(p.rows([3, 1])[1], q.rows([1])[0])
    both = over(Sum((Relational(), Overlap()), (3, 1), standard=True), X)
    assert_allclose(both.block([0, 4]), 0.75*over(Relational(), X).block([0, 4])
                    + 0.25*over(Overlap(), X).block([0, 4]), rtol=1e-12)


def test_new_graphs_with_surroundings_that_the_pool_does_not_have():
    X, new = domain_of(graphs_of([5, 6, 7, 8]*5)), domain_of(graphs_of([9, 4], seed=77, kinds=5))
    C = Overlap().cross(X, new)[[0, 3]].T
    both = GraphDomain.concat([X, new])
    D = counts(both, both.raw.numpy(), 2)[0]
    assert_allclose(C, overlap(D[[20, 21]], D[[0, 3]]), rtol=1e-12)
    C = Relational().cross(X, new)[[0, 3]].T
    assert_allclose(C, gram(both)[0][20:, [0, 3]], atol=3e-8)


def test_the_surrogate_finds_that_kinds_matter():
    graphs = graphs_of([8]*80, p=0.3)
    X = domain_of(graphs)
    y = np.array([sum(d == 2 for *_, d in g.edges(data="kind")) for g in graphs], float)
    assert look_alike(X)
    priors, arms = candidate_priors(X), np.arange(50)
    fitted = Surrogate(priors).learn(arms, y[arms])
    plain = Surrogate(priors[:1]).learn(arms, y[arms])
    assert "relations" in fitted.facts["prior"]
    error = lambda m: np.abs(m.mean.numpy()[50:] - y[50:]).mean()
    assert error(fitted) < 0.8*error(plain)
    new = domain_of(graphs_of([8]*6, seed=500, p=0.3))
    assert len(fitted.predict(new)) == 6
    assert_allclose(fitted.predict(X[60:64])["mean"], fitted.mean[60:64], rtol=1e-4)


def test_refusals():
    X = domain_of(graphs_of([5, 6]))
    for bad in (dict(blocks=0), dict(blocks=1.5), dict(blocks=3, L=2)):
        with pytest.raises(ValueError, match="expected"): Relational(**bad)
    with pytest.raises(ValueError, match="does not know its edges"):
        over(Overlap(), GraphDomain(X.h)).block([0])
    with pytest.raises(ValueError, match="expected a kernel"): Sum((Relational(), X))
    with pytest.raises(ValueError, match="a weight"): Sum((Relational(),), (-1.,))


def test_a_node_without_features_among_others():
    graphs = graphs_of([6]*40, p=0.95)
    for g in graphs: g.nodes[0]["x"] = [0., 0., 0., 0.]
    X = domain_of(graphs)
    y = np.array([g.size() for g in graphs], float)
    model = Surrogate(candidate_priors(X)).learn(range(25), y[:25])
    assert np.isfinite(model.mean.numpy()).all() and "relations" in candidate_priors(X)[-1].label
    assert np.isfinite(over(Relational(), X).block(range(40)).numpy()).all()


def test_weights_by_evidence_depend_on_values_alone():
    graphs = graphs_of([8]*60, p=0.3)
    X = domain_of(graphs)
    y = np.array([sum(d == 2 for *_, d in g.edges(data="kind")) for g in graphs], float)
    parts = GNTK(over="sum"), Relational(over="sum"), Overlap(1)
    arms = list(range(40))
    make = lambda: Surrogate([over(Sum(parts, None, True, True), X)])
    once, single = make().learn(arms, y[arms]), make()
    for a in arms: single.learn(a, y[a]).latent
    assert torch.equal(once.mean, single.mean) and once.facts == single.facts
    same = make().learn(arms, 1000*y[arms] - 7)
    assert_allclose(same.mean, 1000*once.mean - 7, rtol=1e-7)
    weights = once.fit.prior.kernel.weights
    assert abs(sum(weights) - 1) < 1e-12 and weights[1] + weights[2] > weights[0]
    assert len(once.predict(domain_of(graphs_of([8]*3, seed=700, p=0.3)))) == 3


def test_weights_by_evidence_without_information():
    X = domain_of(graphs_of([6]*20))
    parts = Relational(), Overlap(1)
    K = torch.stack([over(k, X).block(range(10)) for k in parts])
    nothing = evidence_weights(K, torch.zeros(10).double())
    assert nothing.isfinite().all() and (nothing > 0).all()
    for values in ([], [3.], [5., 5., 5.], [1e300, -1e300, 3e299]):
        s = Surrogate(over(Sum(parts, None, True, True), X)).learn(range(len(values)), values)
        assert s.mean.isfinite().all() and (s.std > 0).all()
    one = evidence_weights(K[:1], torch.from_numpy(np.random.default_rng(0).standard_normal(10)))
    assert len(one) == 2 and (one > 0).all()


def dyes(n=300):
    "Pyridines with groups at four places."
    groups = "", "O", "N", "Cl", "F", "C(=O)O", "C#N", "CC", "OC", "S(=O)(=O)C"
    some = np.random.default_rng(5).integers(len(groups), size=(2*n, 4))
    names = dict.fromkeys(f"c1({groups[a]})cc({groups[b]})c({groups[c]})nc1{groups[e]}".replace(
        "()", "") for a, b, c, e in some)
    return list(names)[:n]


def test_the_surrogate_finds_that_fingerprints_matter():
    pytest.importorskip("rdkit")
    X = GraphDomain.from_smiles(dyes(), duplicates="merge")
    columns = [ATOM_FEATURES.index(k) for k in MORGAN_FEATURES]
    near, far = (counts(X, features_of(X, columns), blocks)[0].toarray() for blocks in (1, 2))
    far = far[:, near.shape[1]:]                  # only what is seen two bonds around an atom
    y = far @ np.random.default_rng(1).standard_normal(far.shape[1])
    arms, new = np.arange(len(X))[::2], np.arange(len(X))[1::2]
    priors = candidate_priors(X)
    assert [p.label.partition("with ")[2] for p in priors] == [
        "", "relations", "relations and overlap", "relations and fingerprints"]
    fitted, before = (Surrogate(p).learn(arms, y[arms]) for p in (priors, priors[:3]))
    assert "fingerprints" in fitted.facts["prior"]
    error = lambda m: np.sqrt(((m.mean.numpy() - y)[new]**2).mean())
    assert error(fitted) < 0.9*error(before)
    some = fitted.predict(featurize_like(X, [*dyes()[1:6:2], "CCO"]))
    assert np.isfinite(some.to_numpy()).all()
    assert_allclose(some["mean"][:3], fitted.mean[1:6:2], rtol=1e-4, atol=1e-4*y.std())


def test_weights_of_all_sums():
    pytest.importorskip("rdkit")
    X = GraphDomain.from_smiles(dyes(30), duplicates="merge")
    labels = lambda p: [k.label for k in p.kernel.parts]
    assert len(set(labels(weighed_sum(X)))) == 4
    own = GraphDomain.from_smiles(dyes(30), duplicates="merge",
                                  features=lambda a: [a.GetAtomicNum(), 1])
    assert not any("fingerprints" in p.label for p in candidate_priors(own))
    assert len(labels(weighed_sum(own))) == 3


def test_fingerprints_come_first_for_reactions_only():
    pytest.importorskip("rdkit")
    couplings = [f"{a}.{b}" for a in dyes(8) for b in ("CCO", "c1ccccc1Br", "CN", "CC(=O)O")]
    salts = [*dyes(20), *(f"{s}.Cl" for s in dyes(15))]
    labels = lambda s: [(p.label.partition("with ")[2], p.nats) for p in candidate_priors(
        GraphDomain.from_smiles(s))]
    assert labels(couplings) == [("relations and fingerprints", 0), ("", 5), ("relations", 5),
                                 ("relations and overlap", 5)]
    assert labels(salts) == [("", 0), ("relations", 1.5), ("relations and overlap", 5),
                             ("relations and fingerprints", 5)]


# Types of edges are names

def renamed(graphs, names):
    out = [g.copy() for g in graphs]
    for g in out:
        nx.set_edge_attributes(g, {(u, v): names[k] for u, v, k in g.edges(data="kind")}, "kind")
    return out


@pytest.mark.parametrize("names", [(-1, 0, 1), (0, -1, -2), (7, 10**9, -10**15), (2, 1, 0)])
def test_names_of_types_do_not_matter(names):
    "Type -1 was taken for the node itself, and a large one for as many matrices"
    graphs = graphs_of([5, 8, 3, 9, 1, 2, 6, 7]*3)
    X, Y = domain_of(graphs), domain_of(renamed(graphs, names))
    out, new = domain_of(graphs_of([6, 7], seed=9)), domain_of(renamed(graphs_of([6, 7], seed=9),
                                                                       names))
    for kernel in (Relational(), Overlap(), Typed()):
        p, q = over(kernel, X), over(kernel, Y)
        assert_allclose(p.block(range(24)), q.block(range(24)), atol=1e-7)
        assert_allclose(p.cross(out, [0, 5])[0], q.cross(new, [0, 5])[0], atol=1e-7)
    both = GraphDomain.concat([Y, new])                     # added later: the same types
    assert_allclose(gram(both)[0][24:, :24], gram(GraphDomain.concat([X, out]))[0][24:, :24],
                    atol=1e-7)


def test_kinds_of_types_as_they_were():
    "0 is the node itself, type t is kind t + 1; campaigns that were written so ask for the same"
    kind = neighbours(domain_of(graphs_of([6, 7, 8])))[2]
    assert set(kind) == {0, 1, 2, 3}
    signed = neighbours(domain_of(renamed(graphs_of([6, 7, 8]), (-1, 0, 1))))[2]
    assert set(signed) == {0, -1, 1, 2} and ((signed == 0) == (kind == 0)).all()


def test_graphs_without_types_do_not_fit_a_pool_with_types():
    graphs = graphs_of([5, 6, 7, 8])
    typed, bare = domain_of(graphs), domain_of(graphs, edge_type=None)
    for kernel in (Relational(), Overlap(), Typed()):
        make = lambda X: over(kernel, X)                      # noqa: B023
        with pytest.raises(ValueError, match="the pool have types"): make(typed).cross(bare, [0])
        with pytest.raises(ValueError, match="the pool have neither types nor directions"):
            make(bare).cross(typed, [0])
        lone = domain_of(graphs_of([1, 2], p=0.), edge_type=None)
        assert make(typed).cross(lone, [0])[0].isfinite().all()       # no edges, no types


# Types of edges where nodes do not look alike

def unlike(n, seed=0, sizes=(6, 13)):
    "Graphs with normal features, and types 0 and 1 at random"
    rng, out = np.random.default_rng(seed), []
    for _ in range(n):
        g = nx.gnp_random_graph(int(rng.integers(*sizes)), 0.4, seed=int(rng.integers(10**9)))
        nx.set_node_attributes(g, {v: rng.standard_normal(4) for v in g}, "x")
        nx.set_edge_attributes(g, {e: int(rng.integers(2)) for e in g.edges}, "kind")
        out.append(g)
    return out


def share(graphs):
    return np.array([np.mean([k for *_, k in g.edges(data="kind")] or [0.]) for g in graphs])


def rank_correlation(a, b):
    return np.corrcoef(*(np.argsort(np.argsort(v)) for v in (a, b)))[0, 1]


@pytest.mark.parametrize("form", [None, "rows", "features"])
def test_types_are_seen_where_features_do_not_repeat(form):
    "The share of edges of type 1: the default did not see it, with a rank correlation of about 0"
    graphs = unlike(140)
    X, y = domain_of(graphs), share(graphs)
    assert not look_alike(X)
    priors = candidate_priors(X, form=form)
    assert [("relations" in p.label, p.nats) for p in priors[-2:]] == [(True, 1.5)]*2
    model = Surrogate(priors).learn(range(70), y[:70])
    assert "relations" in model.facts["prior"]
    assert rank_correlation(model.mean[70:], y[70:]) > 0.8
    plain = Surrogate(candidate_priors(domain_of(graphs, edge_type=None), form=form))
    assert abs(rank_correlation(plain.learn(range(70), y[:70]).mean[70:], y[70:])) < 0.4
    new = unlike(60, seed=5)
    assert rank_correlation(model.predict(domain_of(new))["mean"], share(new)) > 0.8
    if form != "features":
        assert_allclose(model.predict(X[80:84])["mean"], model.mean[80:84], rtol=1e-6)


def test_a_campaign_sees_types(tmp_path):
    from gnn_bandits import Campaign
    graphs = unlike(100, seed=3)
    with Campaign.create(tmp_path/"c", domain_of(graphs)) as c:
        c.tell(list(range(60)), share(graphs)[:60])
        found = c.predict()["mean"].to_numpy()[60:]
        assert rank_correlation(found, share(graphs)[60:]) > 0.8
        assert "relations" in " ".join(c.surrogate().words())


def test_counts_of_types_and_features_by_type():
    "Sums over nodes for a count, and features that matter along one type only"
    graphs = unlike(140, seed=1)
    X = domain_of(graphs)
    count = np.array([sum(k for *_, k in g.edges(data="kind")) for g in graphs], float)
    along = np.array([sum(g.nodes[u]["x"][0] + g.nodes[v]["x"][0] for u, v, k in
                          g.edges(data="kind") if k) for g in graphs])
    for y in (count, along):
        model = Surrogate(candidate_priors(X)).learn(range(70), y[:70])
        assert "sum over nodes, with relations" in model.facts["prior"]
        assert rank_correlation(model.mean[70:], y[70:]) > 0.8


def test_nothing_changes_without_types_and_by_request():
    graphs = unlike(20)
    labels = lambda X, **kw: [p.label for p in candidate_priors(X, **kw)]
    X, bare = domain_of(graphs), domain_of(graphs, edge_type=None)
    assert labels(X)[:9] == labels(bare) and len(labels(X)) == 11
    assert labels(X, depths=[2]) == labels(bare, depths=[2])
    even = domain_of(unlike(20, sizes=(8, 9)))
    assert len(labels(even)) == 10                          # sums over nodes are means
    with pytest.raises(ValueError, match="whose nodes look alike"): weighed_sum(X)


def test_too_many_types_are_left_out_in_words(monkeypatch):
    import gnn_bandits.surrogate as module
    X = domain_of(unlike(20))
    monkeypatch.setattr(module, "TYPED_NUMBERS", len(X.nodes)*16)
    assert len(candidate_priors(X)) == 11                   # 5 numbers, 3 kinds, one column
    monkeypatch.setattr(module, "TYPED_NUMBERS", len(X.nodes)*16 - 1)
    model = Surrogate(candidate_priors(X)).learn(range(4), [1., 2., 3., 5.])
    assert len(model.priors) == 9 and "edge types are left out" in model.words()[1]


def test_types_that_the_pool_does_not_have():
    "They are like nothing in the pool, as in the relational kernel"
    graphs = unlike(30)
    X, new = domain_of(graphs), domain_of(renamed(unlike(4, seed=8), (0, 5)))
    p, view = over(Typed(), X), ByType(X)
    far = view(new)
    assert float(far.nodes[:, -1].max()) > 0 and not view(X).nodes[:, -1].any()
    C, own = p.cross(new, range(30))
    assert C.isfinite().all() and (own > 0).all()
    raw = torch.cat([new.raw/view.unit, torch.ones(len(new.raw), 1)], 1)
    old = torch.cat([X.raw/view.unit, torch.ones(len(X.raw), 1)], 1)
    longer = [GraphDomain.packed(torch.nn.functional.normalize(x, dim=1), D.sizes, edges=D.edges,
                                 raw=x, hops=0) for x, D in ((old, X), (raw, new))]
    plain = over(Relational(blocks=1), longer[0]).cross(longer[1], range(30))[0]
    assert_allclose(C, plain, atol=1e-6)


def test_features_of_any_unit():
    graphs = unlike(10)
    want = ByType(domain_of(graphs))(domain_of(graphs)).nodes
    for factor in (1e200, 1e-200):
        big = [g.copy() for g in graphs]
        for g in big:
            for v in g: g.nodes[v]["x"] = factor*g.nodes[v]["x"]
        assert_allclose(ByType(domain_of(big))(domain_of(big)).nodes, want, rtol=1e-9, atol=1e-12)


# The kernel of Weisfeiler and Lehman

def coloured(n, graph=nx.Graph, seed=0):
    "Random graphs with few labels, and edges of two kinds"
    rng, out = np.random.default_rng(seed), []
    for i in range(n):
        g = nx.gnp_random_graph(3 + i % 6, 0.5, seed=i, directed=graph is nx.DiGraph)
        if g.is_directed(): g = nx.DiGraph((u, v) for u, v in g.edges if u < v) or g
        g.add_nodes_from(range(2))
        for v in g: g.nodes[v]["x"] = "abc"[rng.integers(3)]
        for e in g.edges: g.edges[e]["kind"] = ("red", "blue")[rng.integers(2)]
        out.append(g)
    return out


def test_grakel_has_the_same_kernel():
    "It ignores kinds of edges, so they are put into the labels of nodes"
    kernels = pytest.importorskip("grakel.kernels")
    graphs = coloured(20)
    for g in graphs:
        for v in g: g.nodes[v]["x"] += "".join(sorted(k for *_, k in g.edges(v, data="kind")))
    X = GraphDomain.from_networkx(graphs)
    theirs = [[{v: list(g[v]) for v in g}, dict(g.nodes(data="x"))] for g in graphs]
    for h in range(1, 4):
        make = kernels.WeisfeilerLehman(n_iter=h, base_graph_kernel=kernels.VertexHistogram)
        assert np.array_equal(WeisfeilerLehman(h).gram(X), make.fit_transform(theirs))
        make = kernels.WeisfeilerLehman(n_iter=h, normalize=True,
                                        base_graph_kernel=kernels.VertexHistogram)
        assert_allclose(Unit(WeisfeilerLehman(h)).gram(X), make.fit_transform(theirs), rtol=1e-12)


def test_rounds_of_directed_graphs_by_a_plain_loop():
    graphs, bags = coloured(12, nx.DiGraph), []
    X = GraphDomain.from_networkx(graphs, edge_type="kind")
    for g in graphs:
        label = dict(g.nodes(data="x"))
        bags.append(list(label.values()))
        for _ in range(2):
            label = {v: (label[v], tuple(sorted((k, str(label[u])) for _, u, k in
                                                g.out_edges(v, data="kind"))),
                         tuple(sorted((k, str(label[u])) for u, _, k in
                                      g.in_edges(v, data="kind")))) for v in g}
            bags[-1] += label.values()
    want = [[sum(a == b for a in one for b in two) for two in bags] for one in bags]
    assert X.edges.tells == 3 and np.array_equal(WeisfeilerLehman(2).gram(X), want)
    turned = GraphDomain.from_networkx([g.reverse() for g in graphs], edge_type="kind")
    assert not np.array_equal(WeisfeilerLehman(2).cross(X, turned), want)
    assert Prior(WeisfeilerLehman(2), X).label == "Weisfeiler-Lehman kernel, 2 rounds"
