"Several outcomes and prices: the mathematics against BoTorch, campaigns through every door."
import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import Campaign, CampaignPolicy, GraphDomain, cli
from gnn_bandits.logbook import told_by_id
from gnn_bandits.outcomes import (Purse, Several, as_outcomes, boxes_above, ei_outcomes,
                                  hypervolume, log_feasible, log_gain, nondominated)
from gnn_bandits.surrogate import Surrogate, candidate_priors

WANTED = {"yield": "max", "waste": "min", "purity": ">= 0.8"}


@pytest.fixture(scope="module")
def pool():
    rng = np.random.default_rng(0)
    truth = pd.DataFrame({"yield": rng.normal(60, 10, 40), "waste": rng.uniform(1, 9, 40),
                          "purity": rng.uniform(0.7, 1, 40)})
    prices = pd.DataFrame({"id": [f"g{k}" for k in range(40)], "euro": rng.uniform(1, 20, 40)})
    return GraphDomain.erdos_renyi(40, 5, 0.4, 3, rng), truth, prices


@pytest.fixture
def campaign(pool, tmp_path):
    domain, truth, prices = pool
    c = Campaign.create(tmp_path/"c", domain, outcomes=WANTED, cost="euro", table=prices)
    batch = c.ask(6)
    return c.tell(batch, truth.iloc[batch])


# the mathematics

def plain_volume(points):
    "By inclusion and exclusion over all subsets; the reference point is zero."
    total = 0.
    for chosen in product((0, 1), repeat=len(points)):
        some = points[np.array(chosen, bool)]
        if len(some): total += (-1)**(len(some) + 1)*np.prod(some.min(0))
    return total


@pytest.mark.parametrize("m", [1, 2, 3])
def test_hypervolume_by_inclusion_and_exclusion(m):
    rng = np.random.default_rng(m)
    for k in (1, 2, 5, 9):
        points = rng.random((k, m)).round(1) + 0.1                   # with ties
        assert hypervolume(points, np.zeros(m)) == pytest.approx(plain_volume(points), rel=1e-9)
    assert hypervolume(points - 5, np.zeros(m)) == 0


@pytest.mark.parametrize("m", [2, 3])
def test_hypervolume_and_its_improvement_agree_with_botorch(m):
    pytest.importorskip("botorch")
    from botorch.acquisition.multi_objective.analytic import ExpectedHypervolumeImprovement
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.posteriors import GPyTorchPosterior
    from botorch.utils.multi_objective.box_decompositions.non_dominated import (
        FastNondominatedPartitioning)
    from botorch.utils.multi_objective.hypervolume import Hypervolume
    from gpytorch.distributions import MultitaskMultivariateNormal
    rng = np.random.default_rng(m)
    front, mean = (torch.from_numpy(rng.normal(size=(k, m))) for k in (15, 30))
    std = torch.from_numpy(0.1 + rng.random((30, m)))
    ref = torch.full((m,), -2., dtype=torch.float64)

    class Known(GenericDeterministicModel):
        def posterior(self, X, **_):
            i = X[..., 0].long()
            C = torch.diag_embed(std[i].reshape(*i.shape[:-1], -1)**2)
            return GPyTorchPosterior(MultitaskMultivariateNormal(mean[i], C))

    theirs = Hypervolume(ref).compute(front[nondominated(front)])
    assert hypervolume(front, ref) == pytest.approx(theirs, rel=1e-9)
    f = ExpectedHypervolumeImprovement(Known(None, m), ref_point=ref.tolist(),
                                       partitioning=FastNondominatedPartitioning(ref, front))
    gains = f(torch.arange(30).double()[:, None, None]).detach()
    ours = log_gain(mean, std, *boxes_above(front, ref)).exp()
    np.testing.assert_allclose(ours, gains, rtol=1e-6, atol=1e-12)


