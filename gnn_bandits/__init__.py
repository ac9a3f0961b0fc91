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

_HOME = {name: module for module, names in {
    "core": "use_style",
    "graphs": "GraphDomain",
    "ntk": "kappa0 kappa1",
    "gntk": "gntk_diag permutation_kernel",
    "networks": "LazyGNN LazyNN",
    "spectrum": "eigenvalues multiplicity",
    "features": "GNTKFeatures",
    "infogain": "information_gain max_information_gain mig_bound",
    "posterior": "Posterior FeaturePosterior DiagonalPosterior",
    "confidence": "beta",
    "rewards": "sample_reward RewardOptions Environment",
    "priors": "Prior",
    "policies": "Policy",
    "bandits": "make_algorithm run_bandit Algorithm History Options",
    "watch": "Watch",
    "surrogate": "Surrogate",
    "logbook": "CampaignPolicy",
    "campaigns": "Campaign",
    "bridges": "GraphRegressor",
    "scale": "featurize Library LazyPosterior",
}.items() for name in names.split()}
__all__ = list(_HOME)


def __getattr__(name):
    if name not in _HOME: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module
    from .core import explain
    thing = explain(getattr(import_module(f".{_HOME[name]}", __name__), name))
    return globals().setdefault(name, thing)


def __dir__():
    return sorted({*globals(), *__all__} - {"_HOME"})
