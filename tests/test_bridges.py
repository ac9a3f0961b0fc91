"What would bore a reader of nbs/24_bridges.ipynb: forms of input, shapes, many functions."
import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from torch.testing import assert_close

from gnn_bandits import bridges
from gnn_bandits.bandits import Prior
from gnn_bandits.bridges import (GraphRegressor, as_botorch_model, candidate_numbers, condition,
                                 joint_posterior, as_domain, whole)
from gnn_bandits.campaigns import Campaign
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.surrogate import FittedBelief, Surrogate, candidate_priors

pytestmark = pytest.mark.usefixtures("one_thread")
SMILES = ["C", "CC", "CCC", "CCO", "CCN", "c1ccccc1", "CC=O", "CC(=O)O", "CCCl", "CO", "CN", "C=C",
          "CCCC", "CCCO", "CC(C)O", "C1CC1"]


@pytest.fixture(scope="module")
def world():
    "30 graphs as networkx has them, and their values"
    rng = np.random.default_rng(3)
    graphs = [nx.gnp_random_graph(6, 0.5, seed=int(s)) for s in rng.integers(2**31, size=30)]
    for g in graphs: nx.set_node_attributes(g, {v: rng.standard_normal(3) for v in g}, "x")
    X = GraphDomain.from_networkx(graphs)
    f = Prior.gntk(X).standard.start(1e-2).draw(rng).numpy()
    return graphs, X, f + 0.1*rng.standard_normal(30)


def boxed(graphs):
    box = np.empty(len(graphs), dtype=object)
    for i, g in enumerate(graphs): box[i] = g
    return box


# scikit-learn

def test_all_forms_of_graphs_give_the_same_model(world):
    pyg = pytest.importorskip("torch_geometric.utils")
    graphs, X, y = world
    datas = []
    for g in graphs:
        data = pyg.from_networkx(g)
        data.x = torch.tensor(np.stack([g.nodes[v]["x"] for v in g]))
        datas.append(data)
    reg, cv = GraphRegressor(depths=(2,), hops=(1,)), KFold(3)
    expected = cross_val_score(reg, graphs, y, cv=cv)
    assert np.isfinite(expected).all()
    box = boxed(graphs)
    for form in (X, list(X), datas, box, box[:, None], pd.Series(box, index=range(5, 35)),
                 pd.DataFrame({"graph": box})):
        np.testing.assert_allclose(cross_val_score(reg, form, y, cv=cv), expected, rtol=1e-8)


def test_smiles():
    pytest.importorskip("rdkit")
    y = np.array([len(s) + 0.1*i for i, s in enumerate(SMILES)])
    reg = GraphRegressor(depths=(1, 2)).fit(pd.Series(SMILES), y)
    alone, std = reg.predict(["CCCCO"], return_std=True)
    both = reg.predict(np.array(["CCCCO", "C"]))
    assert alone.shape == std.shape == (1,) and std[0] > 0
    np.testing.assert_allclose(both[0], alone[0], rtol=1e-9)
    with pytest.raises(ValueError, match="cannot be read"): reg.predict(["nonsense"])
    with pytest.raises(ValueError, match="made by from_smiles"):
        GraphRegressor(depths=(1,)).fit(list(as_domain([chain(4), chain(5)])), [1., 2.]).predict(
            ["CC"])


def chain(n):
    g = nx.path_graph(n)
    nx.set_node_attributes(g, {v: [1., v, 0.5] for v in g}, "x")
    return g


@pytest.mark.filterwarnings("ignore:.*have a twin")
def test_classes_that_only_some_folds_have():
    letters = ["ab", "ba", "aab", "abb", "aa", "bb", "aba", "bab", "abc", "aaab"]
    graphs = []
    for w in letters:
        g = nx.path_graph(len(w))
        nx.set_node_attributes(g, dict(enumerate(w)), "x")
        graphs.append(g)
    y = [w.count("a") - w.count("b") for w in letters]
    with pytest.raises(ValueError, match="expected node classes among"):
        GraphRegressor(depths=(1,), hops=(1,)).fit(graphs[:8], y[:8]).predict(graphs[8:])
    named = GraphRegressor(depths=(1,), hops=(1,), labels=["a", "b", "c"])
    assert np.isfinite(named.fit(graphs[:8], y[:8]).predict(graphs[8:])).all()


