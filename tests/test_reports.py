"""Reports of campaigns: hostile text, odd campaigns, large pools, and the page in a real browser.

The browser tests need `chromium` (or `google-chrome`) on the PATH and skip without it; with
REQUIRE_BROWSER=1 they fail instead."""
import io
import re
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import reports
from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign
from gnn_bandits.core import templates
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.reports import (formatter, health, history, improvement, left_out,
                                 plot_improvement, plot_leave_one_out, plot_model,
                                 plot_predictions, plot_progress, progress, ranked, report_page,
                                 write_report)

NASTY = ["<script>alert(1)</script>", '"onmouseover="alert(2)', "</style></title><img src=x>",
         "' onload='alert(3)", "$\\frac{1}{$", "a & b &lt; c", "名前 🧪", "]]> -->"]
NAMES = {"plot_progress": plot_progress, "plot_leave_one_out": plot_leave_one_out,
         "plot_predictions": plot_predictions, "plot_model": plot_model,
         "plot_improvement": plot_improvement}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pool(n, nodes=7):
    "Paths of different lengths"
    graphs = [nx.path_graph(2 + i % nodes) for i in range(n)]
    for i, g in enumerate(graphs):
        nx.set_node_attributes(g, {v: [1., i + v] for v in g}, "x")
    return GraphDomain.from_networkx(graphs, features="x")


def test_candidates_that_wait_before_anything_is_told(tmp_path):
    c = Campaign.create(tmp_path/"c", pool(6))
    c.ask(2)
    page = report_page(c)
    assert page.count("Pending 1") == page.count("Pending 2") == 1


def kernel(n):
    "A smooth kernel over numbered candidates, so that nothing has to be fitted over depths"
    x = np.linspace(0, 3, n)
    return Prior.kernel(torch.from_numpy(np.exp(-(x[:, None] - x)**2)))


def value(i, n): return np.sin(4*np.asarray(i)/n) + 0.01*(np.asarray(i) % 3)


def make(path, n=40, told=0, **options):
    "A campaign over paths with some values told"
    c = Campaign.create(path, pool(n), prior=kernel(n), **options)
    if told:
        arms = np.random.default_rng(0).permutation(n)[:told]
        c.tell(arms.tolist(), value(arms, n).tolist())
    return c


class Reader(HTMLParser):
    "Tags, attributes and text of a page"
    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(str(text))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open: self.open.remove(tag)

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open): self.text += data


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    "A campaign in which every text that can come from outside is hostile"
    n = 40
    ids = NASTY + [f"c{i}" for i in range(n - len(NASTY))]
    table = pd.DataFrame({name: [name]*n for name in NASTY})
    table["state"] = NASTY[0]
    folder = tmp_path_factory.mktemp("hostile")/"<b>&'\"campaign"
    c = make(folder, ids=ids, table=table)
    c.ask(6, note=NASTY[0])
    c.tell(pd.DataFrame({"id": NASTY[:6], "value": range(6), "note": NASTY[:6]}), note=NASTY[1])
    c.tell(["c3", "c9", "c20"], [3., 1., 2.], note=NASTY[2])
    c.fail("c1", NASTY[0]), c.exclude("c2", NASTY[3]), c.goal(5.)
    c.ask(2, note=NASTY[1])
    return c


@pytest.fixture(scope="module")
def hostile_file(hostile, tmp_path_factory):
    return write_report(hostile, tmp_path_factory.mktemp("pages")/"hostile.html", n=6)


def test_hostile_text_stays_text(hostile, hostile_file):
    page = Reader(hostile_file.read_text())
    names = [t for t, _ in page.tags]
    assert names.count("script") == 1 and "img" not in names and "b" in names
    attributes = {k for _, a in page.tags for k in a}
    assert not {k for k in attributes if k.startswith("on")}, attributes
    for text in NASTY: assert text in page.text, text
    assert "<b>&'\"campaign" in page.text


def test_hostile_text_does_not_break_the_plots(hostile):
    for name, plot in NAMES.items():
        if name == "plot_predictions": continue                # fonts lack some of the letters
        assert plot(hostile).get_xlabel(), name
    labels = [t.get_text() for t in plot_predictions(hostile, 3).get_yticklabels()]
    assert len(labels) == 3


