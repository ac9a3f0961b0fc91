"What is told lands where it belongs, what no model can use is refused, and asking is cheap."
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import campaigns, cli
from gnn_bandits.kernels import GNTK
from gnn_bandits.priors import Prior
from gnn_bandits.campaigns import Campaign, propose
from gnn_bandits.core import plain
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.journal import Journal
from gnn_bandits.logbook import PLATES, SPAN, Arm, CampaignPolicy
from gnn_bandits.surrogate import Surrogate

pytestmark = pytest.mark.usefixtures("one_thread")
N = 30
IDS = [f"m{i}" for i in range(N)]


@pytest.fixture(scope="module")
def pool(): return GraphDomain.erdos_renyi(N, 6, 0.4, 3, np.random.default_rng(0))


@pytest.fixture
def c(pool, tmp_path): return Campaign.create(tmp_path/"c", pool, ids=IDS)


@pytest.fixture
def own(pool, tmp_path):
    "A campaign whose ids are integers in another order than the candidates."
    return Campaign.create(tmp_path/"own", pool[:3], ids=[2, 1, 0])


def rows(c): return list(zip(c.observations["id"], c.observations["value"]))


# what is told lands where it belongs

def test_a_series_keeps_every_replicate(c):
    c.tell(pd.Series([1., 2., 3.], index=["m1", "m1", "m2"]))
    assert rows(c) == [("m1", 1.), ("m1", 2.), ("m2", 3.)]


@pytest.mark.parametrize("call", [
    lambda c: c.tell({"m5", "m6", "m7"}, [5., 6., 7.]), lambda c: c.tell(["m5"], {5.}),
    lambda c: c.tell(frozenset(["m5", "m6"]), [5., 6.]), lambda c: c.exclude({"m5", "m6"}),
    lambda c: c.fail({"m5"}), lambda c: c.drop({"m5"}), lambda c: c.predict({"m5"}),
    lambda c: c.tell(["m5"], [1.], noise={.1}), lambda c: c.arms_of({3, 4})])
def test_sets_are_refused_in_every_call(c, call):
    with pytest.raises(ValueError, match="a set, which has none; give a list"): call(c)
    assert len(c.events) == 0


def test_keys_and_values_of_a_dictionary_have_an_order(c):
    d = {"m7": 7., "m5": 5.}
    c.tell(d.keys(), d.values())
    assert rows(c) == [("m7", 7.), ("m5", 5.)] and plain(d.keys()) == ["m7", "m5"]


def test_two_series_must_have_the_same_index(c):
    ids = pd.Series(["m1", "m2"])
    c.tell(ids, pd.Series([1., 2.]))                                # the same, by default
    c.tell(ids, pd.Series([1., 2.], index=["m1", "m2"]))            # labels are the candidates
    c.tell(ids.set_axis(["x", "y"]), pd.Series([1., 2.], index=["x", "y"]))
    c.tell(ids, [1., 2.])
    assert rows(c) == 4*[("m1", 1.), ("m2", 2.)]
    for index in ([1, 0], ["m2", "m1"], [3, 7], ["x", "y"]):
        with pytest.raises(ValueError, match="in the order of the candidates"):
            c.tell(ids, pd.Series([2., 1.], index=index))
    with pytest.raises(ValueError, match="expected the noise in the order"):
        c.tell(ids, [1., 2.], noise=pd.Series([.1, .2], index=[1, 0]))
    with pytest.raises(ValueError, match="expected the noise in the order"):
        c.tell(pd.Series({"m1": 1., "m2": 2.}), noise=pd.Series({"m2": .1, "m1": .2}))
    assert len(c.observations) == 8


