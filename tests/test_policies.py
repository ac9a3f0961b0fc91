"One table of policies: every door reads it, and the compiled loops agree with it."
import numpy as np
import pytest
import torch

from gnn_bandits import Campaign, GraphDomain, policies
from gnn_bandits.bandits import ALGORITHMS, make_algorithm
from gnn_bandits.cli import POLICY
from gnn_bandits.campaigns import CampaignPolicy
from gnn_bandits.core import first_best
from gnn_bandits.paper.studies import CODES, Instance, Player, play
from gnn_bandits.policies import (ALIASES, CONTENDERS, DRAWS, POLICIES, Policy, lite, log_p_best,
                                  plausible, policy_name, wins)
from gnn_bandits.posterior import Posterior
from gnn_bandits.priors import Prior

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pool(): return GraphDomain.erdos_renyi(30, 5, 0.4, 3, np.random.default_rng(0))


def test_every_door_has_every_policy():
    assert {p for _, p in ALGORITHMS.values()} == {*POLICIES}
    assert POLICY.names() == tuple(POLICIES)
    for name, p in POLICIES.items():
        assert CampaignPolicy(name).factor == p.beta and p.words and p.rule
    for other, name in ALIASES.items():
        assert policy_name(other) == name == CampaignPolicy(other).name
    codes = {p.short for n, p in POLICIES.items() if n not in ("ei", "po")}  # not of the studies
    assert codes | {"greedy"} == {*CODES}


def test_a_new_row_is_known_to_every_door(pool, tmp_path, monkeypatch):
    "The arm with the largest mean: one function and one row"
    greedy = Policy(lambda belief, *rest: belief.mean, 0., "greedy", "it pulls the best", "best")
    monkeypatch.setitem(POLICIES, "greedy", greedy)
    monkeypatch.setitem(ALGORITHMS, "GNN-greedy", ("graph", "greedy"))    # made from the table
    values = np.sin(np.arange(30))
    belief = Prior.gntk(pool).start(0.01).observe(range(12), values[:12])
    alg = make_algorithm("GNN-greedy", pool, rng=np.random.default_rng(0), lam=0.01)
    for a in range(12): alg.tell(a, values[a])
    assert alg.beta == 0 and alg.ask() == first_best(belief.mean)
    with Campaign.create(tmp_path/"c", pool, policy="greedy", prior=Prior.gntk(pool)) as c:
        c.tell(range(12), values[:12])
        mean, free = c.surrogate().latent.mean, torch.arange(30) >= 12
        assert c.suggest(1)["arm"].tolist() == [first_best(mean, free)]
        assert "best" in c.report(tmp_path/"r.html").read_text(encoding="utf-8")
    assert "greedy" in POLICY.names()


@pytest.mark.parametrize("name", ["ucb", "ts", "pe", "random"])
def test_the_compiled_loop_agrees_with_the_table(pool, name):
    "Each arm that the compiled loop pulls has the largest score of the table at that moment"
    rng, T, lam, beta = np.random.default_rng(1), 25, 0.05, 1.5
    K, short = Prior.gntk(pool).K, POLICIES[name].short
    f = rng.standard_normal(30)
    instance = Instance({"graph": K.numpy()}, f, rng, 0.1, T)
    player = Player(short if short == "Random" else f"GNN-{short}", lam=lam, beta=beta,
                    random_pulls=4)
    arms = play(instance, player)[0]
    belief, counts, race = Prior.gntk(pool).start(lam), np.zeros(30, int), torch.ones(30).bool()

    class Seen:
        "What the loop believes, with its own random numbers"
        mean = property(lambda self: belief.mean)
        std = property(lambda self: belief.std)
        def deviation(self, rng): return torch.from_numpy(drawn)

    for t, arm in enumerate(arms):
        if t >= 4 and name != "random":
            if name == "ts":
                g, H = instance.prior_draws["graph"][t], belief.arms
                drawn = deviation(K.numpy(), lam, H.tolist(), counts, g, instance.normals[1, t])
            score = POLICIES[name].score(Seen(), beta, [], race, rng)
            assert arm == first_best(score, race)
        else: assert arm == instance.first[t]
        belief.observe(int(arm), f[arm] + instance.noise[counts[arm], arm])
        counts[arm] += 1
        if POLICIES[name].races: race = plausible(belief.mean, beta*belief.std, race | True)