@pytest.mark.filterwarnings("ignore:.*have a twin")
def test_whole_numbers_are_read_as_they_were_learned():
    graphs = [nx.path_graph(n) for n in (3, 4, 5, 6)]
    for g in graphs: nx.set_node_attributes(g, {v: float(v + 1)/2 for v in g}, "x")
    other = nx.path_graph(3)
    nx.set_node_attributes(other, {v: v + 1 for v in other}, "x")
    reg = GraphRegressor(depths=(1,), hops=(1,), labels="number").fit(graphs, [1., 2., 3., 4.])
    assert reg.predict([other]).shape == (1,)


@pytest.mark.parametrize("bad", [[], "CCO", 3, None, [1.5, 2.5], {"a": 1}, np.ones((3, 2))])
def test_what_is_no_list_of_graphs_is_refused(bad):
    with pytest.raises(ValueError, match="expected a GraphDomain, or a list of networkx graphs"):
        as_domain(bad)


def test_units_do_not_matter(world):
    _, X, y = world
    small = GraphRegressor(depths=(2,), hops=(1,)).fit(X[:20], y[:20])
    large = GraphRegressor(depths=(2,), hops=(1,)).fit(X[:20], 1e6*y[:20] - 3e5)
    for k, shift in ((0, 3e5), (1, 0.)):
        a, b = (r.predict(X[20:], return_std=True)[k] for r in (small, large))
        np.testing.assert_allclose((b + shift)/1e6, a, rtol=1e-6, atol=1e-9)


def test_settings_reach_the_model(world):
    graphs, X, y = world
    reg = GraphRegressor(depths=3, hops=0, noise_std=0.2).fit(graphs, y)
    assert reg.surrogate_.facts["prior"] == "GNTK, depth 3, 0 hops"
    assert reg.surrogate_.facts["noise_std"] == pytest.approx(0.2)
    quiet = GraphRegressor(depths=(2,), hops=(1,))
    sure = quiet.fit(graphs, y, noise=np.full(30, 1e-3)).surrogate_.mean
    np.testing.assert_allclose(sure, y, atol=0.05*y.std())
    bare = GraphDomain(X.h, X.sizes)      # does not know its edges: the hops stay what they are
    assert GraphRegressor().fit(bare, y).surrogate_.facts["prior"].endswith(("1", "2", "3"))


def test_scikit_learn_tools(world):
    graphs, X, y = world
    reg, noise = GraphRegressor(depths=(2,), hops=(1,)), np.full(30, 0.1)
    out = cross_validate(reg, graphs, y, cv=3, params={"noise": noise}, return_estimator=True,
                         scoring=("r2", "neg_root_mean_squared_error"))
    assert np.isfinite(out["test_r2"]).all() and len(out["estimator"]) == 3
    assert cross_val_predict(reg, graphs, y, cv=3).shape == (30,)
    assert np.isfinite(make_pipeline(reg).fit(graphs, y).score(graphs, y))
    tags = get_tags(reg)
    assert tags.estimator_type == "regressor" and not tags.input_tags.two_d_array
    assert eval(repr(reg)).get_params() == reg.get_params()
    fitted = pickle.loads(pickle.dumps(reg.fit(graphs, y)))
    np.testing.assert_allclose(fitted.predict(X), reg.predict(X), rtol=1e-12)
    weights = np.r_[np.ones(29), 0]
    assert reg.score(X, y, weights) == pytest.approx(r2_score(y[:29], reg.predict(X[:29])))


def test_scikit_learn_is_not_needed():
    code = ("import sys; sys.modules['sklearn'] = sys.modules['botorch'] = None\n"
            "import numpy as np\n"
            "from gnn_bandits.bridges import GraphRegressor, as_botorch_model\n"
            "from gnn_bandits.graphs import GraphDomain\n"
            "X = GraphDomain.erdos_renyi(8, 4, 0.5, 3, np.random.default_rng(0))\n"
            "r = GraphRegressor().fit(X, np.arange(8.))\n"
            "r.predict(X), r.score(X, np.arange(8.))\n"
            "try: as_botorch_model(r.surrogate_)\n"
            "except ImportError as e: print(e)\n")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "pip install 'gnn_bandits[botorch]'" in run.stdout


