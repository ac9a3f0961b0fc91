"What would bore a reader of nbs/12_bandits.ipynb and nbs/46_algorithms.ipynb."
import json, math
from dataclasses import asdict, fields

import numpy as np
import pytest
import torch

from gnn_bandits import bandits
from gnn_bandits.bandits import (ALGORITHMS, Algorithm, Options, Prior, make_algorithm, restore,
                                 run_bandit, save, step)
from gnn_bandits.core import counter_rng, pack_arrays, unpack_arrays
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.kernels import GNTK, Vector
from gnn_bandits.paper.algorithms import (MODELS, PaperAlgorithm, PaperOptions, episodes,
                                          paper_options, regret_bound)
from gnn_bandits.policies import plausible
from gnn_bandits.priors import LIMITS
from gnn_bandits.rewards import Environment, sample_reward

gen = np.random.default_rng
DOM = GraphDomain.erdos_renyi(25, 5, 0.4, 3, gen(0))
F = sample_reward(DOM, gen(1))
PAPER = dict(m=32, preset="paper", random_pulls=4, final_from=8, train_always_until=6,
             train_every=4, J=40)

def env(f=F, **o): return Environment(DOM, f, rng=gen(2), **o)
def make(name, model="linearized", **o):
    return make_algorithm(name, DOM, model, rng=gen(3), **PAPER | o)

@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_has_its_columns_and_repeats_itself(name, model):
    h, again = (run_bandit(make(name, model), env(), 12) for _ in range(2))
    for k, v in h.columns().items():
        whole = k in ("arms", "active", "steps")
        assert v.shape == (12,) and v.dtype == (np.int64 if whole else np.float64)
        np.testing.assert_array_equal(v, again.columns()[k])
    gaps = env().gaps.numpy()
    np.testing.assert_allclose(h.regret, gaps[h.arms], atol=1e-15)
    best = [h.arms[np.argmax(h.rewards[:t + 1])] for t in range(12)]
    np.testing.assert_allclose(h.best_observed_regret, gaps[best], atol=1e-15)
    assert (h.inference_regret >= 0).all()
    assert np.isin(h.inference_regret.round(12), gaps.round(12)).all()
    assert (h.active >= 1).all() and (h.std > 0).all()

def test_algorithms_made_from_equal_generators_share_arms_while_exploring_and_the_network():
    a, b = make("GNN-PE"), make("GNN-UCB")
    assert torch.equal(a.prior.K, b.prior.K)
    ha, hb = (run_bandit(x, env(), 4) for x in (a, b))
    np.testing.assert_array_equal(ha.arms, hb.arms)
    np.testing.assert_array_equal(ha.rewards, hb.rewards)

def test_a_shared_prior_changes_nothing():
    own = make("GNN-PE")
    shared = make("GNN-PE", prior=own.prior)
    np.testing.assert_array_equal(run_bandit(own, env(), 15).arms,
                                  run_bandit(shared, env(), 15).arms)

def test_graph_algorithms_do_not_see_the_order_of_nodes_and_vector_algorithms_do():
    assert (DOM.sizes == DOM.N).all()
    shuffled = GraphDomain(DOM.h[:, torch.from_numpy(gen(5).permutation(DOM.N))], DOM.sizes)
    torch.testing.assert_close(GNTK().gram(DOM), GNTK().gram(shuffled))
    mixed = GraphDomain(torch.stack([h[torch.from_numpy(gen(i).permutation(DOM.N))]
                                     for i, h in enumerate(DOM.h)]), DOM.sizes)
    torch.testing.assert_close(GNTK().gram(DOM), GNTK().gram(mixed))
    assert not torch.allclose(Vector().gram(DOM), Vector().gram(mixed), atol=1e-3)
    runs = [run_bandit(make_algorithm("GNN-UCB", d, "gntk", rng=gen(3), random_pulls=4),
                       Environment(d, F, rng=gen(2)), 20).arms for d in (DOM, mixed)]
    np.testing.assert_array_equal(*runs)

def test_plausible_is_the_definition():
    g = gen(7)
    for _ in range(50):
        mean, reach = torch.from_numpy(g.standard_normal(9)), torch.from_numpy(g.random(9))
        pool = torch.from_numpy(g.random(9) < 0.7)
        if not pool.any(): continue
        low = max(float(mean[i] - reach[i]) for i in range(9) if pool[i])
        want = [bool(pool[i]) and float(mean[i] + reach[i]) + 0.2 >= low for i in range(9)]
        assert plausible(mean, reach, pool, 0.1).tolist() == want