def test_constrained_improvement_agrees_with_botorch():
    pytest.importorskip("botorch")
    from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.posteriors import GPyTorchPosterior
    from gpytorch.distributions import MultitaskMultivariateNormal
    rng = np.random.default_rng(3)
    domain = GraphDomain.erdos_renyi(30, 5, 0.4, 3, rng)
    models = [Surrogate(candidate_priors(domain)).learn(range(15), rng.normal(size=15))
              for _ in range(3)]
    wishes = as_outcomes({"y": "max", "a": ">= -0.5", "b": ">= 0"})
    belief = Several(models, wishes).latent
    mean, std, limits = belief.mean, belief.spread, belief.limits

    class Same(GenericDeterministicModel):
        def posterior(self, X, **_):
            i = X[..., 0].long()
            C = torch.diag_embed(std[i].reshape(*i.shape[:-1], -1)**2)
            return GPyTorchPosterior(MultitaskMultivariateNormal(mean[i], C))

    good = (mean[:15, 1:] >= limits).all(1)
    best = mean[:15, 0][good].max()
    theirs = LogConstrainedExpectedImprovement(
        Same(None, 3), best, 0, {j + 1: (float(v), None) for j, v in enumerate(limits)})
    ours = ei_outcomes(belief, 1., list(range(15)), None, rng)
    np.testing.assert_allclose(ours, theirs(torch.arange(30.).double()[:, None, None]).detach(),
                               rtol=1e-6, atol=1e-6)


def test_probability_of_feasibility_against_draws():
    rng, N = np.random.default_rng(4), 40_000
    mean, std, limits = rng.normal(size=(5, 3)), 0.2 + rng.random((5, 3)), rng.normal(size=3)/2
    p = log_feasible(*map(torch.from_numpy, (mean, std, limits))).exp().numpy()
    hits = (mean + std*rng.standard_normal((N, 5, 3)) >= limits).all(-1).mean(0)
    assert (np.abs(hits - p) < 5*np.sqrt(p*(1 - p)/N) + 1e-12).all()


def test_far_candidates_are_told_apart():
    "Where the improvement itself underflows, its logarithm does not"
    boxes = boxes_above(torch.zeros(1, 2).double() + 100, torch.zeros(2).double())
    mean = torch.tensor([[-1000., 0.], [-900., 0.]], dtype=torch.float64)
    gain = log_gain(mean, torch.ones(2, 2).double(), *boxes)
    assert gain.isfinite().all() and gain[1] > gain[0] and (gain.exp() == 0).all()


# a campaign

def test_what_was_told_survives_everything(campaign, pool, tmp_path):
    domain, truth, prices = pool
    before = campaign.pareto()
    arm, = campaign.ask()
    campaign.tell(arm, {"yield": 200., "waste": 0.5})
    assert campaign.pending["arm"].tolist() == [arm] and campaign.pareto().equals(before)
    campaign.tell(arm, {"purity": "<0.99"})                        # which settles nothing
    assert campaign.pending.empty and campaign.pareto().equals(before)
    campaign.undo(), campaign.tell(arm, {"purity": ">0.9"})
    assert campaign.pending.empty and campaign.pareto()["arm"].tolist() == [arm]
    campaign.undo()
    assert campaign.pending["arm"].tolist() == [arm] and campaign.pareto().equals(before)
    campaign.drop()
    assert campaign.to_dataframe()["state"][arm] == "measured"
    events, table = campaign.events, campaign.to_dataframe()
    campaign.close()
    with Campaign.open(tmp_path/"c") as again:
        assert again.events.equals(events) and again.outcomes == WANTED and again.cost == "euro"
        pd.testing.assert_frame_equal(again.to_dataframe(), table)
        twin = Campaign.create(tmp_path/"twin", domain, outcomes=WANTED, cost="euro", table=prices,
                               results=again.observations)
        assert twin.pareto().equals(before)
        told = told_by_id(tmp_path/"c")
        assert told[["id", "outcome", "value"]].equals(again.observations[["id", "outcome",
                                                                           "value"]])
        for path in again.export(tmp_path/"tables"): assert path.exists()
        again.export(tmp_path/"tables")                            # knows its own files


def test_a_threshold_that_small_values_meet(pool, tmp_path):
    domain, truth, _ = pool
    c = Campaign.create(tmp_path/"c", domain, outcomes={"yield": "max", "waste": "<= 4"})
    c.tell(range(12), truth[["yield", "waste"]][:12])
    good = truth[:12][truth["waste"][:12] <= 4]
    assert c.pareto()["arm"].tolist() == [good["yield"].idxmax()]
    p = c.predict()["p_feasible"]
    bad = [k for k in range(12) if k not in good.index]
    assert p.between(0, 1).all() and p[good.index].mean() > 0.5 > p[bad].mean()
    far, wide = c.predict(level=0.5), c.outcome("waste").predict(level=0.5)
    assert far["waste_high"].equals(wide["high"]) and len(c.ask(2)) == 2


