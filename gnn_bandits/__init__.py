"""Bandits and Bayesian optimisation over graphs.

Hand over a set of graphs, ask which one to test next, tell what came out:

    from gnn_bandits import GraphDomain, make_algorithm
    domain = GraphDomain.from_networkx(graphs, features="x")
    alg = make_algorithm("GNN-UCB", domain, rng=np.random.default_rng(0))
    arm = alg.ask()
    alg.tell(arm, measured)

The names below are what people import; `help` of each shows its parameters and an example. They are
loaded when they are first used. `gntk` and `ntk` are modules, and each holds the function of its name.
The reproduction of the paper *Graph Neural Network Bandits* is `gnn_bandits.paper`; the command line
is `gnn_bandits`, or `python -m gnn_bandits`.
"""
__version__ = "0.1.0"

from .api import PUBLIC as _PUBLIC
from .api import fetch as _fetch

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _fetch(name))


def __dir__():
    return sorted({*globals(), *__all__} - {"_PUBLIC", "_fetch"})
