"Values that are only known to lie beyond a bound, and values that look like slips."
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import cli
from gnn_bandits.bandits import make_algorithm
from gnn_bandits.bridges import GraphRegressor
from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import Bound
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.journal import Journal
from gnn_bandits.kernels import GNTK
from gnn_bandits.logbook import finite, slip, told_by_id
from gnn_bandits.priors import FORMS, Prior
from gnn_bandits.scale import Library
from gnn_bandits.surrogate import FittedBelief, Surrogate, bound_sites

pytestmark = pytest.mark.usefixtures("one_thread")
IDS = [f"m{i}" for i in range(30)]
TOLD = {"m0": 7.1, "m1": ">10", "m2": 6.9, "m3": "<2", "m4": 7.3, "m5": 6.5, "m6": ">9.5"}
BAD = (">ten", ">", "> 1e999", "><3", "<nan", ">1,5", "≥")


@pytest.fixture(scope="module")
def pool(): return GraphDomain.erdos_renyi(30, 6, 0.3, 4, np.random.default_rng(0))


@pytest.fixture
def campaign(pool, tmp_path): return Campaign.create(tmp_path/"c", pool, ids=IDS, results=TOLD)


@pytest.fixture
def shell(capsys, campaign, monkeypatch):
    monkeypatch.chdir(campaign.path.parent)
    def call(*words):
        try: code = cli.main(["campaign", *words])
        except SystemExit as e: code = e.code
        return code, *capsys.readouterr()
    return call


def numbers(told): return [Bound(10., 1) if v == ">10" else Bound(2., -1) if v == "<2" else
                           Bound(9.5, 1) if v == ">9.5" else v for v in told.values()]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_takes_bounds(pool, form, tmp_path):
    if form == "library":
        Library.of(*GNTK(2).features(pool, degree=4)).save(tmp_path/"features")
        prior = Prior.library(tmp_path/"features", pool)
    else: prior = Prior(GNTK(2), pool, form)
    exact, features = Surrogate(Prior(GNTK(2), pool, "matrix")), Surrogate(prior)
    for model in (exact, features): model.learn(range(7), numbers(TOLD))
    assert ((features.mean - exact.mean).abs() < 0.5*exact.std).all()
    for i, v in enumerate(numbers(TOLD)):
        if isinstance(v, Bound): assert v.sense*(features.mean[i] - v.value) > -features.std[i]


@pytest.mark.parametrize("form", ["matrix", "rows", "features"])
def test_sites_are_those_of_the_textbook(pool, form):
    "With the private part, which a posterior hides for arms that were never pulled"
    s = Surrogate(Prior(GNTK(2), pool, form)).learn(range(7), numbers(TOLD))
    fit, exact, beyond, a = s.fit, [0, 2, 4, 5], [1, 3, 6], torch.tensor([1., -1., 1.]).double()
    C = fit.scale*fit.prior.standard.block(list(range(7))) + fit.private*torch.eye(7).double()
    E, across = C[exact][:, exact] + fit.noise*torch.eye(4).double(), C[exact][:, beyond]
    A, z = torch.linalg.solve(E, across), fit.units.latent([TOLD[f"m{i}"] for i in exact])
    S, mean = C[beyond][:, beyond] - A.T @ across, A.T @ z
    want = bound_sites(a[:, None]*S*a, a*(fit.units.latent([10., 2., 9.5]) - mean),
                       torch.full((3,), fit.noise).double())
    found = s._update().sites
    assert torch.allclose(found.precision, want.precision, rtol=1e-5)
    assert torch.allclose(found.value, mean + a*want.value, rtol=1e-5)


def test_bounds_of_any_size_leave_the_model_finite(pool):
    for value in (1e48, -1e48, 0., 7.1, 1e9):
        for sense in (1, -1):
            s = Surrogate(Prior.gntk(pool)).learn([*range(12), 3, 20], [
                *np.linspace(6, 8, 12).tolist(), Bound(value, sense), Bound(value, sense)])
            for v in (s.mean, s.std, *s.interval()): assert v.isfinite().all()
            assert np.isfinite(s.fit.evidence) and s.leave_one_out().notna().all().all()


def test_noise_decides_between_a_bound_and_replicates_that_contradict_it(pool):
    arms, values = [0]*6 + [1, 2, 3], [5., 5.1, 4.9, 5., 5.1, 4.9, 6., 7., 4.]
    plain = Surrogate(Prior.gntk(pool)).learn(arms, values)
    odd = Surrogate(Prior.gntk(pool)).learn([*arms, 0], [*values, Bound(6., 1)])
    assert plain.mean[0] < odd.mean[0] < 6 and odd.fit.noise > plain.fit.noise


