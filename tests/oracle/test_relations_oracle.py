"The kernel of a relational network, against neural-tangents' aggregation layer."
import networkx as nx
import numpy as np
import pytest

pytest.importorskip("neural_tangents",
                    reason="needs the oracle extra: pip install 'gnn_bandits[oracle]'")
import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
from neural_tangents import stax  # noqa: E402

from gnn_bandits.graphs import GraphDomain  # noqa: E402
from gnn_bandits.relations import (classes, neighbours, refine, relational_kernel,  # noqa: E402
                                   row_keys, surroundings, with_itself)

KINDS, N, D = 3, 6, 4


def some_graphs(n=3):
    rng, out = np.random.default_rng(0), []
    for i in range(n):
        g = nx.gnp_random_graph(N, 0.5, seed=i)
        nx.set_node_attributes(g, {v: rng.standard_normal(D).tolist() for v in g}, "x")
        nx.set_edge_attributes(g, {e: int(rng.integers(KINDS - 1)) for e in g.edges}, "kind")
        out.append(g)
    return GraphDomain.from_networkx(out, features="x", edge_type="kind")


def block(kind, layer, scale):
    "What a node collects over one kind of edges, with weights of its own"
    return stax.serial(stax.Aggregate(aggregate_axis=1, batch_axis=0, channel_axis=2,
                                      to_dense=lambda p: p[..., layer, kind]),
                       stax.Dense(1, W_std=np.sqrt(scale), b_std=None, parameterization="ntk"))


def network(L):
    "One block before each of the hidden layers; the mean over nodes at the end"
    layers = []
    for l in range(L):
        kinds = [block(r, l, D if l == 0 else 2.) for r in range(KINDS)]
        layers += [stax.FanOut(KINDS), stax.parallel(*kinds), stax.FanInSum(), stax.Relu()]
    last = stax.Dense(1, W_std=np.sqrt(2), b_std=None, parameterization="ntk")
    return stax.serial(*layers, stax.GlobalAvgPool(batch_axis=0, channel_axis=2), last)[2]


def node_scales(X, E):
    "The scale of every node in each block, by its class"
    around, code, out = neighbours(X), classes(row_keys(X.raw.numpy()))[1], []
    for level in E.levels:
        code = classes(refine(code, around))[1]
        out.append(level.scale[code])
    return out


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_equals_the_library(blocks):
    "The scale of a node is a part of the adjacency matrix, another one in each block"
    X = some_graphs()
    v, u, kind, weight = neighbours(X)
    A = np.zeros((len(X), N, N, blocks, KINDS))
    E = surroundings(X, X.raw.numpy(), blocks)
    with_itself(E, blocks)
    c = node_scales(X, E)
    for l in range(blocks): A[v//N, u % N, v % N, l, kind] = weight/c[l][v]   # from u to v
    x = X.raw.numpy().reshape(len(X), N, D)
    theirs = np.asarray(network(blocks)(x, None, "ntk", pattern=(A, A)))
    ours = (blocks + 1)*relational_kernel(E, E, blocks).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-7)