# BoTorch

def posteriors(X):
    "One posterior of each kind, and a surrogate, after some values"
    K, phi = Prior.gntk(X).standard, Prior.features(X, degree=3, dtype=torch.float64).standard
    arms, values = [4, 9, 4, 17, 22, 11], [0.3, -1.2, 0.5, 0.8, 0.1, 1.5]
    kinds = dict(matrix=K.start(0.05), rows=Prior.gntk(X, form="rows").standard.start(0.05),
                 features=phi.start(0.05), fitted=FittedBelief(K))
    for post in kinds.values(): post.observe(arms, values)
    s = Surrogate(candidate_priors(X, depths=(2,), hops=(1,))).learn(arms, values)
    return kinds | dict(surrogate=s, nothing=K.start(0.05))


KINDS = ("matrix", "rows", "features", "fitted", "surrogate", "nothing")


def latent(belief):
    belief = whole(getattr(belief, "latent", belief))
    return getattr(belief, "inner", belief)


@pytest.fixture(scope="module")
def kinds(world):
    return posteriors(world[1])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_covariance(kinds, kind):
    post = latent(kinds[kind])
    C = post.covariances(range(30))
    assert_close(C, C.mT, rtol=0, atol=1e-10)
    assert_close(C.diagonal(), post.std.square(), rtol=0, atol=1e-10)
    assert torch.linalg.eigvalsh((C + C.mT)/2).min() > -1e-9
    rng = np.random.default_rng(0)
    for shape in ((5, 3), (2, 4, 2), (1, 30), (30, 1), (7,)):
        arms = torch.from_numpy(rng.integers(30, size=shape))
        mean, cov = joint_posterior(post, arms)
        assert_close(mean, post.mean[arms])
        assert_close(cov, C[arms[..., :, None], arms[..., None, :]], rtol=0, atol=1e-9)


def test_few_rows_are_computed_for_many_candidates(kinds):
    post, asked = latent(kinds["rows"]).copy(), []
    rows = post.rows
    post.rows = lambda arms: asked.extend(arms) or rows(arms)
    every = torch.stack([torch.arange(30), torch.full((30,), 3), torch.full((30,), 8)], 1)
    joint_posterior(post, every)
    assert len(set(map(int, asked))) <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_the_posterior(kinds, kind):
    pytest.importorskip("botorch")
    post, model = latent(kinds[kind]), as_botorch_model(kinds[kind])
    arms = [3, 4, 21, 9]
    got = model.posterior(model.choices[arms])
    assert_close(got.mean[:, 0], post.mean[arms])
    assert_close(got.variance[:, 0], post.std[arms].square(), rtol=1e-9, atol=1e-9)
    assert_close(got.distribution.covariance_matrix, post.covariances(arms)[:, arms], rtol=0,
                 atol=1e-9)
    assert model.num_outputs == 1 and model.batch_shape == ()
    assert got.rsample(torch.Size([7])).shape == (7, 4, 1)
    for dtype in (torch.float32, torch.int64):
        assert_close(model.posterior(model.choices[arms].to(dtype)).mean, got.mean)
    assert_close(float(model.likelihood.noise), post.lam)
    known = post.arms if len(post.arms) else torch.arange(30)
    assert_close(model.best_f, post.mean[known].max())
    assert model.train_inputs[0][:, 0].tolist() == post.arms.tolist()


@pytest.mark.parametrize("kind", KINDS[:5])
def test_fantasies(kinds, kind):
    pytest.importorskip("botorch")
    post, model = latent(kinds[kind]), as_botorch_model(kinds[kind])
    X = model.choices[torch.tensor([[5, 4], [6, 7]])]
    Y = torch.tensor([[[0.5], [-1.]], [[0.], [2.]]])
    two = model.condition_on_observations(X, Y.double())
    one = model.condition_on_observations(X[:, :1], Y[:, :1].double())
    same = one.condition_on_observations(X[:, 1:], Y[:, 1:].double())
    assert two.batch_shape == same.batch_shape == (2,)
    for told in (two, same):
        got = told.posterior(model.choices[:6])
        for k in range(2):
            after = post.copy().observe(X[k, :, 0].long(), Y[k, :, 0].double())
            assert_close(got.mean[k, :, 0], after.mean[:6], rtol=0, atol=1e-8)
            assert_close(got.distribution.covariance_matrix[k], after.covariances(range(6))[:, :6],
                         rtol=0, atol=1e-8)
    # a value with a quarter of the noise counts like four
    sure = model.condition_on_observations(X[0], Y[0].double(),
                                           noise=torch.full((2, 1), post.lam/4).double())
    after = post.copy().observe(X[0, :, 0].long(), Y[0, :, 0].double(), [4, 4])
    assert_close(sure.posterior(model.choices).mean[:, 0], after.mean, rtol=0, atol=1e-6)