def test_a_known_noise_counts_for_bounds_too(pool):
    mean = {}
    for noise in (0.01, 1.):
        s = Surrogate(Prior.gntk(pool), noise).learn(range(6), [6., 7., 8., 7.5, 6.5, Bound(9., 1)])
        mean[noise] = s.mean[5]
        assert s.data.noise == [noise]*6
    assert mean[0.01] > mean[1.]


def test_a_model_without_a_private_part_takes_bounds(pool):
    belief = FittedBelief(Prior.gntk(pool)).observe(range(5), [6., 7., 8., 7.5, Bound(9., 1)])
    assert belief.mean.isfinite().all() and belief.mean[4] > 8.5


def test_sites_of_many_bounds_that_say_the_same_settle():
    x = np.linspace(0, 1, 120)
    S = torch.from_numpy(0.99*np.exp(-(x[:, None] - x)**2) + 0.01*np.eye(120))
    c, v = torch.full((120,), 1.).double(), torch.full((120,), 0.01).double()
    far, near = bound_sites(S, c, v), bound_sites(S, c, v, rounds=2000, tol=1e-12)
    assert torch.allclose(far.precision, near.precision, rtol=1e-5, atol=1e-8)
    assert (near.precision > 0).all() and (near.precision < 100).all()


def test_bounds_are_kept_undone_and_told_again(pool, campaign, tmp_path):
    c, before = campaign, campaign.predict()
    obs = c.observations
    assert obs["bound"].tolist() == ["", ">10", "", "<2", "", "", ">9.5"]
    assert obs["value"].isna().tolist() == [b != "" for b in obs["bound"]] and len(c.exact) == 4
    assert Campaign.open(c.path).predict().equals(before)
    c.tell("m9", "> 12").undo()
    assert c.predict().equals(before) and "m9" not in c.observations["id"].tolist()
    for again in (c.observations, told_by_id(c.path), pd.read_csv(c.export(tmp_path/"t")[1])):
        new = Campaign.create(tmp_path/str(np.random.default_rng().integers(2**62)), pool, ids=IDS,
                              results=again)
        assert new.predict().equals(before) and new.suggest(3).equals(c.suggest(3))
    stored = c._events[0].data["values"]
    assert stored[1] == ">10" and not all(map(finite, stored))       # earlier versions refuse it


def test_minimising_turns_bounds_around(pool, campaign, tmp_path):
    other = {k: f"<-{v[1:]}" if str(v)[0] == ">" else f">-{v[1:]}" if str(v)[0] == "<" else -v
             for k, v in TOLD.items()}
    small = Campaign.create(tmp_path/"small", pool, ids=IDS, maximize=False, results=other)
    assert (small.predict()["mean"] == -campaign.predict()["mean"]).all()
    assert small.ask(4) == campaign.ask(4)


def test_a_bound_is_never_a_value(campaign):
    assert campaign.best_measured()["id"][0] == "m4"
    best = campaign.best(7).set_index("id")
    assert best["bound"]["m1"] == ">10" and np.isnan(best["value"]["m1"])
    table = campaign.to_dataframe().set_index("id")
    assert table["state"]["m1"] == "measured" and np.isnan(table["value"]["m1"])
    assert "m1" in best.index[:2] and "bound" in campaign.model().sentences[0]


def test_bounds_alone_wait_for_an_exact_value(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool, ids=IDS, policy="ei")
    c.tell(IDS[:12], [">10"]*12)
    assert c.predict()["mean"].isna().all() and "waits" in str(c.model())
    assert set(c.suggest(5)["why"]) == {"at random, until a value is exact"}
    for ask in (c.best, c.best_measured, c.certificate):
        with pytest.raises(ValueError, match="only bounds"): ask()
    assert c.goal(9.)["reached"] is False and c.report(tmp_path/"r.html").exists()
    c.ask(), c.tell("m12", 7.)
    assert c.predict()["mean"].notna().all() and c.suggest()["why"][0] == "ei"


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_bound_is_refused(campaign, shell, bad):
    (campaign.path.parent/"r.csv").write_text(f'id,value\nm20,1.5\nm21,"{bad}"\n')
    for tell in (lambda: campaign.tell("m20", bad), lambda: campaign.tell({"m20": 1., "m21": bad}),
                 lambda: campaign.tell(pd.Series({"m20": 1., "m21": bad}))):
        with pytest.raises(ValueError, match="is no bound"): tell()
    for words in (["m20", bad], ["r.csv"]):
        code, out, err = shell("tell", "c", *words)
        assert code == 2 and not out and err.count("\n") == 1 and "is no bound" in err
    assert len(campaign.observations) == 7