def test_what_is_spent(campaign, pool):
    _, truth, prices = pool
    euro, seen = prices["euro"], campaign.measured().index.tolist()
    assert campaign.spent == pytest.approx(euro[seen].sum())
    a, b = seen[0], campaign.ask()[0]
    campaign.tell(a, {"yield": 50.})                               # a replicate
    campaign.fail(b, "broke")
    assert campaign.spent == pytest.approx(euro[seen].sum() + euro[a] + euro[b])
    campaign.undo()
    assert campaign.spent == pytest.approx(euro[seen].sum() + euro[b])


@pytest.mark.parametrize("policy", ["ei", "ts", "random"])
def test_a_batch_keeps_to_its_budget(pool, tmp_path, policy):
    domain, truth, prices = pool
    c = Campaign.create(tmp_path/"c", domain, outcomes=WANTED, cost="euro", table=prices,
                        policy=policy)
    for _ in range(3):
        batch = c.ask(6, budget=30)
        assert len(set(batch)) == len(batch) and prices["euro"][batch].sum() <= 30
        c.tell(batch, truth.iloc[batch])
    events = len(c.events)
    with pytest.raises(ValueError, match="too small: the cheapest"): c.ask(budget=0.1)
    assert len(c.events) == events


def test_prices_of_an_ordinary_campaign(pool, tmp_path):
    "Improvement per price: with equal prices nothing changes, a high price is a reason against"
    domain, truth, prices = pool
    batch = []
    for name, cost in (("none", None), ("same", "one"), ("dear", "two")):
        table = prices.assign(one=3., two=3.)
        if name == "dear": table.loc[batch[0][-1], "two"] = 3e9
        c = Campaign.create(tmp_path/name, domain, table=table, cost=cost, policy="ei")
        first = list(range(8))
        c.tell(first, truth["yield"][:8].tolist())
        batch.append(c.ask(1))
    assert batch[0] == batch[1] != batch[2]
    assert c.policy.name == "ei" and c.outcomes == {} and not c.pending["cost"].isna().any()


def test_more_candidates_need_prices(campaign, pool):
    domain = pool[0]
    with pytest.raises(ValueError, match="no column 'euro'"): campaign.add(domain[:2], ["x", "y"])
    campaign.add(domain[:2], ["x", "y"], pd.DataFrame({"euro": [1., 2.]}))
    assert len(campaign.predict()) == 42 and len(campaign.outcome("yield").predict()) == 42
    assert len(campaign.ask(3)) == 3


def test_an_outcome_that_is_not_known_yet(pool, tmp_path):
    domain, truth, _ = pool
    c = Campaign.create(tmp_path/"c", domain, outcomes=WANTED)
    c.tell(range(6), truth[["yield"]][:6])
    table = c.predict()
    assert table["purity"].isna().all() and table["yield"].notna().all()
    assert "without waste, purity" in c.suggest()["why"][0] and c.pareto().empty
    assert c.best()["arm"][0] in range(6) and not c.model().facts["waste"]


def test_other_packages_refuse_it(campaign, tmp_path):
    "The format of the folder says that an older package cannot read it"
    assert json.loads((tmp_path/"c"/"campaign.json").read_text())["format"] == 3


def test_views_are_campaigns_to_look_at(campaign):
    one = campaign.outcome("waste")
    assert not one.maximize and len(one.observations) == 6 and "outcome" not in one.observations
    assert one.contenders()["probability"] > 0 and one.model().score
    campaign.undo()
    assert one.observations.empty and campaign.outcome("waste") is one
    with pytest.raises(ValueError, match="to be one of 'yield'"): campaign.outcome("color")


@pytest.mark.parametrize("told, said", [
    (("g1", {"color": 3}), "no outcome 'color'"), (("g1", 3.), "by their names"),
    (("nobody", {"yield": 3.}), "no candidate with the id"), (("g1", {}), "got none"),
    (("g1", {"yield": None}), "got none"), (("g1", {"yield": math.inf}), "outcome 'yield'"),
    ((["g1", "g2"], [{"yield": 3.}]), "for each of 2"), (("g1", {"yield": ">x"}), "is no bound"),
    (("g1", {"yield": 3.}, 0.1), "the noise of outcomes"),
    (("g1", {"yield": ">3"}, {"yield": 1.}), "no noise")])
def test_what_is_refused_is_not_recorded(campaign, told, said):
    before = len(campaign.events)
    with pytest.raises(ValueError, match=said): campaign.tell(*told)
    assert len(campaign.events) == before


