"""Runs step by step: replays of every policy, odd runs, hostile text, and the component
in a real browser.

The browser tests need `chromium` (or `google-chrome`) on the PATH and skip without it; with
REQUIRE_BROWSER=1 they fail instead."""
import base64
import gzip
import json
import re

import numpy as np
import pytest

from html_reader import Reader
from gnn_bandits.bandits import make_algorithm, run_bandit
from gnn_bandits.campaigns import Campaign
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.reports import record_campaign
from gnn_bandits.rewards import Environment, sample_reward
from gnn_bandits.watch import (Slides, Watch, drawn_arms, frame_paths, frame_times, heights, packed,
                               payload, record, round_numbers, tick_text, value_range)

NASTY = "</script><img src=x onerror=alert(1)>'\"&{0}{1}"
NAMES = "GNN-PE", "NN-PE", "GNN-UCB", "NN-TS", "GNN-EI", "Random"
pytestmark = pytest.mark.usefixtures("one_thread")


def play(name="GNN-PE", n=24, T=14, seed=0, **options):
    "An algorithm that has played, its environment and its history"
    rng = np.random.default_rng(seed)
    domain = GraphDomain.erdos_renyi(n, 5, 0.4, 3, rng)
    env = Environment(domain, sample_reward(domain, rng), rng=rng)
    alg = make_algorithm(name, domain, rng=rng, **options)
    return alg, env, run_bandit(alg, env, T)


@pytest.fixture(scope="module")
def pair():
    "GNN-PE and NN-PE on the same graphs and rewards"
    return [record(alg, h, env) for alg, env, h in (play("GNN-PE"), play("NN-PE"))]


def campaign(path, told=9, n=24, **options):
    domain = GraphDomain.erdos_renyi(n, 5, 0.4, 3, np.random.default_rng(0))
    c = Campaign.create(path, domain, **options)
    if told: c.tell(list(range(told)), np.sin(np.arange(told)).tolist())
    return c


# replays

@pytest.mark.parametrize("options", [
    *[dict(name=name) for name in NAMES], dict(name="GNN-PE", lam=0.01, beta=2., final_from=8),
    dict(name="GNN-UCB", model="linearized", m=16), dict(name="GNN-TS", model="trained", m=16),
    dict(name="GNN-PE", preset="paper", random_pulls=4),
    dict(name="GNN-PE", lam=0.01, episodes="doubling", random_pulls=0)], ids=str)
def test_replay_is_the_run(options):
    alg, env, history = play(**options)
    arms, following = list(alg.arms), alg.ask()
    run = record(alg, history, env)
    assert alg.t == 14 and alg.arms == arms and alg.ask() == following      # it was not touched
    before, pulled = slice(0, 14), (np.arange(14), history.arms)
    np.testing.assert_allclose(run.mean[before].max(1), history.predicted, atol=1e-9)
    np.testing.assert_allclose((run.high - run.mean)[pulled], alg.beta*history.std, atol=1e-9)
    np.testing.assert_allclose(run.mean[-1], alg.mean, atol=1e-9)
    np.testing.assert_allclose(run.curve, history.regret.cumsum())
    if alg.name.endswith("PE"):
        np.testing.assert_array_equal(run.active[before].sum(1), history.active)
    finite = np.isfinite(run.limit)
    assert finite.all() != alg.phased
    if finite.all() and alg.options.final_from is None:
        np.testing.assert_array_equal(run.active, run.high >= run.limit[:, None])
    np.testing.assert_array_equal(record(alg, env=env).mean, run.mean)      # its own record will do


