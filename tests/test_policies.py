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
from gnn_bandits.policies import ALIASES, POLICIES, Policy, plausible, policy_name
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