def test_text_in_attributes():
    parts = templates().get_template("parts.html.jinja").module
    for text in NASTY:
        page = Reader(parts.table(pd.DataFrame({text: [text]}), text, [text], True))
        assert page.tags[0][1]["aria-label"] == text and page.text.count(text) == 2
        card = dict(title=text, id=text, picture={"words": text}, facts={text: text},
                    bar=reports.interval_bar(1, 2, 3, (0, 4), 2) | {"words": text})
        page = Reader(parts.card(card))
        assert page.text.count(text) == 5 and "script" not in dict(page.tags)
        assert dict(page.tags)["svg"]["aria-label"] == text
        page = Reader(parts.chart(dict(title=text, words=text, svg="<svg></svg>")))
        assert dict(page.tags)["div"]["aria-label"] == f"{text}. {text}"
        assert page.text.count(text) == 2 and dict(page.tags)["svg"] == {}
        light = reports.Light(text, text, text, text)
        assert Reader(parts.light(light)).tags[0] == ("li", {"class": text})


def test_only_these_places_are_not_escaped():
    "Styles, scripts, markup of our own templates, and drawings of matplotlib and rdkit"
    found = {name: re.findall(r"\{\{ ?([^}]*?) ?\|safe", source(name))
             for name in templates().list_templates()}
    assert {what for all_of in found.values() for what in all_of if "asset(" not in what} == {
        "data.frames[k]", "drawn.svg", "markup", "watch"}
    assert templates().autoescape is True


def source(name): return templates().loader.get_source(templates(), name)[0]


def test_a_value_that_is_missing_is_an_error():
    for name in ("report.html.jinja", "watch.html.jinja", "ledger.html.jinja"):
        with pytest.raises(Exception, match="is undefined"): templates().get_template(name).render()


def test_math_in_ids(tmp_path):
    import matplotlib.pyplot as plt
    c = make(tmp_path/"c", ids=[f"$\\frac{{{i}$" for i in range(40)], told=5)
    fig, ax = plt.subplots()
    plot_predictions(c, 4, ax)
    fig.canvas.draw()
    plt.close(fig)


def test_numbers_of_the_axes_are_whole():
    "A chart shows 0.025 where matplotlib says so"
    def plot(campaign, ax):
        ax.plot([0, 1], [0, 0.05])
        ax.set_yticks([0, 0.025, 0.05])
        return ax
    drawn = reports.chart(plot, None, "words")["svg"]
    assert [f">{v}</text>" in drawn for v in ("0.000", "0.025", "0.050")] == [True]*3


def test_given_axes_are_used(tmp_path):
    import matplotlib.pyplot as plt
    c = make(tmp_path/"c", told=12)
    for name, plot in NAMES.items():
        fig, ax = plt.subplots()
        assert plot(c, ax=ax) is ax, name
        assert ax.get_title() and ax.get_xlabel() and ax.get_ylabel(), name
        plt.close(fig)


def test_nothing_to_plot(tmp_path):
    c = make(tmp_path/"c")
    for plot in NAMES.values():
        with pytest.raises(ValueError, match="nothing to draw yet"): plot(c)


@pytest.mark.parametrize("told, maximize", [(0, True), (1, False), (2, True), (3, False),
                                            (40, True), (40, False)])
def test_any_number_of_values(tmp_path, told, maximize):
    c = make(tmp_path/"c", told=told, maximize=maximize)
    page = Reader(report_page(c)).text
    assert ("Large" if maximize else "Small") + " values are wanted" in page
    assert "nan" not in re.sub(r"\w*nan\w+|\w+nan\w*", "", page.lower().split("where it comes")[0])
    assert ("no candidate left" in page) == (told == 40)
    assert ("Nothing was told yet" in page) == (told == 0)
    assert page.count("Suggestion ") == (0 if told == 40 else 5)