def test_what_does_not_belong_together_is_refused():
    alg, env, history = play()
    _, _, other = play(seed=1)
    with pytest.raises(ValueError, match="pull 1 of the history is graph"): record(alg, other)
    with pytest.raises(ValueError, match="another environment"): record(alg, other, env)
    with pytest.raises(ValueError, match="another domain than these 5 arms"):
        record(play(n=5, T=3)[0], history)
    with pytest.raises(ValueError, match="environment with 24 arms, got 5"):
        record(alg, env=play(n=5, T=3)[1])
    fresh = make_algorithm("GNN-UCB", env.domain, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least one pull"): Watch(fresh)


@pytest.mark.parametrize("bad", [None, "GNN-PE", np.arange(3), 5])
def test_what_cannot_be_watched_is_refused(bad):
    with pytest.raises(ValueError, match="an algorithm, a recording or a campaign"): Watch(bad)


def test_runs_that_do_not_match_are_refused(pair):
    for kind, other in (("pulls", play(T=5)), ("graphs", play(n=30))):
        with pytest.raises(ValueError, match=f"same {kind}"): Watch(pair[0], other[0])
    short = record(*play("NN-PE")[:1], frames=5)
    with pytest.raises(ValueError, match="same frames"): Watch(pair[0], short)
    for few in ((), (*pair, pair[0])):
        with pytest.raises(ValueError, match="one run or two"): Watch(*few)
    for bad in (dict(most=1), dict(start=0), dict(start=16), dict(start=2.5)):
        with pytest.raises(ValueError): Watch(pair[0], **bad)
    for frames in (1, 0, 2.5):
        with pytest.raises(ValueError, match="frames"): Watch(play(T=3)[0], frames=frames)


def test_campaign_mirrored(tmp_path):
    up, down = campaign(tmp_path/"up"), campaign(tmp_path/"down", 0, maximize=False)
    obs = up.observations
    down.tell(obs["arm"].tolist(), (-obs["value"]).tolist())
    a, b = record_campaign(up), record_campaign(down)
    np.testing.assert_allclose(a.low, -b.high)
    np.testing.assert_allclose(a.limit, -b.limit)
    np.testing.assert_array_equal(a.active, b.active)
    np.testing.assert_array_equal(drawn_arms([a]), drawn_arms([b]))
    assert "smallest upper end" in Watch(b).html and "largest lower end" in Watch(a).html


@pytest.mark.parametrize("told, frames", [(1, None), (2, None), (9, 4), (24, 60)])
def test_campaigns_of_any_length(tmp_path, told, frames):
    run = record_campaign(campaign(tmp_path/"c", told), frames)
    assert run.times[-1] == told + 1 and len(run.times) <= min(frames or 60, told)
    assert f"After {told} measurement" in Watch(run, start=told + 1).html
    assert "nan" not in Reader(Watch(run).markup).text.lower()


# from numbers to paths

def unpack(text): return json.loads(gzip.decompress(base64.b64decode(text)))


def test_what_is_packed_is_what_the_runs_hold(pair):
    "Every interval of every frame is in the page, to half a unit"
    order, ends = drawn_arms(pair), value_range(pair)
    data = unpack(packed(payload(pair, order, ends, 3)))
    for run, part in zip(pair, data["runs"]):
        for key in ("low", "mean", "high"):
            value = ends[1] - (np.array(part[key]) - 18)/180*(ends[1] - ends[0])
            real = getattr(run, key)[:, order].clip(*ends)
            np.testing.assert_allclose(value, real, atol=(ends[1] - ends[0])/180/4 + 1e-12)
        np.testing.assert_array_equal(part["on"], run.active[:, order])
        np.testing.assert_array_equal(order[part["pulls"]], run.arms)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError): packed({"x": bad})


def test_heights_stay_inside():
    assert heights([-np.inf, 0., 0.5, 1., np.inf], (0., 1.)).tolist() == [198, 198, 108, 18, 18]


@pytest.mark.parametrize("ends", [(-0.1, 0.9), (0., 1e-9), (-3e8, 5e8), (1000., 1000.5)])
def test_round_numbers(ends):
    ticks = round_numbers(ends)
    assert 1 <= len(ticks) <= 8 and ends[0] <= ticks[0] and ticks[-1] <= ends[1]
    assert len(set(tick_text(ticks))) == len(ticks)


def test_large_runs_stay_light():
    alg, env, _ = play("Random", n=1000, T=400, lam=0.01)
    shown = Watch(alg, env=env)
    assert len(shown.arms) == 200 and len(shown.runs[0].times) == 120
    assert shown.arms[-1] == env.best and "200 of 1,000 graphs" in shown.html
    assert len(shown.html.encode()) < 150_000
    assert frame_times(400, 120)[[0, -1]].tolist() == [1, 401]