def test_a_series_beside_a_list_goes_by_position_unless_its_labels_say_otherwise(c):
    truth = pd.Series(np.arange(N) + .5, index=IDS)
    c.tell(["m4", "m3"], truth[["m4", "m3"]])
    batch = c.ask(2)
    c.tell(batch, truth.iloc[batch])
    c.tell(["m9"], pd.Series([9.5], index=[17]))                    # a row of some other table
    c.tell([8, 7], pd.Series([8.5, 7.5]))                           # the default says nothing
    assert all(value == int(i[1:]) + .5 for i, value in rows(c)) and len(c.observations) == 7
    for arms in (["m4", "m3"], [4, 3]):
        with pytest.raises(ValueError, match="in the order of the candidates"):
            c.tell(arms, truth[["m3", "m4"]])


def test_a_table_with_two_columns_of_one_name_is_refused(c):
    table = pd.DataFrame([["m1", 1., 2.]], columns=["id", "value", "value"])
    with pytest.raises(ValueError, match="expected one column 'value', got 2"): c.tell(table)


# an integer may be an id

CALLS = {"tell": lambda c, **k: c.tell(**k, rewards=5.), "exclude": lambda c, **k: c.exclude(**k),
         "include": lambda c, **k: c.include(**k), "fail": lambda c, **k: c.fail(**k),
         "drop": lambda c, **k: c.drop(**k), "predict": lambda c, **k: c.predict(**k)}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [2, np.int64(2), [2], (2,), np.array([2]), torch.tensor([2])])
def test_an_integer_that_is_an_id_is_refused_unless_said_which(own, name, given):
    own.ask(3)
    if name == "include": own.exclude(ids=[0, 1, 2])
    before = len(own.events)
    with pytest.raises(ValueError, match="say which with arms=2 or ids=2"):
        CALLS[name](own, candidates=given)
    assert len(own.events) == before
    for kind, arm in (("arms", 2), ("ids", 0)):                     # id 2 is the first candidate
        out = CALLS[name](own, **{kind: given})
        said = out["arm"].tolist() if name == "predict" else own._events[-1].data["arms"]
        assert said == [arm]
    with pytest.raises(ValueError, match="expected candidates once"):
        CALLS[name](own, arms=given, ids=given)


@pytest.mark.parametrize("results", [{2: 5.}, pd.Series({2: 5.}), {2: 5., "1": 3.}])
def test_results_at_the_start_follow_the_same_rule(pool, tmp_path, results):
    with pytest.raises(ValueError, match="say which"):
        Campaign.create(tmp_path/"c", pool[:3], ids=[2, 1, 0], results=results)
    assert list(tmp_path.iterdir()) == []
    tables = {"id": 0, "arm": 2}
    for name, arm in tables.items():
        c = Campaign.create(tmp_path/name, pool[:3], ids=[2, 1, 0],
                            results=pd.DataFrame({name: [2], "value": [5.]}))
        assert c.observations["arm"].tolist() == [arm]
        assert c.undo().data["arms"] == [arm]
        c.tell(pd.Series([5.], index=pd.Index([2], name=name)))
        assert c.observations["arm"].tolist() == [arm]


@pytest.mark.parametrize("wrap", [list, tuple, lambda b: b[::-1], lambda b: [b[0], b[1]], sorted])
def test_what_ask_returns_is_accepted_by_every_call(own, wrap):
    batch = wrap(own.ask(2))
    assert json.loads(json.dumps(batch)) == [int(a) for a in batch]
    own.fail(batch, "broke").include(batch).exclude(batch).include(batch)
    own.tell(batch, [1., 2.])
    assert own.observations["arm"].tolist() == list(batch)
    assert own.predict(batch)["arm"].tolist() == list(batch)
    own.ask(1), own.drop(own.pending), own.drop(own.ask(1))
    own.tell(own.suggest(1)["arm"], [3.])
    assert own.best(3)["measurements"].tolist() == [1, 1, 1]
    assert all(type(a) is int for e in own._events for a in e.data.get("arms", []))