@pytest.mark.parametrize("maximize", [True, False])
def test_could_still_be_the_best_has_one_meaning(tmp_path, maximize):
    "Cards, advice and slider agree with the 90 % intervals that the page shows"
    c = make(tmp_path/"c", n=40, told=24, maximize=maximize, noise_std=0.001)
    c.ask(3)
    page, sign = Reader(report_page(c, n=6)).text, c.sign
    table = c.to_dataframe()
    low, high = sorted([sign*table["low"], sign*table["high"]], key=lambda s: s.iloc[0])
    able = (high >= low.max()).to_numpy()
    assert 0 < able.sum() < 10
    count = f"{able.sum()} of 40 candidates could still be the best"
    assert f"By their 90 % intervals, {count}." in page
    recorded = reports.record_campaign(c)
    np.testing.assert_array_equal(recorded.active[-1], able)
    said = re.findall(r"Could still be the best(yes|no, the best one is \w+)", page)
    shown = [*c.pending.itertuples(), *c.suggest(6).itertuples()]
    reach = [sign*(r.high if maximize else r.low) >= low.max() for r in shown]
    assert [s == "yes" for s in said] == reach and not all(reach)
    words = {"no, the best one is above" if maximize else "no, the best one is below", "yes"}
    assert set(said) <= words
    assert "could be the best" not in page and "could still be better" not in page


def test_equal_values(tmp_path):
    c = make(tmp_path/"c")
    c.tell(range(6), [2.5]*6)
    assert "2.5" in Reader(report_page(c)).text


def test_replicates_and_a_single_candidate(tmp_path):
    c = Campaign.create(tmp_path/"c", pool(1))
    assert "Suggestion 1" in report_page(c)
    c.tell([0, 0, 0], [1., 2., 3.])
    text = Reader(report_page(c)).text
    assert "3 measurements" in text and "no candidate left" in text


def test_minimising_mirrors_maximising(tmp_path):
    up, down = make(tmp_path/"up", told=15), make(tmp_path/"down", maximize=False)
    obs = up.observations
    down.tell(obs["arm"].tolist(), (-obs["value"]).tolist())
    np.testing.assert_allclose(progress(down)["best"], -progress(up)["best"])
    np.testing.assert_allclose(progress(down)["random"], -progress(up)["random"])
    for ours, theirs in (("value", "value"), ("mean", "mean"), ("low", "high"), ("high", "low")):
        np.testing.assert_allclose(left_out(down)[ours], -left_out(up)[theirs])
    assert ranked(down)["id"].tolist() == ranked(up)["id"].tolist()
    assert improvement(down)[0] == improvement(up)[0]
    np.testing.assert_allclose(history(down), history(up))


def test_read_only(tmp_path):
    c = make(tmp_path/"c", told=6)
    before = len(c.events)
    c.journal.readonly = True
    page = report_page(c)
    assert "from a read-only place" in page and "It is read-only here" in page
    assert len(c.events) == before


def test_damage_is_shown(tmp_path, monkeypatch):
    c = make(tmp_path/"c", told=6)
    def damaged(): raise ValueError("the file <x> is damaged")
    monkeypatch.setattr(c.journal, "check", damaged)
    assert [x.state for x in health(c)].count("bad") == 1
    assert "the file &lt;x&gt; is damaged" in report_page(c)


def test_late_candidates(tmp_path):
    c = make(tmp_path/"c", told=6)
    c.ask(2)
    soon, late = (datetime.now(timezone.utc) + timedelta(days=d) for d in (1, 30))
    assert health(c, soon)[2].state == "good" and health(c, late)[2].answer == "2 of 2"
    past = datetime.now(timezone.utc) - timedelta(days=3)      # the clock was set back
    assert health(c, past)[2].state == "good"


def test_undone_events(tmp_path):
    c = make(tmp_path/"c", told=6)
    c.tell(c.ids[0], 100.)
    c.undo()
    page = Reader(report_page(c)).text
    assert "tell (undone)" in page and history(c)["measurements"].iloc[-1] == 6


def test_large_pool(tmp_path, monkeypatch):
    assert reports.ROWS == 2000
    monkeypatch.setattr(reports, "ROWS", 100)
    n = 140
    c = make(tmp_path/"c", n, 10, table=pd.DataFrame({f"x{i}": np.arange(n) for i in range(20)}))
    page = " ".join(report_page(c).split())
    assert "The first 100 of 140 candidates" in page and "first 6 of 20 columns" in page
    assert page.split('id="candidates"')[1].split("</table>")[0].count("<tr>") == 101


def test_page_of_a_thousand_is_light(tmp_path):
    n = 1000
    table = pd.DataFrame({"SMILES": ["C"*20]*n, "note": ["word "*20]*n})
    c = make(tmp_path/"c", n, 60, table=table)
    assert len(report_page(c, 20).encode()) < 1_500_000