def test_odd_runs():
    one, env, _ = play("GNN-UCB", n=5, T=1)
    assert "After 1 pull:" in Watch(one, env=env, start=2).html
    flat = make_algorithm("GNN-PE", env.domain, rng=np.random.default_rng(0)).tell([0, 1], [3., 3.])
    assert "best value so far" in Watch(flat).html                        # never asked, all alike
    assert value_range(Watch(flat).runs)[0] < 3 < value_range(Watch(flat).runs)[1]


def test_hostile_text_stays_text(tmp_path):
    c = campaign(tmp_path/"<b>&'\"x", 6, ids=[f"{NASTY}{i}" for i in range(24)])
    page = Reader(Watch(c).markup)
    names = [tag for tag, _ in page.tags]
    assert "img" not in names and "script" not in names and "b" not in names
    assert not {k for _, a in page.tags for k in a if k.startswith("on")}
    data = unpack(next(a["data-watch"] for _, a in page.tags if "data-watch" in a))
    assert NASTY[:20] in data["runs"][0]["say"][0]
    assert "<b>&'\"x" in page.text


def test_no_ids_and_no_addresses(pair):
    text = Watch(*pair).html
    assert not re.search(r"\bid=|https?:|src=|href=|url\(", text)


def test_saved_whole(pair, tmp_path):
    path = Watch(pair[0]).save(tmp_path/"deep"/"run.html")
    assert path.read_text().endswith("</html>\n")
    assert repr(Watch(*pair)).startswith("Watch(GNN-PE and NN-PE: 15 steps, 24 graphs, ")


# in a browser

@pytest.fixture(scope="module")
def files(pair, tmp_path_factory):
    "Pages with two runs, with two components, and with a campaign"
    folder = tmp_path_factory.mktemp("watch")
    two = Watch(*pair).save(folder/"two.html")
    page = two.read_text()
    both = page.replace("</body>", Watch(pair[1], start=4).html + Watch(*pair).html + "</body>")
    (folder/"several.html").write_text(both)
    c = campaign(folder/"<b>&'\"x", 8, ids=[f"{NASTY}{i}" for i in range(24)])
    return {"two": two, "several": folder/"several.html",
            "campaign": Watch(c).save(folder/"c.html")}


@pytest.fixture
def visit(browser):
    "Open a page; errors and requests are collected"
    opened = []
    def go(path, **options):
        context = browser.new_context(**({"viewport": {"width": 1000, "height": 800}} | options))
        tab = context.new_page()
        tab.errors, tab.outside = [], []
        loud = "error", "warning"
        tab.on("console", lambda m: tab.errors.append(m.text) if m.type in loud else None)
        tab.on("pageerror", lambda e: tab.errors.append(str(e)))
        tab.on("dialog", lambda d: (tab.errors.append("a dialog opened"), d.dismiss()))
        tab.on("request", lambda r: tab.outside.append(r.url))
        tab.goto(path.as_uri())
        opened.append(context)
        if options.get("java_script_enabled", True):
            for box in tab.locator(".gb-watch").all(): box.locator(".gb-bar").wait_for()
        return tab
    yield go
    for context in opened: context.close()


PATHS = """box => Object.fromEntries([...box.querySelectorAll(".gb-run")].map((_, i) => [i,
    Object.fromEntries([...box.querySelectorAll(`.gb-r${i} path`)]
    .map(p => [p.className.baseVal.slice(3), p.getAttribute("d")])
    .filter(([name]) => !["grid", "truth", "all"].includes(name)))]))"""


def drawn(tab, which=0): return tab.locator(".gb-watch").nth(which).evaluate(PATHS)


def says(tab, which=0):
    return tab.locator(".gb-watch").nth(which).locator(".gb-say").all_text_contents()