def test_within_an_episode_the_arms_do_not_depend_on_the_rewards():
    theory = dict(preset="theory", B=3., sigma=0.05, lam=0.01, horizon=63, random_pulls=0,
                  final_from=0)
    a, b = make("GNN-PE", "gntk", **theory), make("GNN-PE", "gntk", **theory)
    for alg, e in (a, env(noise_std=0.05)), (b, env(noise_std=0.05)):
        for _ in range(31): alg.tell(arm := alg.ask(), e.pull(arm))
    assert a.active.equal(b.active) and a.episode == 5 and a.belief.t == 0
    arms = []
    for alg, shift in (a, 0.), (b, 100.):
        arms.append([])
        for _ in range(31): arms[-1].append(alg.ask()); alg.tell(arms[-1][-1], shift)
    assert arms[0] == arms[1]

def test_an_arm_that_left_may_return_before_and_not_after_the_intersection():
    for final, back in (100, True), (None, True), (1, False):
        alg = make("GNN-PE", "gntk", random_pulls=0, final_from=final, beta=0.5, lam=1e-4)
        for _ in range(3): alg.tell(0, 1.)
        out = ~alg.active
        assert out.any()
        for _ in range(30): alg.tell(0, -5.)
        assert bool((alg.active & out).any()) == back

def test_training_follows_the_schedule():
    h = run_bandit(make("GNN-UCB", "linearized"), env(), 20)
    due = [t - 1 for t in range(1, 21) if t <= 6 or (t - 6) % 4 == 0]
    assert np.flatnonzero(h.steps > 0).tolist() == due
    assert (np.isfinite(h.loss) == (h.steps > 0)).all()

def test_greedy_ucb_pulls_the_largest_mean():
    alg, e = make("GNN-UCB", "gntk", beta=0., random_pulls=1), env()
    for _ in range(10):
        if alg.t >= 1: assert alg.ask() == int(alg.mean.argmax())
        alg.tell(a := alg.ask(), e.pull(a))

def test_random_is_uniform():
    arms = [int(make("Random", "gntk").pick(counter_rng((5, 6), t, 0))) for t in range(5)]
    draws = np.array([counter_rng((5, 6), t, 0).integers(25) for t in range(5000)])
    assert arms == draws[:5].tolist()
    chi2 = ((np.bincount(draws, minlength=25) - 200)**2/200).sum()
    assert abs(chi2 - 24) < 5*math.sqrt(48)

def test_purposes_and_pulls_have_streams_of_their_own():
    seen = {counter_rng((1, 2), t, p).integers(2**63) for t in range(50) for p in (0, 1)}
    assert len(seen) == 100

def test_options_survive_json():
    for o in (paper_options("GNN-PE", preset="theory", horizon=100), Options(lam=0.1)):
        assert type(o)(**json.loads(json.dumps(asdict(o)))) == o

@pytest.mark.parametrize("bad", [dict(lam=0), dict(lam=math.nan), dict(beta=-1), dict(m=0),
                                 dict(L=0), dict(random_pulls=-1), dict(train_every=0), dict(J=0),
                                 dict(delta=1.), dict(delta=0.), dict(uncertainty="x"),
                                 dict(ridge="x"), dict(fit="x"), dict(stopping="x"), dict(adam="x"),
                                 dict(episodes="x"), dict(horizon=0), dict(beta=None),
                                 dict(epsilon=-1), dict(sigma=math.inf), dict(m=2.5),
                                 dict(final_from=-1), dict(final_from=1.5), dict(random_repeats=3),
                                 dict(lam=None, uncertainty="diagonal"),
                                 dict(lam=None, fit="steps")])
def test_bad_options_are_refused(bad):
    with pytest.raises(ValueError): paper_options("GNN-PE", **{"lam": 0.1} | bad)
    if bad.keys() <= {f.name for f in fields(Options)}:
        with pytest.raises(ValueError): Options(**{"lam": 0.1} | bad)

