"Kernels with kinds of edges: invariance, odd graphs, weights, and the surrogate that uses them."
import networkx as nx
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from gnn_bandits import GraphDomain
from gnn_bandits.gntk import gntk
from gnn_bandits.molecules import ATOM_FEATURES, MORGAN_FEATURES, featurize_like
from gnn_bandits.relations import (DistinctPrior, OverlapPrior, RelationalPrior, SumPrior,
                                   WeighedPrior, counts, evidence_weights, features_of, look_alike,
                                   neighbours, overlap, relational_kernel, surroundings,
                                   with_itself)
from gnn_bandits.surrogate import Surrogate, candidate_priors, weighed_sum

pytestmark = pytest.mark.usefixtures("one_thread")


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
    c, own = with_itself(X, X.raw.numpy(), blocks, L)
    E = surroundings(X, X.raw.numpy(), c)
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
    for make in (RelationalPrior, OverlapPrior, DistinctPrior):
        p, q = make(X), make(X)
        assert torch.equal(p.rows([3, 1])[1], q.rows([1])[0])
    both = SumPrior([RelationalPrior(X), OverlapPrior(X)], [3, 1])
    assert_allclose(both.block([0, 4]), 0.75*RelationalPrior(X).block([0, 4])
                    + 0.25*OverlapPrior(X).block([0, 4]), rtol=1e-12)


def test_new_graphs_with_surroundings_that_the_pool_does_not_have():
    X, new = domain_of(graphs_of([5, 6, 7, 8]*5)), domain_of(graphs_of([9, 4], seed=77, kinds=5))
    p = OverlapPrior(X)
    C, own = p._outside(new, [0, 3])
    both = GraphDomain.concat([X, new])
    D = counts(both, both.raw.numpy(), 2)[0]
    assert_allclose(C, overlap(D[[20, 21]], D[[0, 3]]), rtol=1e-12)
    r = RelationalPrior(X)
    assert_allclose(r._outside(new, [0, 3])[0], gram(both)[0][20:, [0, 3]], atol=3e-8)


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
        with pytest.raises(ValueError, match="expected"): RelationalPrior(X, **bad)
    with pytest.raises(ValueError, match="does not know its edges"): OverlapPrior(GraphDomain(X.h))
    with pytest.raises(ValueError, match="over the same arms"):
        SumPrior([RelationalPrior(X), RelationalPrior(X[:1])])
    with pytest.raises(ValueError, match="a weight"): SumPrior([RelationalPrior(X)], [-1.])


def test_a_node_without_features_among_others():
    graphs = graphs_of([6]*40, p=0.95)
    for g in graphs: g.nodes[0]["x"] = [0., 0., 0., 0.]
    X = domain_of(graphs)
    y = np.array([g.size() for g in graphs], float)
    model = Surrogate(candidate_priors(X)).learn(range(25), y[:25])
    assert np.isfinite(model.mean.numpy()).all() and "relations" in candidate_priors(X)[-1].label
    assert np.isfinite(RelationalPrior(X).block(range(40)).numpy()).all()


def test_weights_by_evidence_depend_on_values_alone():
    graphs = graphs_of([8]*60, p=0.3)
    X = domain_of(graphs)
    y = np.array([sum(d == 2 for *_, d in g.edges(data="kind")) for g in graphs], float)
    parts = [DistinctPrior(X, total=True), RelationalPrior(X, total=True), OverlapPrior(X, 1)]
    arms = list(range(40))
    make = lambda: Surrogate([WeighedPrior(parts)])
    once, single = make().learn(arms, y[arms]), make()
    for a in arms: single.learn(a, y[a]).latent
    assert torch.equal(once.mean, single.mean) and once.facts == single.facts
    same = make().learn(arms, 1000*y[arms] - 7)
    assert_allclose(same.mean, 1000*once.mean - 7, rtol=1e-7)
    weights = once._fit.prior.weights
    assert abs(sum(weights) - 1) < 1e-12 and weights[1] + weights[2] > weights[0]
    assert len(once.predict(domain_of(graphs_of([8]*3, seed=700, p=0.3)))) == 3


def test_weights_by_evidence_without_information():
    X = domain_of(graphs_of([6]*20))
    parts = [RelationalPrior(X), OverlapPrior(X, 1)]
    K = torch.stack([p.block(range(10)) for p in parts])
    nothing = evidence_weights(K, torch.zeros(10).double())
    assert nothing.isfinite().all() and (nothing > 0).all()
    for values in ([], [3.], [5., 5., 5.], [1e300, -1e300, 3e299]):
        s = Surrogate(WeighedPrior(parts)).learn(range(len(values)), values)
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
    labels = lambda p: [q.label for q in p.parts]
    assert len(set(labels(weighed_sum(X)))) == 4
    own = GraphDomain.from_smiles(dyes(30), duplicates="merge",
                                  features=lambda a: [a.GetAtomicNum(), 1])
    assert not any("fingerprints" in p.label for p in candidate_priors(own))
    assert len(labels(weighed_sum(own))) == 3


def test_fingerprints_come_first_for_reactions_only():
    pytest.importorskip("rdkit")
    couplings = [f"{a}.{b}" for a in dyes(8) for b in ("CCO", "c1ccccc1Br", "CN", "CC(=O)O")]
    salts = [*dyes(20), *(f"{s}.Cl" for s in dyes(15))]
    labels = lambda s: [(p.label.partition("with ")[2], p.far) for p in candidate_priors(
        GraphDomain.from_smiles(s))]
    assert labels(couplings) == [("relations and fingerprints", 0), ("", 5), ("relations", 5),
                                 ("relations and overlap", 5)]
    assert labels(salts) == [("", 0), ("relations", 1.5), ("relations and overlap", 5),
                             ("relations and fingerprints", 5)]