def test_a_bound_has_no_noise(campaign, shell):
    with pytest.raises(ValueError, match="no noise of its own"):
        campaign.tell(["m20", "m21"], [1., ">3"], noise=[None, 0.1])
    code, _, err = shell("tell", "c", "m20", ">3", "--noise", "0.1")
    assert code == 2 and "no noise of its own" in err and err.count("\n") == 1
    campaign.tell(["m20", "m21"], [7., ">3"], noise=[0.1, None])
    assert len(campaign.observations) == 9
    with pytest.raises(ValueError, match="finite number"): campaign.tell("m22", "3.5")
    code, _, err = shell("tell", "c", "m20")
    assert code == 2 and "quotation marks" in err


def test_the_program_says_what_it_knows(campaign, shell):
    code, out, _ = shell("tell", "c", "m7", ">= 11")
    assert code == 0 and "best exact value so far: 7.3 of m4; beyond it: m1 (>10)" in out
    assert ">11" in shell("status", "c")[1] and ">11" in shell("status", "c", "--model")[1]
    assert json.loads(shell("status", "c", "--model", "--json")[1])["best"][0]["bound"]
    assert shell("tell", "c", "m7", ">11")[2].startswith("gnn_bandits: note: 1 of these values")
    assert shell("report", "c", "--out", "r.html")[0] == 0
    page = (campaign.path.parent/"r.html").read_text()
    assert "m7 &gt;11" in page and "&gt;10" in page


def test_a_slip_is_recorded_with_a_question(campaign, shell):
    campaign.tell("m20", 7.4)
    with pytest.warns(UserWarning, match=r"m8: 65.2 is far .* did you mean 6.52\?.*c.undo\(3\)"):
        campaign.tell("m8", 65.2)
    assert len(campaign.observations) == 9 and len(campaign.doubts()) == 1
    campaign.undo()
    code, out, err = shell("tell", "c", "m8", "65.2")
    assert code == 0 and "did you mean 6.52?" in err and "--event 5" in err
    assert shell("undo", "c", "--event", "5")[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        campaign.tell({"m8": 6.52, "m9": ">65", "m10": 9.})
    assert campaign.doubts() == []


def test_replicates_of_one_candidate_raise_no_doubt(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool, ids=IDS).tell(["m0"]*6, [7., 6.8, 7.1, 6.9, 7.2, 7.])
    assert c.tell("m1", 65.2).doubts() == []


@pytest.mark.parametrize("value, others, said", [
    (65.2, [7., 6.8, 7.1, 6.9, 7.2], "6.52"), (0.71, [7., 6.8, 7.1, 6.9, 7.2], "7.1"),
    (-7., [7., 6.8, 7.1, 6.9, 7.2], "7"), (2e9, [-1., 1., 0., 2., -2.], "right"),
    (65.2, [7., 6.8, 7.1, 6.9], None), (8., [7., 6.8, 7.1, 6.9, 7.2], None),
    (5., [0.]*9, None), (1e150, [-1e150, 0., 1., 5., 9.], None)])
def test_which_values_look_like_slips(value, others, said):
    found, ask = slip(value, others), "is it right?" if said == "right" else f"did you mean {said}?"
    assert ask in found if said else found == ""


def test_a_journal_that_holds_no_bound_is_refused(campaign, pool, tmp_path):
    for k, bad in enumerate((">", ">ten", "10", [">", 3], None)):
        c = Campaign.create(tmp_path/f"odd{k}", pool, ids=IDS)
        with Journal.open(c.path/"journal.db") as j: j.append("tell", dict(arms=[1], values=[bad]))
        with pytest.raises(ValueError, match="does not say what such events say"): c.observations


def test_where_bounds_are_not_taken(pool):
    alg = make_algorithm("GNN-UCB", pool, rng=np.random.default_rng(0))
    for bad in (">10", Bound(10., 1)):
        with pytest.raises(ValueError, match="can be told to a campaign"): alg.tell(alg.ask(), bad)
        with pytest.raises(ValueError, match="can be told to a campaign"):
            GraphRegressor().fit(pool[:3], [1., 2., bad])