def test_script_and_python_draw_the_same(visit, files, pair):
    without, tab = visit(files["two"], java_script_enabled=False), visit(files["two"])
    start = int(tab.locator("input").input_value())
    text = Reader(files["two"].read_text())
    static = [a["d"] for t, a in text.tags if t == "path" and a.get("class") == "gb-on"][:2]
    assert static == [drawn(tab)[str(i)]["on"] for i in range(2)]
    assert without.locator(".gb-say").all_text_contents() == says(tab)
    data = payload(pair, drawn_arms(pair), value_range(pair), start)
    for k in range(len(pair[0].times)):
        tab.locator("input").fill(str(k))
        for i, run in enumerate(data["runs"]):
            assert drawn(tab)[str(i)] == frame_paths(data, run, k), (k, i)
            assert says(tab)[i] == run["say"][k]
    assert 0 < start < len(pair[0].times) - 1 and tab.errors == []


def test_keyboard(visit, files):
    tab = visit(files["two"])
    slider = tab.locator("input[type=range]")
    slider.focus()
    tab.keyboard.press("Home")
    assert says(tab)[0].startswith("Pull 1: graph ")
    assert slider.get_attribute("aria-valuetext") == "pull 1 of 14"
    tab.keyboard.press("ArrowRight")
    assert says(tab)[0].startswith("Pull 2: graph ") and says(tab)[1].startswith("Pull 2: graph ")
    tab.keyboard.press("End")
    assert all(s.startswith("After 14 pulls: ") for s in says(tab))
    assert tab.locator("output").text_content() == "after 14 pulls"
    tab.keyboard.press("Shift+Tab"), tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement.className") == "gb-back"
    tab.keyboard.press("Enter")
    assert says(tab)[0].startswith("Pull 14: ")
    assert tab.errors == [] and tab.outside == [files["two"].as_uri()]


def test_play_and_pause(visit, files):
    tab = visit(files["two"])
    play_button, slider = tab.locator(".gb-play"), tab.locator("input")
    slider.fill("11")
    play_button.click()
    assert play_button.text_content() == "Pause"
    assert tab.locator(".gb-say").first.get_attribute("aria-live") == "off"
    tab.locator(".gb-play", has_text="Play").wait_for()
    assert slider.input_value() == "14" and "After 14 pulls" in says(tab)[0]
    assert tab.locator(".gb-say").first.get_attribute("aria-live") == "polite"
    play_button.click()                                        # at the end it begins again
    assert int(slider.input_value()) < 5
    play_button.click()
    assert play_button.text_content() == "Play"


def test_less_motion_is_respected(visit, files):
    tab = visit(files["two"], reduced_motion="reduce")
    tab.locator("input").fill("0")
    tab.locator(".gb-play").click()
    tab.wait_for_timeout(900)
    assert tab.locator("input").input_value() == "0"


def test_several_on_a_page(visit, files):
    tab = visit(files["several"])
    before = [says(tab, i) for i in range(3)]
    assert before[1][0].startswith("Pull 4: ") and before[0] == before[2]
    tab.locator(".gb-watch").nth(1).locator("input").fill("0")
    assert says(tab, 1)[0].startswith("Pull 1: ")
    assert [says(tab, 0), says(tab, 2)] == [before[0], before[2]] and tab.errors == []


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
@pytest.mark.parametrize("name", ["two", "campaign"])
def test_no_sideways_scrolling(visit, files, name, width):
    tab = visit(files[name], viewport={"width": width, "height": 740})
    size = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert size[0] <= size[1], size
    sizes = tab.eval_on_selector_all(".gb-parts svg text", """all => all.map(t =>
        parseFloat(getComputedStyle(t).fontSize)*t.ownerSVGElement.clientWidth/360)""")
    assert min(sizes) > 8.5, min(sizes)
    heights = tab.eval_on_selector_all(".gb-watch button", "all => all.map(b => b.offsetHeight)")
    assert min(heights) >= 36


def test_nothing_jumps(visit, files):
    for width in (360, 1000):
        screen = {"width": width, "height": 800}
        tops = [visit(files["two"], viewport=screen, java_script_enabled=js).locator(".gb-parts")
                .bounding_box()["y"] for js in (True, False)]
        assert abs(tops[0] - tops[1]) < 2, (width, tops)


def test_without_script(visit, files):
    tab = visit(files["two"], java_script_enabled=False)
    assert tab.locator("noscript p").is_visible() and not tab.locator("input").is_visible()
    assert tab.locator(".gb-run svg").first.is_visible() and "Pull " in says(tab)[0]
    assert tab.locator(".gb-run svg").first.bounding_box()["height"] > 150