def test_graphs_without_edges_or_with_many_nodes():
    bare = GraphDomain.from_arrays([np.ones((3, 3))], [np.ones((3, 2))], keep_edges=False)
    assert "3 nodes; the edges are not known" in reports.graph_picture(bare, 0)["words"]
    g = nx.complete_graph(61)
    nx.set_node_attributes(g, {v: [1., v] for v in g}, "x")
    empty = nx.empty_graph(5)
    nx.set_node_attributes(empty, {v: [1., v] for v in empty}, "x")
    both = GraphDomain.from_networkx([g, empty], features="x")
    assert "1830 edges: too many to draw" in reports.graph_picture(both, 0)["words"]
    drawn = reports.graph_picture(both, 1)
    assert len(drawn["nodes"]) == 5 and drawn["edges"] == []


def test_molecules_are_drawn(tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["C", "CC", "CCO", "c1ccccc1", "not a molecule"]
    c = make(tmp_path/"c", 5, table=pd.DataFrame({"my SMILES": smiles}))
    drawn = reports.picture(c, 3)["svg"]
    assert drawn.startswith("<svg") and "<script" not in drawn and "nodes" in reports.picture(c, 4)
    assert report_page(c).count('class="molecule"') == 4


def test_without_rdkit(tmp_path, monkeypatch):
    def missing(smiles, size=None): raise ImportError("this needs rdkit")
    monkeypatch.setattr(reports, "draw_svg", missing)
    c = make(tmp_path/"c", 5, table=pd.DataFrame({"smiles": ["C"]*5}))
    assert "nodes" in reports.picture(c, 3) and report_page(c).count('class="graph"') == 5


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    c, path = make(tmp_path/"c", told=4), tmp_path/"deep"/"report.html"
    assert c.report(path) == path and path.read_text().endswith("</html>\n")
    before = path.read_bytes()
    monkeypatch.setattr(reports, "events_part", lambda c: 1/0)
    with pytest.raises(ZeroDivisionError): write_report(c, path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("bad", [0, -1, 1.5, "5", None])
def test_bad_n(tmp_path, bad):
    c = make(tmp_path/"c")
    with pytest.raises(ValueError, match="n"): write_report(c, tmp_path/"x.html", bad)
    assert not (tmp_path/"x.html").exists()


@pytest.mark.parametrize("values", [[], [np.nan], [0., 0.], [1e300, -1e300], [1e-300, 2e-300],
                                    [pd.NA, 1.]])
def test_formatter_takes_anything(values):
    show = formatter(values)
    assert show(np.nan) == "" and show(pd.NA) == "" and 0 < len(show(1.)) < 14


# in a browser

@pytest.fixture
def tab(browser, hostile_file):
    "The hostile page, opened; errors and requests are collected"
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.errors, tab.outside = [], []
    tab.on("console", lambda m: tab.errors.append(m.text) if m.type in ("error", "warning") else 0)
    tab.on("pageerror", lambda e: tab.errors.append(str(e)))
    tab.on("dialog", lambda d: (tab.errors.append("a dialog opened"), d.dismiss()))
    tab.on("request", lambda r: tab.outside.append(r.url))
    tab.goto(hostile_file.as_uri())
    tab.locator(".gb-bar").wait_for()
    yield tab
    tab.close()


def column(tab, k):
    "Text of a column of the rows that are shown"
    return tab.evaluate(f"""() => [...document.querySelectorAll("#candidates tbody tr")]
        .filter(r => !r.hidden).map(r => r.cells[{k}].textContent)""")


def test_page_is_quiet_and_alone(tab, hostile_file):
    tab.mouse.move(400, 400), tab.mouse.wheel(0, 2000)
    assert tab.errors == [] and tab.outside == [hostile_file.as_uri()]


def test_sorting(tab):
    heads = tab.locator("#candidates th")
    names = heads.all_text_contents()
    k = names.index("predicted")
    heads.nth(k).locator("button").click()
    up = [float(v) for v in column(tab, k)]
    assert up == sorted(up) and heads.nth(k).get_attribute("aria-sort") == "ascending"
    heads.nth(k).locator("button").focus()
    tab.keyboard.press("Enter")
    down = [float(v) for v in column(tab, k)]
    assert down == up[::-1] or down == sorted(up, reverse=True)
    assert heads.nth(k).get_attribute("aria-sort") == "descending"
    k = names.index("measured")
    for _ in range(2):                                         # empty cells stay at the end
        heads.nth(k).locator("button").click()
        cells = column(tab, k)
        full = [c for c in cells if c]
        assert 0 < len(full) < len(cells) and cells[:len(full)] == full
    k = names.index("candidate")
    heads.nth(k).locator("button").click()
    order = [c for c in column(tab, k) if re.fullmatch(r"c\d+", c)]
    assert order == sorted(order, key=lambda c: int(c[1:]))


def test_filter(tab):
    tab.fill("#filter", "Pending")
    states = column(tab, 2)
    assert states and set(states) == {"pending"}
    assert tab.text_content("#count") == f"{len(states)} of 40 shown"
    tab.fill("#filter", "<script>")
    assert len(column(tab, 2)) == 40                           # a column holds it in each row
    tab.fill("#filter", "no such word")
    assert column(tab, 2) == []
    tab.fill("#filter", "")
    assert len(column(tab, 2)) == 40


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_sideways_scrolling(tab, width):
    tab.set_viewport_size({"width": width, "height": 844})
    size = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert size[0] <= size[1], size


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d");
    const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c;
                       canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data };
    const light = c => { const [r, g, b] = [...c].slice(0, 3).map(v => v/255)
        .map(v => v <= .03928 ? v/12.92 : ((v + .055)/1.055)**2.4);
        return .2126*r + .7152*g + .0722*b };
    const ground = e => { for (; e; e = e.parentElement) {
        const c = getComputedStyle(e).backgroundColor;
        if (rgb(c)[3] === 255) return c } return "white" };
    const out = [];
    for (const e of document.querySelectorAll("main *")) {
        if (e.closest(".molecule") || ![...e.childNodes].some(n => n.nodeType === 3 &&
            n.textContent.trim())) continue;
        const style = getComputedStyle(e);
        const ink = e.namespaceURI.endsWith("svg") ? style.fill : style.color;
        const [a, b] = [light(rgb(ink)), light(rgb(ground(e)))];
        const ratio = (Math.max(a, b) + .05)/(Math.min(a, b) + .05);
        if (ratio < 4.5) out.push([e.tagName, e.className.baseVal || e.className, ratio]);
    }
    return [out, rgb(getComputedStyle(document.body).backgroundColor)[0]];
}"""


def test_charts_take_the_colours_of_the_page(tab):
    "On a dark screen no pixel has a colour that matplotlib wrote, also not in copies of marks"
    image = pytest.importorskip("PIL.Image")
    tab.emulate_media(color_scheme="dark")
    for figure in tab.locator("figure").all():
        pixels = np.array(image.open(io.BytesIO(figure.screenshot())).convert("RGB")).astype(int)
        near = lambda ink: int((np.abs(pixels - ink).max(2) < 20).sum())
        assert near((0, 114, 178)) == near((213, 94, 0)) == 0
        assert near((98, 181, 234)) > 50                       # the blue of dark screens


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(tab, scheme):
    tab.emulate_media(color_scheme=scheme)
    weak, ground = tab.evaluate(CONTRAST)
    assert not weak and (ground < 60) == (scheme == "dark"), weak[:5]


def test_charts_have_words(tab):
    labels = tab.eval_on_selector_all("figure [role=img]", "all => all.map(e => e.ariaLabel)")
    assert len(labels) == 4 and all(len(words) > 40 for words in labels)
    ids = tab.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_works_without_script(browser, hostile_file):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(hostile_file.as_uri())
    assert page.locator("#candidates tbody tr").count() == 40
    page.context.close()


def test_print(tab):
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.locator("#filter").is_visible()
    assert tab.pdf()[:5] == b"%PDF-"


def test_slider(tab):
    "The component of the section on how it went, under the page's policy of one script"
    said = tab.locator(".gb-say")
    assert said.text_content().startswith("After 9 measurements: ")
    tab.locator(".gb-watch input").focus()
    tab.keyboard.press("ArrowLeft")
    assert said.text_content().startswith("Measurement 9: candidate c20, ")
    tab.keyboard.press("Home")
    assert said.text_content().startswith("Measurement 2: candidate ") and tab.errors == []
    assert "How it went" in tab.locator("section:has(.gb-watch) h2").text_content()
    tab.emulate_media(media="print")
    assert not tab.locator(".gb-watch input").is_visible()
    assert tab.locator(".gb-run svg").is_visible()