@pytest.mark.parametrize("options, said", [
    (dict(outcomes={"y": "maxx"}), "'max', 'min'"), (dict(outcomes={}), "expected outcomes"),
    (dict(outcomes=dict(a="max", b="min", c="max", d="min")), "at most 3"),
    (dict(outcomes={"y": "max", "y ": "min"}), "twice"), (dict(outcomes={"id": "max"}), "'id'"),
    (dict(outcomes={"euro": "min"}, columns=["euro"]), "learns from"),
    (dict(outcomes={"y": "max"}, maximize=False), "leave out maximize"),
    (dict(outcomes={"y": "max"}, policy="ucb"), "policy of several outcomes"),
    (dict(cost="gold"), "no column 'gold'"), (dict(cost="bad"), "row 2, column 'bad'"),
    (dict(cost="gone"), "row 1, column 'gone': the price is missing"),
    (dict(cost="free"), "a price above zero")])
def test_what_no_campaign_can_be(pool, tmp_path, options, said):
    table = pool[2].assign(bad=[1., -1.] + [2.]*38, gone=[None] + [2.]*39, free=0.)
    with pytest.raises(ValueError, match=said):
        Campaign.create(tmp_path/"c", pool[0], table=table, **options)
    assert not (tmp_path/"c").exists()


def test_a_purse():
    purse = Purse(np.array([3., 1., 5., 2.]), 6.)
    assert purse.pay([2, 0, 1, 3], 4) == [2, 1] and purse.left == 0
    assert Purse().pay([2, 0, 1], 2) == [2, 0]


def test_outcomes_of_an_ordinary_campaign(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool[0])
    assert c.outcomes == {} and c.cost is None and c.spent == 0 and c.policy.name == "ucb"
    assert c.settings["format"] == 2 and "outcomes" not in c.settings
    with pytest.raises(ValueError, match="with prices"): c.ask(budget=3)
    assert Campaign.create(tmp_path/"d", pool[0], policy=CampaignPolicy("ts")).policy.name == "ts"


# from a shell, and the report

def test_the_shell_and_the_report(tmp_path, capsys):
    rows = [dict(id=f"m{k}", smiles="C"*(k//3 + 1) + "ONS"[k % 3], euro=1 + k % 3)
            for k in range(24)]
    pd.DataFrame(rows).to_csv(tmp_path/"pool.csv", index=False)
    def run(line, code=0):
        assert cli.main(["campaign", *line.replace("@", str(tmp_path)).split()]) == code
        return capsys.readouterr()
    new = "new @/pool.csv --smiles smiles"
    run(f"{new} --outcomes yield=max,price=min,purity>=0.9 --cost euro --out @/c")
    found = json.loads(run("ask @/c 4 --budget 12 --json").out)["suggestions"]
    assert len(found) == 4 and sum(r["cost"] for r in found) <= 12
    for k, row in enumerate(found): run(f"tell @/c {row['id']} yield={70 + k} price={3 - k/2}")
    run(f"tell @/c {found[0]['id']} purity>0.95")
    done = pd.DataFrame([dict(id=r["id"], purity=0.85 + k/20, note="late")
                         for k, r in enumerate(found) if k])
    done.to_csv(tmp_path/"done.csv", index=False)
    assert "3 recorded" in run("tell @/c @/done.csv").out
    status = json.loads(run("status @/c --json").out)
    assert status["front"][0]["id"] == found[3]["id"] and status["spent"] > 0
    text = run("status @/c").out
    assert "on the front" in text and "spent so far" in text and "purity >= 0.9" in text
    assert json.loads(run("best @/c --json").out)["best"][0]["id"] == found[3]["id"]
    assert "yield_predicted" in run("ask @/c 2 --csv").out and run("predict @/c --top 3").out
    for line, said in (("tell @/c m1 yeild=3", "no outcome 'yeild'"),
                       ("tell @/c m1 yield=3 yield=4", "'yield' twice"),
                       ("tell @/c m1 4", "such as yield=72"),
                       ("ask @/c 2 --budget 0.1", "too small"),
                       (f"{new} --outcomes y=maxx --out @/d", "'max', 'min'"),
                       (f"{new} --outcomes y=max,y=min --out @/d", "twice"),
                       (f"{new} --outcomes y=max --cost id --out @/d", "a price above zero")):
        error = run(line, 2).err
        assert said in error and error.count("\n") == 1
    run("report @/c")
    page = (tmp_path/"c"/"report.html").read_text()
    assert "The front" in page and "spent (euro)" in page and "purity &gt;= 0.9" in page
    run(f"{new} --cost euro --out @/one")
    run("tell @/one m1 3"), run("ask @/one 2 --budget 5"), run("report @/one")
    assert "spent so far" in run("best @/one").out
    assert "<dt>Cost</dt>" in (tmp_path/"one"/"report.html").read_text()
