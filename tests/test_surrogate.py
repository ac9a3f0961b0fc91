"What would bore a reader of the surrogate's page."
import json
import math

import numpy as np
import pytest
import torch
from scipy.special import stdtrit

import gnn_bandits.surrogate as module
from gnn_bandits.kernels import GNTK
from gnn_bandits.priors import Prior
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.posterior import FeaturePosterior, Posterior, RowsPosterior
from gnn_bandits.surrogate import (Measured, Surrogate, candidate_priors, inverse_power_transform,
                                   power_transform)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def pool():
    "Forty graphs that know their edges, and a value for each."
    rng = np.random.default_rng(0)
    A = [np.triu(rng.random((5, 5)) < 0.5, 1) for _ in range(40)]
    domain = GraphDomain.from_arrays([(a | a.T).astype(float) for a in A],
                                     list(rng.standard_normal((40, 5, 3))))
    f = torch.linalg.cholesky(Prior.gntk(domain).standard.K + 1e-8*torch.eye(40).double())
    return domain, 3 + 2*(f.numpy() @ rng.standard_normal(40))


def values(pool, t, seed=1, noise=0.2):
    rng = np.random.default_rng(seed)
    arms = rng.integers(40, size=t)
    return arms, pool[1][arms] + noise*rng.standard_normal(t)


def equal(a, b):
    return (torch.equal(a.mean, b.mean) and torch.equal(a.std, b.std) and a.facts == b.facts
            and torch.equal(a.latent.std, b.latent.std))


@pytest.mark.parametrize("form", ["matrix", "rows", "features"])
def test_grouping_changes_no_bit(pool, form, monkeypatch):
    "Blocks between two fits, too: fits are rare here and blocks are small."
    monkeypatch.setattr(module, "STEP", 4)
    monkeypatch.setattr(module, "fit_times", lambda t: min(t, 12) if t < 45 else 45)
    monkeypatch.setattr(module, "CHOICE", 10)
    arms, y = values(pool, 50)
    noise = [0.3 if i % 5 == 0 else None for i in range(50)]
    make = lambda: Surrogate(candidate_priors(pool[0], depths=[1, 2], hops=[1], form=form))
    for t in (12, 31, 50):
        once = make().learn(arms[:t], y[:t], noise[:t])
        single, pieces = make(), make()
        for i in range(t): single.learn(arms[i], y[i], noise[i]).latent
        for i in range(0, t, 7): pieces.learn(arms[:t][i:i + 7], y[:t][i:i + 7], noise[:t][i:i + 7])
        assert equal(once, single) and equal(once, pieces)
        draws = [s.latent.draw(np.random.default_rng(2)) for s in (once, single, pieces)]
        assert torch.equal(draws[0], draws[1]) and torch.equal(draws[0], draws[2])


def test_shared_priors_change_no_bit(pool):
    "Rows that another surrogate has computed before, in another order."
    arms, y = values(pool, 30)
    shared = candidate_priors(pool[0])
    Surrogate(shared).learn(arms[::-1], y[::-1]).mean
    assert equal(Surrogate(shared).learn(arms, y),
                 Surrogate(candidate_priors(pool[0])).learn(arms, y))


def test_an_interrupt_loses_nothing(pool, monkeypatch):
    arms, y = values(pool, 30)
    s = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn(arms[:20], y[:20])
    s.mean
    observe, calls = RowsPosterior._absorb, []

    def stop(*args):
        calls.append(1)
        if len(calls) == 1:
            observe(*args)
            raise KeyboardInterrupt
        return observe(*args)
    monkeypatch.setattr(RowsPosterior, "_absorb", stop)
    s.learn(arms[20:], y[20:])
    with pytest.raises(KeyboardInterrupt): s.mean
    monkeypatch.undo()
    assert equal(s, Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn(arms, y))


@pytest.mark.parametrize("sign", [1, -1])
def test_units_origin_and_sign(pool, sign):
    "The next suggestion by UCB is the same in eV, meV and hartree, shifted and mirrored."
    arms, y = values(pool, 25)
    priors = candidate_priors(pool[0])

    def suggestions(a, b, flip=1):
        s, seen, out = Surrogate(priors).learn(arms[:12], flip*(a*y[:12] + b)), set(arms[:12]), []
        for _ in range(3):
            score = sign*flip*s.latent.mean + 2*s.latent.std
            score[list(seen)] = -math.inf
            arm = int(score.argmax())
            out.append(arm), seen.add(arm)
            s.learn(arm, flip*(a*pool[1][arm] + b))
        return out
    first = suggestions(1., 0.)
    for change in ((1e3, 0.), (1/27.2114, 0.), (1., 1e4), (1e3, -5e5), (1., 0., -1), (1e3, 7., -1)):
        assert suggestions(*change) == first