def test_the_model_does_not_change_with_what_it_came_from(world):
    pytest.importorskip("botorch")
    s = Surrogate(candidate_priors(world[1], depths=(2,))).learn([0, 1, 2], [1., 2., 3.])
    post = Prior.gntk(world[1]).start(0.1).observe([0, 1], [1., 2.])
    for belief, more in ((s, s.learn), (post, post.observe)):
        model = as_botorch_model(belief)
        before = model.posterior(model.choices).mean
        more([3, 4], [10., -10.])
        assert torch.equal(model.posterior(model.choices).mean, before)


@pytest.mark.parametrize("pool", ["columns", "directed"])
def test_columns_and_directions_go_through_botorch(world, pool, tmp_path):
    "an acquisition of BoTorch sees what a campaign predicts"
    pytest.importorskip("botorch")
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf_discrete
    graphs, X, y = world
    if pool == "columns":
        X = X.with_columns({"heat": np.arange(30)//3, "solvent": ["water", "THF", "DMF"]*10})
    else: X = GraphDomain.from_networkx([nx.dfs_tree(g, 0) for g in graphs], features=None)
    campaign = Campaign.create(tmp_path/"c", X)
    campaign.tell(range(8), y[:8])
    model = as_botorch_model(campaign.surrogate())
    assert_close(model.posterior(model.choices[:, None]).mean[:, 0, 0],
                 latent(campaign.surrogate()).mean, rtol=0, atol=1e-9)
    best, value = optimize_acqf_discrete(LogExpectedImprovement(model, model.best_f), 1,
                                         model.choices)
    assert 0 <= int(best) < 30 and torch.isfinite(value)
    campaign.close()


def test_condition_broadcasts():
    A = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, cov = torch.zeros(5, dtype=torch.float64), A @ A.T
    values = torch.arange(12.).view(6, 2).double()
    m, C = condition(mean, cov, values, torch.full((2,), 0.3).double())
    G = torch.linalg.solve(cov[3:, 3:] + 0.3*torch.eye(2), cov[3:, :3])
    assert_close(m, values @ G)
    assert_close(C, cov[:3, :3] - cov[:3, 3:] @ G)


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 2), torch.tensor([[30.]]),
                                 torch.tensor([[-1.]]), torch.tensor([[0.5]]),
                                 torch.tensor([[float("nan")]])])
def test_what_names_no_candidate_is_refused(bad):
    with pytest.raises(ValueError, match="expected candidate numbers"): candidate_numbers(bad, 30)


def acquisitions(model):
    "Functions of BoTorch that optimise over a list of choices, and the sizes of their batches"
    a = pytest.importorskip("botorch.acquisition")
    entropy = pytest.importorskip("botorch.acquisition.max_value_entropy_search")
    active = pytest.importorskip("botorch.acquisition.active_learning")
    sampling = pytest.importorskip("botorch.sampling")
    S = sampling.SobolQMCNormalSampler(torch.Size([64]), seed=0)
    X, best, rest = model.train_inputs[0], model.best_f, model.choices
    yield a.LogExpectedImprovement(model, best), 1
    yield a.ProbabilityOfImprovement(model, best), 1
    yield a.UpperConfidenceBound(model, 4.), 1
    yield a.PosteriorMean(model), 1
    yield a.PosteriorStandardDeviation(model), 1
    yield a.qLogExpectedImprovement(model, best, sampler=S), 3
    yield a.qLogNoisyExpectedImprovement(model, X, sampler=S), 3
    yield a.qLogNoisyExpectedImprovement(model, X, sampler=S, X_pending=rest[[3, 5]]), 2
    yield a.qUpperConfidenceBound(model, 4., sampler=S), 3
    yield a.qProbabilityOfImprovement(model, best, sampler=S), 2
    yield a.qSimpleRegret(model, sampler=S), 2
    yield active.qNegIntegratedPosteriorVariance(model, rest), 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield entropy.qMaxValueEntropy(model, rest), 2
        yield entropy.qLowerBoundMaxValueEntropy(model, rest), 2