def test_bad_calls_are_refused_before_anything_happens():
    alg = make("GNN-PE", "gntk")
    other = GraphDomain.erdos_renyi(7, 5, 0.4, 3, gen(0))
    for call in (lambda: run_bandit(alg, env(), 0), lambda: run_bandit(alg, env(), 2.5),
                 lambda: run_bandit(alg, Environment(other, sample_reward(other, gen(1)),
                                                     rng=gen(2)), 3),
                 lambda: make("XX"), lambda: make("GNN-PE", "xx"),
                 lambda: make("GNN-PE", nothing=1), lambda: make("GNN-PE", preset="xx"),
                 lambda: make_algorithm("GNN-PE", DOM, rng=0),
                 lambda: make("NN-PE", prior=make("GNN-PE").prior),
                 lambda: make("GNN-PE", "linearized", prior=make("GNN-PE", "gntk").prior),
                 lambda: alg.tell(25, 0.), lambda: alg.tell(0.5, 0.), lambda: alg.tell(0, math.inf),
                 lambda: alg.tell([0, 1], [1.]), lambda: alg.tell([0, 99], [1., 1.]),
                 lambda: make_algorithm("GNN-PE", rng=gen(3)),
                 lambda: make_algorithm("GNN-PE", DOM, rng=gen(3), prior=3),
                 lambda: make_algorithm("GNN-PE", other, rng=gen(3), prior=Prior.gntk(DOM))):
        with pytest.raises(ValueError): call()
    assert alg.t == alg.belief.t == 0

def test_a_checkpoint_is_refused_by_another_run_and_left_alone(tmp_path):
    alg, e, rows, best = make("GNN-PE"), env(), [], None
    for _ in range(6): row, best = step(alg, e, best); rows.append(row)
    path = save(alg, e, rows, tmp_path/"run.npz")
    before = path.read_bytes()
    for other, world in ((make("GNN-UCB"), env()), (make("GNN-PE", lam=0.5), env()),
                         (make("GNN-PE", "gntk"), env()), (make("GNN-PE"), env(F + 1))):
        with pytest.raises(ValueError, match="cannot go on"):
            run_bandit(other, world, 12, checkpoint=path)
        assert other.t == 0 and path.read_bytes() == before
    with pytest.raises(ValueError, match="more than"):
        run_bandit(make("GNN-PE"), env(), 3, checkpoint=path)
    path.write_bytes(before[:200])
    with pytest.raises(ValueError, match="cannot go on"):
        run_bandit(make("GNN-PE"), env(), 12, checkpoint=path)

def test_ctrl_c_leaves_a_checkpoint_from_which_the_run_goes_on(tmp_path):
    path, pulls = tmp_path/"run.npz", []
    class Interrupted(Environment):
        def pull(self, arm):
            if len(pulls) == 7: raise KeyboardInterrupt
            pulls.append(arm)
            return super().pull(arm)
    with pytest.raises(KeyboardInterrupt):
        run_bandit(make("GNN-TS"), Interrupted(DOM, F, rng=gen(2)), 15, checkpoint=path)
    np.testing.assert_array_equal(run_bandit(make("GNN-TS"), env(), 15, checkpoint=path).arms,
                                  run_bandit(make("GNN-TS"), env(), 15).arms)

def test_savings_now_and_then_do_not_change_the_run(tmp_path):
    h = run_bandit(make("GNN-TS"), env(), 15, checkpoint=tmp_path/"a.npz", every=0.)
    np.testing.assert_array_equal(h.rewards, run_bandit(make("GNN-TS"), env(), 15).rewards)

def test_the_bound_grows_with_everything_it_should():
    base = dict(T=100, gain=5., beta=3., lam=0.1, B=2.)
    at = regret_bound(**base)
    for change in (dict(T=200), dict(gain=6.), dict(beta=4.), dict(lam=0.2), dict(B=3.),
                   dict(slack=0.1)):
        assert regret_bound(**base | change) > at
    with pytest.raises(ValueError): regret_bound(0, 1., 1., 1., 1.)

def test_elimination_finds_the_optimum_on_an_easy_problem():
    f = torch.zeros(25, dtype=torch.float64); f[13] = 1.
    for name in ("GNN-PE", "GNN-UCB", "GNN-TS", "NN-PE", "NN-UCB"):
        h = run_bandit(make(name, "gntk", lam=1e-4, beta=2.), env(f), 60)
        assert (h.inference_regret[-10:] == 0).all(), name