def test_known_noise_is_fixed_and_replicates_find_it(pool):
    arms, y = values(pool, 120, noise=0.5)
    priors = candidate_priors(pool[0], depths=[2], hops=[1])
    found = Surrogate(priors).learn(arms, y).facts
    assert found["power"] == 1 and 0.35 < found["noise_std"] < 0.7
    given = Surrogate(priors, noise_std=0.5).learn(arms, y)
    assert given.facts["noise_std"] == pytest.approx(0.5)
    own = Surrogate(priors).learn(arms, y, [0.5]*120)
    assert torch.allclose(own.mean, given.mean, rtol=1e-9)
    single = Surrogate(priors).learn(np.arange(30), pool[1][:30])
    assert any("cannot be told apart" in line for line in single.words())
    assert not any("cannot be told apart" in line for line in given.words())
    sure = Surrogate(priors).learn(arms, y, [0.01 if a == arms[0] else None for a in arms])
    at = int(arms[0])
    assert sure.std[at] < given.std[at]/3
    mean = y[arms == at].mean()
    assert abs(sure.mean[at] - mean) < abs(given.mean[at] - mean)


def test_hops_are_chosen_and_predictions_follow(pool):
    "A reward that no hop explains as well as two do."
    domain, _ = pool
    priors = candidate_priors(domain)
    assert [p.label for p in priors][:2] == ["GNTK, depth 2, 1 hop", "GNTK, depth 1, 1 hop"]
    assert {p.kernel.hops for p in priors} == {0, 1, 2} and len(priors) == 9
    K = Prior.gntk(domain.with_hops(2), L=2).standard.K + 1e-8*torch.eye(40).double()
    f = torch.linalg.cholesky(K).numpy() @ np.random.default_rng(4).standard_normal((40, 6))
    labels = [Surrogate(priors).learn(np.arange(38), 10*f[:38, i]).facts["prior"] for i in range(6)]
    assert sum("2 hops" in v for v in labels) >= 3
    s = Surrogate(priors).learn(np.arange(30), f[:30, 0])
    for other in (domain[30:], domain.with_hops(0)[30:]):
        got = s.predict(other)
        np.testing.assert_allclose(got["mean"], s.mean[30:], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(got["std"], s.std[30:], rtol=1e-7)
    bare = GraphDomain(domain.h)
    assert {p.kernel.hops for p in candidate_priors(bare)} == {None}


@pytest.mark.parametrize("prior", ["kernel", "gntk", "features", "network"])
def test_any_prior(pool, prior):
    domain, _ = pool
    made = {"kernel": lambda: Prior.kernel(Prior.gntk(domain).K),
            "gntk": lambda: Prior.gntk(domain),
            "features": lambda: Prior.features(domain, 3, dtype=torch.float64),
            "network": lambda: Prior.network(domain, 64, rng=np.random.default_rng(0))}[prior]()
    arms, y = values(pool, 20)
    s = Surrogate(made).learn(arms, y)
    assert json.loads(json.dumps(s.facts))["form"] in ("matrix", "features")
    assert s.score()["rmse"] < s.score()["rmse_mean"]
    dream = s.latent.fantasy([0, 1])
    assert (dream.std <= s.latent.std + 1e-9).all()
    assert torch.isfinite(s.latent.draw(np.random.default_rng(0))).all()
    if prior != "kernel":
        new = np.setdiff1d(np.arange(40), arms)
        close = 1e-4 if prior == "network" else 1e-7         # networks are in single precision
        np.testing.assert_allclose(s.predict(domain[new])["std"], s.std[new], rtol=close)
    else:
        with pytest.raises(ValueError, match="outside the pool"): s.predict(domain)


def test_rows_and_features_prior_forms(pool, monkeypatch):
    "Draws of large pools go through the anchors; here the pool is called large."
    import gnn_bandits.priors as priors
    domain, _ = pool
    exact = Prior.gntk(domain).standard
    monkeypatch.setattr(priors, "WHOLE_POOL", 10)
    prior = Prior(GNTK(), domain, "rows", "anchors")
    draws = torch.stack([prior.draw(np.random.default_rng([3, i])) for i in range(4000)])
    se = (exact.diag[:, None]*exact.diag + exact.K**2).div(4000).sqrt()
    assert float(((torch.cov(draws.T) - exact.K).abs() - 5.5*se).max()) < 0.02
    flat = GraphDomain(torch.sign(domain.h[:, :, :1]))       # one feature
    assert torch.isfinite(Prior(GNTK(1), flat, "rows").draw(np.random.default_rng(0))).all()


def test_weights_of_single_updates(pool):
    "Weights one value at a time, for all kinds of posterior, against a plain solve."
    K = Prior.gntk(pool[0]).standard.K
    rng = np.random.default_rng(5)
    Phi = torch.linalg.cholesky(K + 1e-9*torch.eye(40).double())
    arms, y, w = rng.integers(15, size=60), rng.standard_normal(60), rng.uniform(0.1, 4, 60)
    many = (Posterior(K, 0.2), FeaturePosterior(Phi, 0.2),
            RowsPosterior(lambda a: K[a], K.diagonal(), 0.2))
    for p in many:
        for a, v, u in zip(arms, y, w): p.observe(int(a), float(v), float(u))
    C = K[arms][:, arms] + torch.diag(torch.from_numpy(0.2/w))
    mean = K[:, arms] @ torch.linalg.solve(C, torch.from_numpy(y))
    for p in many:
        torch.testing.assert_close(p.mean, mean, rtol=1e-6, atol=1e-7)
        assert p.t == 60
    with pytest.raises(ValueError, match="weights"): many[2].observe([1, 2], [0., 0.], [1.])
    assert many[2].t == 60


def test_powers_far_out():
    x = torch.tensor([-1e8, -1e-12, 0., 1e-12, 1e8]).double()
    for p in module.POWERS:
        back = inverse_power_transform(power_transform(x, p), p)
        torch.testing.assert_close(back, x, rtol=1e-7, atol=1e-15)
    assert torch.isfinite(inverse_power_transform(torch.tensor([1e6, -1e6]).double(), 0.)).all()


def test_a_long_tail_of_crowded_values(pool):
    "Most lie within a fraction of the standard deviation, on either side of a long tail"
    z = (pool[1] - pool[1].mean())/pool[1].std()
    tail = np.where(z < -0.5, 0.8 - 0.05*np.exp(-2*z), 0.8 + 0.02*z)
    make = lambda y, powers=module.POWERS: Surrogate(
        candidate_priors(pool[0], depths=[2], hops=[1]), powers=powers).learn(range(40), y)
    low, high, plain = make(tail), make(-tail), make(tail, (1.,))
    assert low.facts["sharp"] == high.facts["sharp"] == 4 and plain.facts["sharp"] == 1
    assert low.facts["power"] > 1 and "small values is drawn in (power" in " ".join(low.words())
    assert ", sharpness 4)" in " ".join(low.words())
    assert torch.equal(low.mean, -high.mean) and torch.equal(low.interval()[0], -high.interval()[1])
    assert all(v.isfinite().all() for v in low.interval(0.999))
    assert low.score()["nlpd"] < plain.score()["nlpd"] - 0.3
    table, units = low.leave_one_out(), low.fit.units
    grid = np.linspace(-60, 3, 400_001)                   # the density of a value integrates to one
    step, width = torch.tensor(grid), 0.3
    latent = (units.latent(step) - 0.2)/width
    density = torch.exp(-latent.square()/2 + units.log_slope(step))/width/math.sqrt(2*math.pi)
    assert float(density.sum())*(grid[1] - grid[0])/units.unit == pytest.approx(1, rel=1e-3)
    assert len(table) == 40


def test_a_pool_without_sums_has_no_weights(pool):
    with pytest.raises(ValueError, match="expected a pool whose nodes look alike"):
        module.weighed_sum(pool[0])


# Replicates alone

@pytest.mark.parametrize("shift,unit", [(0., 1.), (1000., 1.), (0., 1e-6), (-3e5, 1e5)])
def test_many_values_of_one_arm_have_the_standard_error(pool, shift, unit):
    "The deviation was 0.00017 where the standard error of 10,000 values is 0.01"
    y = shift + unit*np.random.default_rng(0).standard_normal(10_000)
    s = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn([3]*len(y), y)
    error = y.std(ddof=1)/100
    assert float(s.std[3]) == pytest.approx(error, rel=0.02)
    assert abs(float(s.mean[3]) - y.mean()) < 0.05*error
    assert s.facts["noise_std"] == pytest.approx(y.std(ddof=1), rel=0.02)
    low, high = s.interval()
    assert float(high[3] - low[3]) == pytest.approx(2*1.645*error, rel=0.02)
    assert (s.std[[0, 1, 2, 4]] > 10*error).all()           # of the others it says little


def test_many_arms_that_are_all_noise(pool):
    "Also after a power, whose unit is found anew"
    rng = np.random.default_rng(1)
    arms = np.repeat(np.arange(12), 200)
    for y in (rng.standard_normal(2400), np.exp(rng.standard_normal(2400))):
        s = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn(arms, y)
        within = math.sqrt(np.mean([y[arms == a].var(ddof=1) for a in range(12)]))
        assert s.facts["unit"] == pytest.approx(within, rel=0.05)     # the last fit is a bit older
        assert 0.5 < s.fit.noise < 1.5                     # in the unit after the power, too


def covered(pool, k, replicates, spread, runs):
    "How many intervals of measured arms hold the true value"
    prior = candidate_priors(pool[0], depths=[2], hops=[1])
    K, hits = prior[0].block(range(40)), 0
    root = torch.linalg.cholesky(K + 1e-9*torch.eye(40).double()).numpy()
    for i in range(runs):
        rng = np.random.default_rng([k, replicates, i])
        f, some = spread*(root @ rng.standard_normal(40)), rng.permutation(40)[:k]
        arms = np.repeat(some, replicates)
        s = Surrogate(prior).learn(arms, f[arms] + rng.standard_normal(len(arms)))
        low, high = (v.numpy()[some] for v in s.interval())
        hits += int(((low <= f[some]) & (f[some] <= high)).sum())
    return hits


@pytest.mark.parametrize("k,replicates,spread", [(1, 5, 1.), (2, 5, 0.), (2, 5, 1.), (4, 3, 1.)])
def test_few_arms_with_replicates_are_covered(pool, k, replicates, spread):
    "Intervals of 90 per cent with two arms of five values held 38 of 60 true values"
    runs = 60//k
    hits = covered(pool, k, replicates, spread, runs)
    assert hits > 0.9*60 - 3*math.sqrt(60*0.09)             # three standard errors: 47 of 60


def test_without_replicates_nothing_has_changed(pool):
    "Unit, noise and intervals by the rules that held before replicates had rules of their own"
    arms, y = np.arange(0, 40, 2), pool[1][::2]
    s = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn(arms, y)
    found = module.units_of(Measured(arms.tolist(), y.tolist(), []))
    assert s.facts["unit"] == found.unit == pytest.approx(y.std(ddof=1), rel=1e-14)
    assert s._freedom() == (23, 23)
    mean, std = s._spread()
    own = torch.full_like(std, s.fit.private).index_fill(0, s.latent.arms, 0.)
    assert torch.equal(std, (s.fit.scale*s.latent.std.square() + own).sqrt())
    half = float(stdtrit(23, 0.95))*std
    assert torch.equal(s.interval()[1], s.fit.units.user(mean + half))


def test_the_level_of_few_arms_is_unknown(pool):
    "The variance of measured arms against a flat prior of the level, solved plainly"
    rng = np.random.default_rng(4)
    arms = np.array([3, 3, 3, 8, 8, 20, 20, 20, 20])
    s = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1])).learn(
        arms, rng.standard_normal(9))
    fit, some = s.fit, [3, 8, 20]
    G = fit.scale*fit.prior.block(some) + fit.private*torch.eye(3).double() + 1e6
    noise = torch.diag(fit.noise/torch.tensor([3., 2., 4.]).double())
    want = (G - G @ torch.linalg.solve(G + noise, G)).diagonal().sqrt()
    torch.testing.assert_close(s._spread()[1][some], want, rtol=1e-3, atol=0)
    assert s._freedom() == (3, 6)
    known = Surrogate(candidate_priors(pool[0], depths=[2], hops=[1]), noise_std=1.)
    assert known.learn(arms, rng.standard_normal(9))._freedom() == (6, 12)


@pytest.mark.parametrize("hops, left_out", ((0, (1, 2)), (2, (0,))))
def test_rounds_of_aggregation_that_leave_a_node_without_features_are_not_tried(hops, left_out):
    rng = np.random.default_rng(0)
    edge, x = np.array([[0, 1], [1, 0]]), [rng.standard_normal(2) for _ in range(12)]
    features = ([np.stack([v, -v]) for v in x] if hops == 0 else       # a pair that cancels
                [np.stack([v, 0*v]) for v in x])                        # a node without features
    X = GraphDomain.from_arrays([edge]*12, features, hops=hops)
    tried = {p.kernel.hops for p in candidate_priors(X)}
    assert hops in tried and not tried & {*left_out}
    model = Surrogate(candidate_priors(X)).learn(range(5), rng.standard_normal(5))
    assert model.mean.isfinite().all()