@pytest.mark.filterwarnings("ignore::linear_operator.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("kind", ("matrix", "surrogate", "features"))
def test_acquisition_functions_run(kinds, kind):
    pytest.importorskip("botorch")
    from botorch.optim import optimize_acqf_discrete
    model = as_botorch_model(kinds[kind])
    for function, q in acquisitions(model):
        batch, value = optimize_acqf_discrete(function, q, model.choices,
                                              X_avoid=model.train_inputs[0])
        name = type(function).__name__
        assert batch.shape == (q, 1) and torch.isfinite(value).all(), name
        assert len(set(batch[:, 0].tolist())) == q, name
        assert not set(batch[:, 0].tolist()) & set(model.train_inputs[0][:, 0].tolist()), name


def test_the_older_expected_improvement_is_the_closed_form(kinds):
    pytest.importorskip("botorch")
    from botorch.acquisition import LogExpectedImprovement, qExpectedImprovement
    from botorch.exceptions.warnings import NumericsWarning
    from botorch.sampling import IIDNormalSampler
    model = as_botorch_model(kinds["matrix"])
    with pytest.warns(NumericsWarning):
        mc = qExpectedImprovement(model, model.best_f, IIDNormalSampler(torch.Size([2048]), seed=1))
    each = model.choices[:, None]
    exact = LogExpectedImprovement(model, model.best_f)(each).exp()
    std = model.posterior(each).variance[:, 0, 0].sqrt()
    assert ((mc(each) - exact).abs() <= 5*std/2048**0.5).all()


def test_the_largest_of_fantasies_is_the_knowledge_gradient(kinds):
    pytest.importorskip("botorch")
    from botorch.sampling import SobolQMCNormalSampler
    model = as_botorch_model(kinds["matrix"])
    sampler = SobolQMCNormalSampler(torch.Size([256]), seed=0)
    after = model.fantasize(model.choices[:, None], sampler)           # (256, 30) models
    assert after.batch_shape == (256, 30)
    means = after.posterior(model.choices).mean[..., 0]                # (256, 30, 30)
    value = means.amax(-1).mean(0) - model.posterior(model.choices).mean.max()
    assert value.shape == (30,) and (value > -0.02).all() and value.max() > 0


def test_a_batch_for_a_campaign_by_botorch(tmp_path, world):
    pytest.importorskip("botorch")
    from botorch.acquisition import qLogNoisyExpectedImprovement
    from botorch.optim import optimize_acqf_discrete
    from botorch.sampling import SobolQMCNormalSampler
    _, X, y = world
    with Campaign.create(tmp_path/"c", X, maximize=False) as c:
        c.tell(range(8), y[:8])
        model = as_botorch_model(c.surrogate())
        assert int(model.posterior(model.choices[:8]).mean.argmax()) == c.best().arm[0]
        seen, sampler = model.train_inputs[0], SobolQMCNormalSampler(torch.Size([64]), seed=0)
        function = qLogNoisyExpectedImprovement(model, seen, sampler)
        batch, _ = optimize_acqf_discrete(function, 2, model.choices, X_avoid=seen)
        c.tell(batch[:, 0].long(), y[batch[:, 0].long()])
        assert len(c.observations) == 10


def test_what_is_no_posterior_is_refused(world):
    for bad in (world[1], None, Prior.gntk(world[1])):
        with pytest.raises(ValueError, match="expected a Surrogate or an exact posterior"):
            as_botorch_model(bad)


def test_botorch_is_asked_for_politely(monkeypatch, kinds):
    bridges.pool_model_class.cache_clear()
    monkeypatch.setitem(sys.modules, "botorch.models.model", None)
    with pytest.raises(ImportError, match=r"pip install 'gnn_bandits\[botorch\]'"):
        as_botorch_model(kinds["matrix"])
    bridges.pool_model_class.cache_clear()