def test_the_theorems_multiplier_shares_the_failure_among_episodes_and_arms():
    given = dict(preset="theory", B=3., sigma=0.05, lam=0.01, delta=0.2, horizon=40, random_pulls=0,
                 final_from=0)
    for model, factor in ("gntk", 1.), ("linearized", math.sqrt(2)):
        alg = make("GNN-PE", model, **given | dict(fit="limit"))
        # 40 pulls are six episodes
        want = factor*3 + 0.05/0.1*math.sqrt(2*math.log(2*25/(0.2/(3*6))))
        assert math.isclose(alg.beta, want, rel_tol=1e-12)
    assert [episodes(T) for T in (1, 2, 3, 4, 40, 512)] == [1, 2, 2, 3, 6, 10]

def test_what_is_taken_up_again_has_the_same_arms_in_the_race(tmp_path):
    theory = dict(preset="theory", B=1., sigma=0.01, lam=1e-4, horizon=63, random_pulls=0,
                  final_from=0, epsilon=0.)
    for o in (dict(beta=0.5, lam=1e-4, random_pulls=0, final_from=1), theory):
        alg, e, rows, best = make("GNN-PE", "gntk", **o), env(), [], None
        while alg.active.all() or alg.t < 35: row, best = step(alg, e, best); rows.append(row)
        save(alg, e, rows, tmp_path/"run.npz")
        again = make("GNN-PE", "gntk", **o)
        restore(again, env(), tmp_path/"run.npz")
        assert torch.equal(again.active, alg.active) and torch.equal(again.mean, alg.mean)
        assert torch.equal(again.std, alg.std)

def test_thompson_draws_have_the_posteriors_spread_for_arms_pulled_often():
    alg = make("GNN-TS", "gntk", lam=0.2)
    for _ in range(9): alg.tell(3, 0.5)
    draws = torch.stack([alg.deviation(counter_rng((1, 2), t, 0)) for t in range(2000)])
    assert abs(float(draws[:, 3].std()/alg.std[3]) - 1) < 5/math.sqrt(2*2000)

def test_units_of_the_widths_and_of_the_ridge():
    exact, diagonal = (make("GNN-UCB", "linearized", uncertainty=w) for w in ("exact", "diagonal"))
    # before the first pull both are the prior's
    torch.testing.assert_close(exact.std, diagonal.std, rtol=1e-4, atol=0)
    ends = [make("GNN-UCB", "linearized", fit=fit, J=5000, lam=0.3, train_always_until=50)
            for fit in ("limit", "steps")]
    for alg in ends:
        for a, y in ((1, 0.4), (1, 0.2), (7, -0.3), (9, 0.1), (7, -0.1)): alg.tell(a, y)
    torch.testing.assert_close(ends[0].mean, ends[1].mean, rtol=1e-6, atol=1e-8)

def test_thompson_with_graphs_that_repeat():
    few = GraphDomain.erdos_renyi(20, 20, 0.2, 10, gen(0))
    twins = few[torch.from_numpy(gen(1).integers(20, size=200))]
    f = sample_reward(twins, gen(2))
    for model in ("linearized", "gntk"):
        for preset in ("default", "paper"):
            alg = make_algorithm("GNN-TS", twins, model, rng=gen(3), preset=preset, m=64,
                                 random_pulls=5)
            h = run_bandit(alg, Environment(twins, f, rng=gen(4)), 50)
            assert np.isfinite(h.predicted).all() and h.regret[-10:].mean() < h.regret[:5].mean()

@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n != "Random"])
@pytest.mark.parametrize("kind", ["kernel", "gntk", "features", "network"])
def test_every_policy_over_every_prior(name, kind):
    inputs = ALGORITHMS[name][0]
    if kind == "features" and inputs == "vector": return
    prior = dict(kernel=lambda: Prior.kernel(LIMITS[inputs]().gram(DOM)),
                 gntk=lambda: Prior.gntk(DOM, inputs=inputs),
                 features=lambda: Prior.features(DOM),
                 network=lambda: Prior.network(DOM, 64, inputs=inputs, rng=gen(5)))[kind]()
    h, again = (run_bandit(make_algorithm(name, prior=prior, rng=gen(3), m=64), env(), 25)
                for _ in range(2))
    np.testing.assert_array_equal(h.arms, again.arms)
    assert len(set(h.arms[:5])) == 5 and h.to_dataframe().shape == (25, 11)