def test_integers_that_are_no_ids_stay_numbers(pool, tmp_path, c):
    c.tell(2, 5.)                                                   # ids are text
    assert rows(c) == [("m2", 5.)]
    bare = Campaign.create(tmp_path/"bare", pool).tell([3, Arm(4)], [1., 2.])
    assert bare.observations["arm"].tolist() == [3, 4]
    bare.add(pool[:2]).tell(N + 1, 3.)                              # numbers go on
    assert bare.observations["arm"].tolist() == [3, 4, N + 1]
    far = Campaign.create(tmp_path/"far", pool[:3], ids=[10, 20, 30]).tell(1, 5.)
    assert rows(far) == [("20", 5.)] and far.tell(ids=10, rewards=1.)
    with pytest.raises(ValueError, match="say which"): far.tell(20, 5.)


def test_the_report_of_a_campaign_with_integers_as_ids(own, tmp_path):
    own.tell(["2", "1", "0"], [1., 2., 3.])
    assert own.report(tmp_path/"r.html").exists()


def test_the_command_line_means_ids(own, capsys):
    for line in (["tell", "2", "5.0"], ["exclude", "0"]):
        assert cli.main(["campaign", line[0], str(own.path), *line[1:]]) == 0
    assert rows(own) == [("2", 5.)] and own.to_dataframe()["state"].tolist() == [
        "measured", "available", "excluded"]


# numbers that no model can use

BAD = {"value": (5e-324, 1e-310, -1e-160, 1e160, 1e308, 10**400, 1e60, -1e-60),
       "noise": (1e200, 1e100, 1e-300)}


@pytest.mark.parametrize("what, x", [(k, x) for k, some in BAD.items() for x in some])
@pytest.mark.parametrize("before", [True, False])
def test_numbers_that_no_model_can_use_are_not_recorded(c, what, x, before):
    if before: c.tell("m1", 3.)
    told = [x, None] if what == "value" else [1., x]
    with pytest.raises(ValueError, match="expected the .* of 'm[23]' to be (between|within)"):
        c.tell(["m2", "m3"], [told[0], 1.], [told[1], None])
    assert len(c.events) == before


@pytest.mark.parametrize("noise_std", [1e300, 1e160, 1e-300])
def test_nor_is_such_a_noise_accepted_at_the_start(pool, tmp_path, noise_std):
    with pytest.raises(ValueError, match="expected noise_std to be between"):
        Campaign.create(tmp_path/"c", pool, noise_std=noise_std)
    assert list(tmp_path.iterdir()) == []


def test_a_value_must_fit_the_noise_of_the_start(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool, noise_std=1e60)
    with pytest.raises(ValueError, match=r"48 orders .* got 1 beside 1e\+60"): c.tell(1, 1.)
    assert len(c.tell(1, 1e61).ask(2)) == 2


def test_the_command_line_refuses_them_too(c, capsys, tmp_path):
    for words in (["m2", "1.0", "--noise", "1e200"], ["m2", "5e-324"]):
        assert cli.main(["campaign", "tell", str(c.path), *words]) == 2
        assert "between 1e-150 and 1e+150" in capsys.readouterr().err
    assert len(c.events) == 0


def test_any_unit_will_do(pool, tmp_path):
    truth, found = np.random.default_rng(1).standard_normal(8), []
    for unit in (1., 2.**-400, 2.**300):                            # powers of two do not round
        c = Campaign.create(tmp_path/f"{unit:g}", pool).tell(range(8), unit*truth, noise=unit/8)
        found.append(c.ask(3))
    assert found[0] == found[1] == found[2]


def test_whatever_is_accepted_can_be_asked_about(pool, tmp_path):
    rng = np.random.default_rng(3)
    for run in range(12):
        least = rng.uniform(-140, 140)
        ends = least, min(least + math.log10(SPAN), 150)
        sizes = lambda k, ends=ends: np.clip(10**rng.uniform(*ends, k), 10**ends[0], 10**ends[1])
        c = Campaign.create(tmp_path/str(run), pool, noise_std=None if run % 2 else sizes(1)[0])
        for _ in range(6):
            value = rng.choice([-1., 0., 1.], 4)*sizes(4)
            noise = [None if rng.random() < .5 else float(s) for s in sizes(4)]
            try: c.tell(rng.integers(N, size=4).tolist(), value, noise)
            except ValueError as e: assert "48 orders of magnitude" in str(e)   # a rounded end
            c.suggest(2)
            if len(c.observations): assert c.surrogate().latent.mean.isfinite().all()