GROUND = "getComputedStyle(document.querySelector('.gb-watch')).backgroundColor"


@pytest.mark.parametrize("scheme, theme, dark", [
    ("light", None, False), ("dark", None, True), ("light", "dark", True), ("dark", "light", False),
    ("dark", "auto", True), ("light", "auto", False)])
def test_dark(visit, files, scheme, theme, dark):
    tab = visit(files["two"], color_scheme=scheme)
    if theme: tab.evaluate(f"document.body.dataset.theme = {theme!r}")
    red = int(re.search(r"\d+", tab.evaluate(GROUND))[0])
    assert (red < 60) == dark
    from test_reports import CONTRAST
    weak, _ = tab.evaluate(CONTRAST.replace("main *", ".gb-watch *"))
    assert weak == []


def test_print(visit, files):
    tab = visit(files["two"], color_scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate(GROUND) == "rgb(255, 255, 255)"
    assert not tab.locator("input").is_visible() and tab.locator(".gb-run svg").first.is_visible()


def test_hostile_campaign(visit, files):
    tab = visit(files["campaign"])
    tab.locator("input").fill("0")
    assert NASTY[:20] in says(tab)[0] and tab.errors == []
    assert tab.outside == [files["campaign"].as_uri()]


def test_accessible_names(visit, files):
    tab = visit(files["several"])
    for kind in ("button", "input", "svg[role=img]", "[role=group]"):
        names = tab.eval_on_selector_all(f".gb-watch {kind}, .gb-watch{kind}",
                                         "all => all.map(e => e.ariaLabel || e.textContent.trim())")
        assert names and all(names), kind
    assert tab.eval_on_selector_all("[id]", "all => all.length") == 0


# other pictures with the same slider

def rising(figure, k):
    figure.subplots().plot([0, 1], [0, k])
    return f"{NASTY} The line rises by {k}."


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    "Two components on a page"
    shown = [Slides(rising, [1, 2, 3], "Lines", "slope", "slope {}".format),
             Slides(rising, [4, 5], NASTY, "step", start=0, caption=NASTY)]
    path = tmp_path_factory.mktemp("slides")/"slides.html"
    path.write_text("<!doctype html><html lang=en><title>Slides</title><meta charset=utf-8>"
                    "<meta name=viewport content='width=device-width'>"
                    + "".join(s.html for s in shown), encoding="utf-8")
    return path, shown


def test_slides_with_the_keyboard(visit, slides):
    path, (first, _) = slides
    tab = visit(path)
    slider, seen = tab.locator("input[type=range]").first, []
    assert slider.get_attribute("aria-valuetext") == "slope 2" and says(tab)[0] == first.say[1]
    slider.focus()
    for key, k in (("Home", 0), ("ArrowRight", 1), ("End", 2)):
        tab.keyboard.press(key)
        assert slider.get_attribute("aria-valuetext") == first.labels[k]
        assert tab.locator("output").first.text_content() == first.labels[k]
        assert says(tab)[0] == first.say[k]
        seen.append(tab.locator(".gb-still").first.inner_html())
    assert len(set(seen)) == 3 and says(tab, 1)[0].endswith("rises by 4.")
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert ids and len(ids) == len(set(ids))
    assert tab.errors == [] and tab.outside == [path.as_uri()]


def test_slides_without_script(visit, slides):
    tab = visit(slides[0], java_script_enabled=False)
    assert "This picture shows slope 2. With" in tab.locator("noscript p").first.text_content()
    assert says(tab)[0].endswith("rises by 2.") and not tab.locator("input").first.is_visible()
    assert tab.locator(".gb-still svg").first.bounding_box()["height"] > 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_slides_on_a_phone_and_in_the_dark(visit, slides, scheme):
    tab = visit(slides[0], color_scheme=scheme, viewport={"width": 360, "height": 740})
    size = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert size[0] <= size[1], size
    ink = tab.evaluate("getComputedStyle(document.querySelector('.gb-still use')).fill")
    assert (int(re.search(r"\d+", ink)[0]) > 128) == (scheme == "dark")