def test_forms_of_telling():
    told = lambda *pairs: [make("GNN-UCB", "gntk").tell(*p).mean for p in pairs]
    for m in told((1, 2.), ([1], [2.]), (np.int64(1), np.float32(2)),
                  (torch.tensor(1), torch.tensor(2., requires_grad=True))):
        assert torch.equal(m, told((1, 2.))[0])
    both = make("GNN-UCB", "gntk").tell([1, 4], [2., 3.])
    assert torch.equal(both.mean, make("GNN-UCB", "gntk").tell(1, 2.).tell(4, 3.).mean)
    assert both.arms == [1, 4]

@pytest.mark.parametrize("model", MODELS)
def test_a_tell_that_fails_changes_nothing(model, monkeypatch):
    for o in ({}, dict(preset="default", train_always_until=100, random_pulls=2, final_from=None)):
        o = {k: v for k, v in (PAPER | o).items() if k != "final_from" or v is not None}
        alg, clean = (make_algorithm("GNN-PE", DOM, model, rng=gen(3), **o) for _ in range(2))
        for a, y in ((1, 0.5), (7, -0.2), (1, 0.4)): alg.tell(a, y), clean.tell(a, y)
        for error in (KeyboardInterrupt, RuntimeError):
            with monkeypatch.context() as m:
                m.setattr(bandits.Algorithm, "_race", lambda *_: (_ for _ in ()).throw(error()))
                with pytest.raises(error): alg.tell([2, 3], [9., 9.])
            assert alg.t == 3 and alg.arms == clean.arms and alg.ask() == clean.ask()
            assert torch.equal(alg.mean, clean.mean) and torch.equal(alg.std, clean.std)
            assert torch.equal(alg.active, clean.active)
        assert torch.equal(alg.tell(2, 1.).mean, clean.tell(2, 1.).mean)

def test_an_inconsistent_checkpoint_of_the_old_form_is_refused(tmp_path):
    import io
    path, buffer = tmp_path/"old.npz", io.BytesIO()
    np.savez(buffer, about=np.frombuffer(b'{"version": 1}', np.uint8), told=np.zeros(5),
             arms=np.zeros(4))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match="delete the file to start the run again"):
        run_bandit(make("GNN-PE"), env(), 12, checkpoint=path)
    alg, e, rows, best = make("GNN-PE"), env(), [], None
    for _ in range(6): row, best = step(alg, e, best); rows.append(row)
    meta, arrays = unpack_arrays(save(alg, e, rows, path))
    path.write_bytes(pack_arrays(meta, **arrays | {"rewards": np.append(arrays["rewards"], 1.)}))
    with pytest.raises(ValueError, match="do not fit together"):
        run_bandit(make("GNN-PE"), env(), 12, checkpoint=path)

def test_large_pools_are_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr("gnn_bandits.core.available_bytes", lambda: 2**26)
    big = GraphDomain.erdos_renyi(3000, 3, 0.3, 3, gen(0))
    with pytest.raises(ValueError, match="Prior.features"):
        make_algorithm("GNN-UCB", big, rng=gen(1))


def test_random_pulls_do_not_repeat_unless_allowed():
    few = DOM[:6]
    for repeats, distinct in (False, {6}), (True, {1, 2, 3, 4, 5}):
        alg = make_algorithm("GNN-UCB", few, rng=gen(8), random_pulls=6, random_repeats=repeats)
        for k in range(6): alg.tell(alg.ask(), float(k))
        assert len(set(alg.arms)) in distinct


def test_expected_improvement_is_the_formula():
    from scipy.stats import norm
    for seed in range(20):
        alg, rng = make("GNN-EI", "gntk", random_pulls=0, lam=0.05), gen([6, seed])
        pulls = rng.integers(25, size=6)
        alg.tell(pulls, 2*rng.standard_normal(6))
        mean, std = alg.mean.numpy(), alg.std.numpy()
        z = (mean - mean[pulls].max())/std
        assert alg.ask() == int((std*(z*norm.cdf(z) + norm.pdf(z))).argmax())

def test_a_history_without_pulls():
    h = bandits.as_history([])
    assert len(h) == 0 and h.to_dataframe().shape == (0, 11) and h.arms.dtype == np.int64