def deviation(K, lam, pulled, counts, g, normal):
    "Matheron's rule, written out: a draw of the posterior less its mean"
    if not pulled: return g
    A = K[np.ix_(pulled, pulled)] + np.diag(lam/counts[pulled])
    r = g[pulled] + np.sqrt(lam/counts[pulled])*normal[:len(pulled)]
    return g - K[:, pulled] @ np.linalg.solve(A, r)


def test_names_that_are_none():
    with pytest.raises(ValueError, match="one of 'ucb', 'ei', 'ts', 'pe', 'po', 'random'"):
        policy_name("best")
    with pytest.raises(ValueError, match="one of"): CampaignPolicy("GNN-UCB")
    assert policies.policy_name("thompson") == "ts"
    assert make_algorithm("GNN-TS", GraphDomain.erdos_renyi(5, 4, 0.4, 3, np.random.default_rng(0)),
                          rng=np.random.default_rng(0)).policy is POLICIES["ts"]


def test_what_the_table_says_of_each_policy(pool):
    "Who is random, who races, who ranks a batch at once, and whose scores are logarithms"
    named = lambda field: {name for name, p in POLICIES.items() if getattr(p, field)}
    assert named("random") == {"ts", "random"} and named("races") == {"pe"}
    assert named("batch") == {"po"} and named("gain") == {"ei", "po"}
    assert {n: p.beta for n, p in POLICIES.items() if p.beta != 1} == {"ucb": 2., "pe": 1.5}
    assert [p.short for p in POLICIES.values()] == ["UCB", "EI", "TS", "PE", "PO", "Random"]
    belief, race = Prior.gntk(pool).start(0.01).observe([3, 9], [1., 2.]), torch.ones(30).bool()
    for name in ("ts", "random"):
        scores = [POLICIES[name].score(belief, 1., [3, 9], race, np.random.default_rng(k))
                  for k in range(4)]
        assert not all(torch.equal(scores[0], s) for s in scores)


def test_arms_at_random_are_equally_probable():
    "One arm has a score of one, all others zero; over 3,000 choices each arm is chosen as often"
    rng, n, times = np.random.default_rng(0), 6, 3000
    score = sum(POLICIES["random"].score(None, 1., [], torch.ones(n), rng) for _ in range(times))
    assert score.sum() == times
    assert ((score/times - 1/n).abs() < 5*(1/n*(1 - 1/n)/times)**0.5).all()


def test_improvement_is_over_the_best_of_the_measured_arms():
    "The measured arms alone make the mark; before any measurement all arms do"
    class Said: mean, std = torch.tensor([0., 1., 3.]).double(), torch.tensor([1., 1., 0.]).double()
    score = lambda seen: POLICIES["ei"].score(Said(), 1., seen, None, None)
    gain = lambda z: np.log(np.exp(-z*z/2)/np.sqrt(2*np.pi) + z*float(torch.special.ndtr(
        torch.tensor(z).double())))
    np.testing.assert_allclose(score([1])[:2], [gain(-1.), gain(0.)], rtol=1e-9)
    np.testing.assert_allclose(score([0, 1])[:2], score([1])[:2])
    np.testing.assert_allclose(score([])[:2], [gain(-3.), gain(-2.)], rtol=1e-6)
    assert score([1])[2] == pytest.approx(np.log(2.)) and not score([2]).isnan().any()


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_lite_is_one_number_that_makes_the_probabilities_add_up(n):
    "F-LITE: Φ((mean - κ)/std) over all arms, with the κ at which they add up to one"
    from scipy.optimize import brentq
    from scipy.stats import norm
    rng = np.random.default_rng(n)
    mean, std = rng.standard_normal(n), rng.uniform(0.1, 2, n)
    if n == 1: return np.testing.assert_allclose(lite(torch.tensor(mean), torch.tensor(std)), [0.])
    kappa = brentq(lambda k: norm.cdf((mean - k)/std).sum() - 1, -30, 30, xtol=1e-13)
    np.testing.assert_allclose(lite(torch.tensor(mean), torch.tensor(std)),
                               norm.logcdf((mean - kappa)/std), atol=1e-6)