@pytest.mark.parametrize("value, noise", [(1., None), (-1., 1e-48), (1., 1.), (1e-48, 1.)])
def test_values_after_the_last_fit_may_be_anything_that_is_accepted(tmp_path, value, noise):
    X = GraphDomain.erdos_renyi(70, 5, 0.4, 3, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    for near in (1e-48*(1 + 1e-11*rng.random(55)), 1e-48*np.exp(rng.exponential(1.5, 55))):
        c = Campaign.create(tmp_path/str(near[0]), X).tell(range(55), near)
        c.suggest(2)
        c.tell([60, 61, 60], [value, 0., 1e-30], [noise, None, None])
        assert c.surrogate().fit.t == 55 and len(c.ask(3)) == 3
        assert c.surrogate().latent.mean.isfinite().all()


def test_a_record_that_has_such_a_number_says_which_event_to_undo(c):
    c.tell(IDS[:8], np.random.default_rng(1).standard_normal(8))
    before = c.suggest(3)
    c._commit("tell", dict(arms=[12], values=[1.], noise=[1e200]))  # as an earlier version did
    c.tell("m13", 0.5)
    bad = int(c.events["event"].iloc[-2])
    for call in (c.ask, c.suggest, c.predict, c.best, c.model):
        with pytest.raises(ValueError, match=rf"event {bad}, .* noise 1e\+200 of 'm12'.*c.undo"):
            call()
    with pytest.raises(ValueError, match=f"undo .* --event {bad}"): c.ask()
    c.undo(bad), c.undo()
    assert c.suggest(3).drop(columns="why").equals(before.drop(columns="why"))


def test_a_noise_from_the_start_that_no_model_can_use_is_named(c, pool, tmp_path):
    c.settings["noise_std"] = 1e300                                 # as an earlier version did
    c._commit("tell", dict(arms=[1, 2], values=[1., 2.]))
    with pytest.raises(ValueError, match=r"noise_std=1e\+300 .* results=c.observations"): c.ask()
    again = Campaign.create(tmp_path/"again", pool, ids=IDS, results=c.observations)
    assert rows(again) == rows(c) and len(again.ask(2)) == 2


def test_large_numbers_of_an_earlier_version_that_the_model_can_use_still_work(c):
    c._commit("tell", dict(arms=list(range(8)), values=[1e300*k for k in range(8)]))
    assert len(c.ask(2)) == 2


# a batch that straddles the start

@pytest.mark.parametrize("policy", ["ucb", "ei", "ts", "pe", "po", "random"])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("batches", [(8, 8), (16,), (10, 6), (3, 9, 4)])
def test_as_many_candidates_in_the_plate_as_announced(pool, tmp_path, policy, told, batches):
    c = Campaign.create(tmp_path/"c", pool, policy=CampaignPolicy(policy, starts=10))
    asked = []
    for n in batches:
        asked += c.ask(n)
        if told: c.tell(asked[-n:], np.sin(asked[-n:]))
    assert len(set(asked)) == 16
    why = [w["why"] for e in c._events if e.kind == "ask" for w in e.data["why"]]
    start = PLATES["random" if policy == "random" else "diverse"]
    assert [w == start for w in why] == [True]*10 + [False]*6
    assert all(w.startswith("at random" if policy == "random" else policy) for w in why[10:])
    if told and len(batches) > 1: assert why[-1] in (policy, "at random")


def test_the_model_takes_the_random_ones_of_its_batch_for_pending(pool):
    model = Surrogate(Prior.gntk(pool).standard).learn([0, 1, 2], [0.3, 1., -1.])
    state, policy = np.full(N, "available", dtype="<U9"), CampaignPolicy("ucb", starts=8)
    state[:3] = "measured"
    arms, how = propose(model, policy, 9, state, np.random.default_rng(0))
    assert how == ["at random, as a start"]*5 + ["ucb"]*4
    assert arms[:5] == propose(model, policy, 5, state, np.random.default_rng(0))[0]
    state[arms[:5]] = "pending"
    assert arms[5:] == propose(model, policy, 4, state, np.random.default_rng(9))[0]


def test_a_batch_larger_than_the_pool_ends_with_it(pool):
    model = Surrogate(Prior.gntk(pool[:5]).standard)
    state = np.array(["available", "failed", "available", "excluded", "available"])
    arms, _ = propose(model, CampaignPolicy(starts=2), 9, state, np.random.default_rng(0))
    assert sorted(arms) == [0, 2, 4]


# the column nearest

def test_the_nearest_candidates_are_looked_up(pool, tmp_path, monkeypatch):
    c = Campaign.create(tmp_path/"c", pool, ids=IDS)
    c.tell(IDS[:20], np.random.default_rng(1).standard_normal(20))
    c.suggest(5)                                                    # the model is there
    made, between = [], GNTK.between
    monkeypatch.setattr(GNTK, "between", lambda self, a, b: made.append(len(a)) or
                        between(self, a, b))
    found = c.suggest(5)
    assert made == []                                               # no kernel was computed again
    C = c.surrogate().prior.block(list(range(N)))
    C = (C/(C.diagonal()*C.diagonal()[:, None]).sqrt()).numpy()
    for arm, text in zip(found["arm"], found["nearest"]):
        order = np.argsort(-C[arm, :20].round(6), kind="stable")[:3]
        assert text == ", ".join(f"m{i} ({C[arm, i]:.2f})" for i in order)


def test_a_candidate_is_not_near_itself(pool, tmp_path):
    c = Campaign.create(tmp_path/"c", pool[:6], ids=IDS[:6])
    c.tell(IDS[:6], [1., 2., 3., 4., 5., 6.])
    found = c.suggest(3, repeats=True)
    assert all(i not in text.replace("(", " ").split() for i, text in
               zip(found["id"], found["nearest"]))
    assert all(text.count(",") == 2 for text in found["nearest"])


def test_correlations_agree_however_a_prior_is_held(pool):
    arms, others = [3, 0, 7], [1, 3, 9, 20]
    K = Prior.gntk(pool).standard
    want = (K.K/(K.diag*K.diag[:, None]).sqrt())[arms][:, others]
    np.testing.assert_allclose(K.correlations(arms, others), want, rtol=1e-12)
    assert K.correlations(arms, []).shape == (3, 0)
    for prior in (Prior.gntk(pool, form="rows").standard,
                  Prior.features(pool, 4, dtype=torch.float64).standard):
        got, C = prior.correlations(arms, others), prior.block(list(range(N)))
        d = C.diagonal().sqrt()
        np.testing.assert_allclose(got, (C/d/d[:, None])[arms][:, others], atol=2e-8)
        assert math.isclose(float(got[0, 1]), 1., abs_tol=2e-8)
        assert prior.correlations(arms, []).shape == (3, 0)


# the first plate

def test_a_new_campaign_begins_with_candidates_far_apart_and_says_so(pool, tmp_path):
    policy = CampaignPolicy(starts=6)
    one, each = (Campaign.create(tmp_path/k, pool, policy=policy, seed=5) for k in ("one", "each"))
    batch = one.ask(6)
    assert [a for _ in range(6) for a in each.ask()] == batch           # whatever the batches
    assert one.settings["policy"]["plate"] == "diverse"
    assert {w["why"] for e in one._events for w in e.data["why"]} == {PLATES["diverse"]}
    prior = one._priors_of()[0].standard
    D = prior.diag[:, None] + prior.diag - 2*prior.K
    for k in range(1, 6):
        least = D[batch[:k]].amin(0)
        assert least[batch[k]] >= least.max()*(1 - 1e-9)
    other = Campaign.create(tmp_path/"other", pool, policy=policy, seed=6)
    assert other.ask(6) != batch


def test_a_campaign_of_before_keeps_its_random_plate(pool, tmp_path):
    new = Campaign.create(tmp_path/"r", pool, policy=CampaignPolicy(starts=6, plate="random"))
    c = Campaign.create(tmp_path/"c", pool, policy=CampaignPolicy(starts=6))
    settings = json.loads((c.path/"campaign.json").read_text())
    del settings["policy"]["plate"]
    c.close()
    (c.path/"campaign.json").write_text(json.dumps(settings))
    (c.path/"journal.db").unlink()
    Journal.create(c.path/"journal.db", settings).close()
    with Campaign.open(c.path) as old:
        assert old.policy.plate is None and old.ask(6) == new.ask(6)
        assert old.set_policy("ei").policy.plate is None
        old.drop()
        assert {w["why"] for w in json.loads(old.suggest(2).to_json(orient="records"))} == {
            PLATES["random"]}
    assert new.set_policy("ei").policy.plate == "random"
    assert new.set_policy(CampaignPolicy(plate="diverse")).policy.plate == "diverse"


def test_a_plate_keeps_away_from_what_is_known_and_leaves_twins_out(pool, tmp_path):
    both = GraphDomain.concat([pool[:8], pool[:8]])
    c = Campaign.create(tmp_path/"c", both, policy=CampaignPolicy(starts=8))
    c.tell([3, 5], [1., 2.]).exclude(0, "gone").fail(1, "broke")
    batch = c.ask(6)
    assert len({a % 8 for a in (*batch, 3, 5)}) == 8 and not {0, 1} & set(batch)


def test_a_plate_of_a_large_pool_is_chosen_in_a_sample(pool, monkeypatch):
    monkeypatch.setattr(campaigns, "WIDE", 20)
    monkeypatch.setattr(campaigns, "SAMPLE", 12)
    prior, free = Prior.gntk(pool).standard, torch.ones(N, dtype=torch.bool)
    free[::2] = False
    batch = campaigns.diverse(prior, 5, free, [0, 2], np.random.default_rng(0))
    assert len(set(batch)) == 5 and all(a % 2 for a in batch)
    assert batch == campaigns.diverse(prior, 5, free, [0, 2], np.random.default_rng(0))
    assert len(campaigns.diverse(prior, 99, free, [], np.random.default_rng(0))) == 12


# how probably each candidate is the best

def test_probabilities_of_being_the_best(pool, tmp_path):
    both = GraphDomain.concat([pool, pool[:3]])
    c = Campaign.create(tmp_path/"c", both, prior=Prior.gntk(both))
    assert c.predict()["p_best"].isna().all()
    with pytest.raises(ValueError, match="nothing was told"): c.contenders()
    c.tell(range(3, 12), np.sin(np.arange(3, 12.))).exclude(20, "gone")
    p = c.predict()["p_best"]
    assert p.sum() == pytest.approx(1) and p[20] == 0 and (p.drop(20) > 0).all()
    np.testing.assert_allclose(p[[0, 1, 2]], p[[N, N + 1, N + 2]])     # twins share
    c.ask(2)
    assert c.predict()["p_best"].equals(p) and Campaign.open(c.path).predict()["p_best"].equals(p)
    sure = c.contenders(0.5)
    assert sure["probability"] >= 0.5 > sum(sure["p_best"][:-1]) and 20 not in sure["arms"]
    assert sure["measured"] == pytest.approx(p[3:12].sum()) and "probability" in sure["sentence"]
    assert c.best()["p_best"][0] == p[c.best()["arm"][0]]
    with pytest.raises(ValueError, match="level"): c.contenders(1.)