def test_standard_forms_agree():
    "Centred over all graphs, the matrix and the rows have one standard form; features come close."
    everything = torch.arange(len(DOM))
    matrix = Prior.gntk(DOM).standard
    rows = Prior(GNTK(), DOM, "rows", everything)
    thin = Prior.features(DOM, 7, dtype=torch.float64).standard
    torch.testing.assert_close(rows.block(everything), matrix.K, rtol=0, atol=1e-12)
    torch.testing.assert_close(rows.diag, matrix.diag, rtol=0, atol=1e-12)
    torch.testing.assert_close(thin.block(everything), matrix.K, rtol=0, atol=0.05)
    for p in (matrix, rows, thin):
        assert math.isclose(float((p.block(everything) - 1).diagonal().mean()), 1, rel_tol=1e-9)

@pytest.mark.parametrize("d, most", [(2, 1), (2, 10**9), (4, 60), (10, 1024), (30, 500)])
def test_affordable_degree(d, most):
    from gnn_bandits.features import GNTKFeatures, affordable_degree
    degree = affordable_degree(d, most)
    assert 1 <= degree <= 8
    if degree > 1: assert len(GNTKFeatures(d, 2, degree)) <= most
    if degree < 8: assert len(GNTKFeatures(d, 2, degree + 1)) > most

def test_going_back_and_forth_changes_nothing():
    for o in (dict(lam=0.01), dict(lam=0.01, beta=1., episodes="doubling", random_pulls=0)):
        alg, clean = (make_algorithm("GNN-PE", DOM, rng=gen(3), **o) for _ in range(2))
        records, e = [], env()
        for _ in range(10):
            records.append(alg.state)
            alg.tell(arm := alg.ask(), e.pull(arm))
        told = list(zip(alg.arms, alg.rewards))
        for k in (7, 3, 0):
            alg.go_back(records[k])
            assert alg.t == k and alg.arms == [a for a, _ in told[:k]]
        for a, y in told: alg.tell(a, y), clean.tell(a, y)
        assert torch.equal(alg.mean, clean.mean) and torch.equal(alg.std, clean.std)
        assert torch.equal(alg.active, clean.active) and alg.ask() == clean.ask()

def test_the_paper_is_asked_only_for_what_is_the_papers():
    "Six options of the library, sixteen more of the paper; equal values play equal runs"
    own, theirs = ({f.name for f in fields(o)} for o in (Options, PaperOptions))
    assert own == {"L", "lam", "beta", "random_pulls", "random_repeats", "final_from"} < theirs
    for name in ALGORITHMS:
        for o in ({}, dict(lam=0.02, final_from=6)):
            ours = make_algorithm(name, DOM, rng=gen(3), **o)
            paper = make_algorithm(name, DOM, rng=gen(3), m=64, **o)
            assert type(ours) is Algorithm and type(paper) is PaperAlgorithm
            assert type(ours.options) is Options and repr(ours) == repr(paper)
            for h, again in zip(*(run_bandit(a, env(), 12).columns().values()
                                  for a in (ours, paper))):
                np.testing.assert_array_equal(h, again)

@pytest.mark.parametrize("o", [{}, dict(m=32, episodes="doubling", lam=0.01, random_pulls=0)])
def test_a_checkpoint_of_an_earlier_version_goes_on(o, tmp_path):
    "All options of the paper were in it, and the number of the episode"
    make_it = lambda **more: make_algorithm("GNN-PE", DOM, rng=gen(3), **o | more)
    alg, e, rows, best, path = make_it(), env(), [], None, tmp_path/"run.npz"
    for _ in range(9): row, best = step(alg, e, best); rows.append(row)
    meta, arrays = unpack_arrays(save(alg, e, rows, path))
    meta["options"] = asdict(PaperOptions(**meta["options"]))
    meta["episode"] = meta.pop("forgotten").bit_length()
    old = pack_arrays(meta, **arrays)
    path.write_bytes(old)
    h, whole = run_bandit(make_it(), env(), 20, checkpoint=path), run_bandit(make_it(), env(), 20)
    for k, v in whole.columns().items(): np.testing.assert_array_equal(h.columns()[k], v)
    path.write_bytes(old)
    for bad in (dict(beta=1.7), dict(B=2.), dict(L=3)):
        with pytest.raises(ValueError, match="other options"):
            run_bandit(make_it(**bad), env(), 20, checkpoint=path)