def test_lite_with_an_arm_that_is_known():
    "The other one is worse with the probability of a normal tail, and the known arm then wins"
    p = lite(torch.tensor([0., 5.]).double(), torch.tensor([0., 1.]).double()).exp()
    assert float(p[0]) == pytest.approx(2.8665157e-7, rel=1e-4) and float(p.sum()) == 1
    both = lite(torch.tensor([1., 0.]).double(), torch.zeros(2).double()).exp()
    assert both.tolist() == pytest.approx([1., 0.], abs=1e-9)


def test_who_never_wins_a_draw_has_what_is_left_for_him():
    "(wins + F-LITE)/(draws + 1): an arm far behind has only the second part, however small"
    n = 5
    mean, K = torch.tensor([0., 0.1, -0.3, 0.2, -12.]).double(), torch.eye(n).double()
    class Said:
        std = torch.tensor([1., 0.5, 2., 1., 1.]).double()
        def covariance(self, arms): return K[arms][:, arms]*self.std[arms]**2
    Said.mean = mean
    p = log_p_best(Said(), rng=np.random.default_rng(0))
    alone = lite(mean, Said.std)
    assert p[4] == pytest.approx(float(alone[4]) - np.log(DRAWS + 1), rel=1e-12)
    top = alone.argsort(descending=True)                # the order in which arms are drawn
    counts = wins(mean[top], Said().covariance(top), np.random.default_rng(0))
    np.testing.assert_allclose(p.exp()[top], (counts + alone.exp()[top])/(DRAWS + 1), rtol=1e-9)
    wider, private = (log_p_best(Said(), beta=b, own=o, rng=np.random.default_rng(0))
                      for b, o in ((3., 0.), (1., 8*Said.std**2)))
    np.testing.assert_allclose(wider, private)        # nine times the variance, either way
    assert wider[4] > p[4]
    assert torch.equal(log_p_best(Said(), torch.arange(n) == 2, rng=np.random.default_rng(0)),
                       torch.where(torch.arange(n) == 2, 0., -torch.inf).double())


def test_draws_of_arms_that_move_together():
    "An arm that always stands a little above its twin wins against it always, and twins share"
    mean = torch.tensor([0., 0.01, 0.]).double()
    K = torch.tensor([[1., 1., 0.], [1., 1., 0.], [0., 0., 1.]]).double()
    counts = wins(mean, K, np.random.default_rng(0))
    assert counts[0] == 0 and counts.sum() == DRAWS
    assert abs(counts[1]/DRAWS - 0.5) < 5/(4*DRAWS)**0.5 + 0.01
    alike = wins(torch.zeros(4).double(), torch.eye(4).double(), np.random.default_rng(1))
    assert torch.equal(alike, torch.full((4,), DRAWS/4).double())


def test_only_so_many_contenders_are_drawn():
    "The others keep what F-LITE says of them"
    n = CONTENDERS + 30
    mean = torch.linspace(1, -1, n).double()
    belief = Posterior(0.04*torch.eye(n).double(), 0.1)
    class Said:
        std, covariance = belief.std, belief.covariance
    Said.mean = mean
    p, alone = log_p_best(Said(), rng=np.random.default_rng(0)), lite(mean, belief.std)
    assert torch.equal(p[CONTENDERS:], alone[CONTENDERS:]) and not (p[:CONTENDERS] == alone[
        :CONTENDERS]).any()
    assert float(p.exp().sum()) == pytest.approx(1, abs=1e-9)
