"""The documentation site: refusals, links, README, and every page in a real browser.

The browser tests need `chromium` (or `google-chrome`) on the PATH and skip without it; with
REQUIRE_BROWSER=1 they fail instead."""
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from csv import DictReader
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlparse

import pytest

from conftest import no_browser
from gnn_bandits.project.site import MARK, site
from html_reader import Reader

yaml = pytest.importorskip("yaml")
pytest.importorskip("sphinx")

ROOT = Path(__file__).resolve().parent.parent
WEIGHT = 1_500_000    # bytes that opening a page may load, uncompressed
SHIFT = 0.1           # the largest layout shift that counts as good
PATIENCE = 120_000    # milliseconds; a busy machine is slow, not wrong


def python(code, cwd=ROOT):
    "Run code in a fresh interpreter that imports this checkout"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True,
                          text=True)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    "The site of the real notebooks; BUILT_SITE names one that is there already, to save minutes"
    if given := os.environ.get("BUILT_SITE"):
        assert (Path(given)/MARK).exists(), f"there is no site in {given}"
        return Path(given).resolve()
    out = tmp_path_factory.mktemp("site")/"site"
    done = python(f"from gnn_bandits.project.site import site; site({str(out)!r})")
    assert done.returncode == 0, done.stderr
    assert "pages" in done.stdout
    return out


MOVED = yaml.safe_load((ROOT/"nbs"/"redirects.yml").read_text()) or {}


@pytest.fixture(scope="session")
def pages(built):
    "Names of all pages; old addresses that lead to them are left out"
    return sorted(p.name for p in built.glob("*.html") if p.name not in MOVED)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    "A project of two notebooks to play with; the working directory is inside it"
    (tmp_path/"nbs").mkdir()
    for name in "settings.ini", "nbs/index.ipynb", "nbs/51_core.ipynb":
        shutil.copy(ROOT/name, tmp_path/name)
    menu = {"website": {"sidebar": {"contents": ["index.ipynb", "51_core.ipynb"]}}}
    (tmp_path/"nbs"/"sidebar.yml").write_text(yaml.safe_dump(menu))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_cell(notebook, source):
    "Append a markdown cell"
    nb = json.loads(notebook.read_text())
    nb["cells"].append({"cell_type": "markdown", "id": "added", "metadata": {}, "source": source})
    notebook.write_text(json.dumps(nb))


# without a browser

def test_import_is_light():
    heavy = {"sphinx", "matplotlib", "nbdev", "myst_nb", "IPython"}
    done = python("import sys, gnn_bandits.project.site\n"
                  f"print(sorted({heavy!r} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_notebook_has_a_page(pages):
    from gnn_bandits.project.site import page_name
    names = {f"{page_name(p)}.html" for p in (ROOT/"nbs").glob("*.ipynb")}
    assert set(pages) == names | {"search.html"}


def test_site_is_marked(built):
    assert (built/MARK).exists() and (built/".nojekyll").exists()
    assert not (built/".buildinfo").exists()


def test_links_between_pages_lead_somewhere(built, pages):
    seen = {name: Reader((built/name).read_text()).tags for name in [*pages, *MOVED]}
    ids = {name: {attrs.get("id") for _, attrs in tags} for name, tags in seen.items()}
    for name, tags in seen.items():
        for href in {attrs["href"] for tag, attrs in tags if tag == "a" and attrs.get("href")}:
            if re.match(r"[a-z]+:", href): continue
            target, _, anchor = href.partition("#")
            target = (target or name).removeprefix("./")
            assert (built/target).is_file(), f"{name} links to {href}"
            found = not anchor or target not in ids or anchor in ids[target]
            assert found, f"{name} links to {href}"


def test_index_lists_every_export(built):
    import gnn_bandits.core, gnn_bandits.project.site
    page = (built/"api.html").read_text()
    for name in gnn_bandits.core.__all__ + gnn_bandits.project.site.__all__:
        assert f">{name}<" in page, name
    assert 'href="core.html#write_atomically"' in page


def test_modules_of_a_subpackage_are_known(monkeypatch):
    from gnn_bandits.project.site import api_page, module_of, symbols
    places = {"toy.wing.room.f": ("room.html#f", "toy/wing/room.py")}
    index = SimpleNamespace(d={"syms": {"toy.wing.room": places, "toy.empty": {}}})
    def f(): "Do something."
    room = SimpleNamespace(f=f, __all__=["f", "LIMIT"], LIMIT=3)
    monkeypatch.setitem(sys.modules, "toy._modidx", index)
    monkeypatch.setitem(sys.modules, "toy.wing.room", room)
    known = symbols("toy")
    assert known == {"room.html#f": ("toy.wing.room", "f")}
    assert module_of(["x = 1", "#| default_exp wing.room"], "toy") == "toy.wing.room"
    page = api_page({"toy.wing.room": "room"}, known)
    assert "### toy.wing.room" in page and "[`f`](page:room.html#f) | Do something." in page
    assert "[`LIMIT`](page:room.html) | A constant of type `int`." in page


def test_public_names_and_index_share_a_page(built):
    import gnn_bandits
    page = (built/"api.html").read_text()
    assert page.index("What people import") < page.index('id="index-of-names"')
    for name in gnn_bandits.__all__: assert f">{name}<" in page[:page.index('id="index-of-names"')]


# what a page says about itself

def settings():
    "What settings.ini says about the project"
    config = ConfigParser(delimiters=["="])
    config.read(ROOT/"settings.ini")
    return config["DEFAULT"]


def content(text, name):
    "The content of a meta tag, or nothing"
    m = re.search(rf'<meta (?:name|property)="{name}" content="([^"]*)"', text)
    return m and m[1]


def test_every_page_introduces_itself(built, pages):
    cfg, titles = settings(), {}
    url = cfg["doc_host"] + cfg["doc_baseurl"]
    for name in pages:
        text = (built/name).read_text()
        title = re.search(r"<title>(.*?)</title>", text)[1]
        assert cfg["title"] in title and title not in titles, (name, titles.get(title))
        titles[title] = name
        assert f'<p class="version">{cfg["title"]} {cfg["version"]}</p>' in text, name
        if name == "search.html": continue
        assert f'<link rel="canonical" href="{url}{name}"' in text, name
        assert len(content(text, "description") or "") > 20, name
        picture = content(text, "og:image")
        assert picture.startswith(url) and (built/picture.removeprefix(url)).is_file(), name
        for icon in "icon.svg", "icon.png": assert f'href="_static/{icon}"' in text, name


def test_first_figure_is_the_preview(built):
    text = (built/"campaigns.html").read_text()
    first = re.search(r'<img[^>]*src="(_images/[^"]+)"', text)[1]
    assert content(text, "og:image").endswith(first) and content(text, "og:image:alt")
    assert content((built/"index.html").read_text(), "og:image").endswith("_static/preview.png")


def downloads(page):
    "What the links of a page let readers save"
    links = [attrs for tag, attrs in Reader(page.read_text()).tags if tag == "a"]
    return {attrs["href"] for attrs in links if "download" in attrs}


def test_notebooks_can_be_downloaded(built):
    from gnn_bandits.project.site import page_name
    size, every = 0, list((ROOT/"nbs").glob("*.ipynb"))
    for p in every:
        assert f"notebooks/{p.name}" in downloads(built/f"{page_name(p)}.html"), p.name
        given, ours = (json.loads(f.read_text()) for f in (built/"notebooks"/p.name, p))
        assert not any(c.get("outputs") for c in given["cells"])
        exports = ["#| hide\n", "import nbdev; nbdev.nbdev_export()"]      # needs the project
        kept = [c["source"] for c in ours["cells"] if c["source"] != exports]
        assert [c["source"] for c in given["cells"]] == kept
        assert "nbdev.nbdev_export" not in "".join(kept[-1])
        size += (built/"notebooks"/p.name).stat().st_size
    assert size < 90_000*len(every)


def test_tables_of_results_can_be_downloaded(built):
    "One archive, offered where a notebook reads tables and does not need the whole project"
    from gnn_bandits.project.site import page_name
    with zipfile.ZipFile(built/"notebooks"/"results.zip") as z:
        packed = {name: hash(z.read(name)) for name in z.namelist()}
    files = [p for p in (ROOT/"nbs"/"results").rglob("*") if p.is_file()]
    assert packed == {p.relative_to(ROOT/"nbs").as_posix(): hash(p.read_bytes()) for p in files}
    for p in (ROOT/"nbs").glob("*.ipynb"):
        cells = json.loads(p.read_text())["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        page = built/f"{page_name(p)}.html"
        clone, reads = "#| needs: project" in code, re.search("""["']results["'/]""", code)
        offered = "notebooks/results.zip" in downloads(page)
        assert offered == bool(reads and not clone), p.name
        assert ("runs only in a clone of the project" in page.read_text()) == clone, p.name


class Code(HTMLParser):
    "The code that a page shows, cell by cell, and all its text outside of blocks of code"
    def __init__(self, text):
        super().__init__()
        self.cells, self.text, self.depth, self.pre, self.quiet, self.main = [], "", 0, False, 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        kinds = (dict(attrs).get("class") or "").split()
        if tag == "div" and (self.depth or "cell_input" in kinds): self.depth += 1
        if self.depth == 1 and "cell_input" in kinds: self.cells.append("")
        if tag == "article": self.main += 1
        if tag == "pre": self.pre = True
        if tag in ("script", "style"): self.quiet += 1

    def handle_endtag(self, tag):
        if tag == "div" and self.depth: self.depth -= 1
        if tag == "article": self.main -= 1
        if tag == "pre": self.pre = False
        if tag in ("script", "style"): self.quiet -= 1

    def handle_data(self, data):
        if self.depth and self.pre: self.cells[-1] += data
        elif self.main and not self.pre and not self.quiet: self.text += data


@pytest.fixture(scope="session")
def shown(built, pages):
    "The code and the text that each page shows"
    return {name: Code((built/name).read_text()) for name in pages}


def test_no_link_is_left_as_markdown(shown):
    raw = {name: re.findall(r"\[[^]\n]*\]\([^)\n]*\)", page.text) for name, page in shown.items()}
    assert not {name: found for name, found in raw.items() if found}


def test_ids_are_unique(built, pages):
    for name in pages:
        text = (built/name).read_text()
        text = re.sub(r"<(script|style|template)\b.*?</\1>", "", text, flags=re.S)
        ids = re.findall(r"<[a-zA-Z][^<>]*? id=\"([^\"]*)\"", text)
        assert len(ids) == len(set(ids)), (name, sorted(i for i in ids if ids.count(i) > 1)[:5])


def test_shown_code_uses_only_what_is_shown(shown):
    "Every name is set, defined or imported by code that the page shows, before it is used"
    from gnn_bandits.project.site import missing_names
    lost = {name: sorted(missing_names(page.cells)) for name, page in shown.items()}
    assert sum(len(page.cells) for page in shown.values()) > 700
    assert not {name: names for name, names in lost.items() if names}


# what these pages show takes seconds; the others are covered by the names above, and as notebooks
RUN = ["index", "story", "campaigns", "molecules", "confidence", "graphs", "glossary", "algorithms",
       "bridges", "conditions", "several_outcomes", "other_graphs"]


@pytest.mark.parametrize("name", RUN)
def test_code_of_a_page_runs_as_shown(built, shown, tmp_path, name):
    "Copied from the page into an empty folder, where the tables lie if the page offers them"
    if "notebooks/results.zip" in (built/f"{name}.html").read_text():
        with zipfile.ZipFile(built/"notebooks"/"results.zip") as z: z.extractall(tmp_path)
    cells = ["from IPython.display import display", *shown[f"{name}.html"].cells]
    done = python("\n\n".join(cells), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_hidden_computations_stop_the_build(copy):
    notebook = copy/"nbs"/"index.ipynb"
    nb = json.loads(notebook.read_text())
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    nb["cells"] += [code | {"id": "h1", "source": "#| hide\nsecret = 3"},
                    code | {"id": "h2", "source": "secret + 1"}]
    notebook.write_text(json.dumps(nb))
    with pytest.raises(ValueError, match="index.ipynb.*secret"): site("out")


def shown_cell(notebook, source):
    "Append a code cell that the page shows"
    nb = json.loads(notebook.read_text())
    nb["cells"].append({"cell_type": "code", "id": "shown", "metadata": {}, "outputs": [],
                        "execution_count": None, "source": source})
    notebook.write_text(json.dumps(nb))


FAULTS = {"more than 88": ("code", f"x = '{'a'*85}'"),
          "no Python": ("markdown", "```python\nx = (\n```"),
          "Markdown as it was": ("markdown", "<p>See <b>[this](index.html).</b></p>"),
          "#lost": ("markdown", '<a href="index.html#lost">lost</a>'),
          "lost.html": ("markdown", '<a href="lost.html">lost</a>'),
          "more than 1.5": ("markdown", f"<p>{'word '*320_000}</p>")}


@pytest.mark.parametrize("said", FAULTS)
def test_faults_of_pages_stop_the_build(tiny, said):
    kind, source = FAULTS[said]
    (add_cell if kind == "markdown" else shown_cell)(tiny/"nbs"/"index.ipynb", source)
    with pytest.raises(ValueError, match=re.escape(said)): site("out")
    assert not (tiny/"out").exists()


@pytest.mark.parametrize("name", ["claims", "errata"])
def test_claims_and_errata_can_be_linked(built, name):
    with (ROOT/"nbs"/"results"/f"{name}.csv").open(newline="") as f: rows = len(list(DictReader(f)))
    page = (built/f"{name}.html").read_text()
    ids = re.findall(r'<\w+\b[^>]*\bid="((?:claim|erratum)-[^"]+)"', page)
    assert len(ids) == len(set(ids)) and len(ids) >= rows, (len(ids), rows)


def test_pictures_have_their_room(built, pages):
    for name in pages:
        for tag in re.findall(r"<img\b[^>]*>", (built/name).read_text()):
            if "_images/" not in tag: continue
            assert " width=" in tag and " height=" in tag, (name, tag)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_foreign_output_is_refused(copy, what):
    out = copy/"out"
    mine = out/"thesis.txt" if what == "folder" else out
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    complaint = "other files" if what == "folder" else "the file"
    with pytest.raises(ValueError, match=complaint): site(str(out))
    assert mine.read_text() == "mine"


def test_outside_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="settings.ini"): site("out")
    with pytest.raises(ValueError, match="settings.ini"): site(readme=True)


def test_old_addresses_lead_on(tiny):
    "A page that has moved sends its readers on; a table that leads nowhere stops the build"
    table = tiny/"nbs"/"redirects.yml"
    table.write_text("old.html: index.html#lost")
    with pytest.raises(ValueError, match="old.html -> index.html#lost"): site("out")
    assert not (tiny/"out").exists()
    table.write_text("old.html: index.html#tiny")
    site("out")
    tags = Reader((tiny/"out"/"old.html").read_text()).tags
    assert ("a", {"href": "index.html#tiny"}) in tags
    assert ("meta", {"http-equiv": "refresh", "content": "0; url=index.html#tiny"}) in tags


def test_missing_sphinx_is_explained(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "sphinx", None)
    with pytest.raises(ImportError, match=r"gnn_bandits\[docs\]"): site("out")


def test_unlisted_notebook_is_refused(copy):
    shutil.copy(copy/"nbs"/"51_core.ipynb", copy/"nbs"/"07_lost.ipynb")
    with pytest.raises(ValueError, match="07_lost.ipynb"): site("out")


def test_warning_keeps_the_old_site(copy):
    old = copy/"out"
    old.mkdir()
    for name in MARK, "index.html": (old/name).write_text("old")
    add_cell(copy/"nbs"/"index.ipynb", "See @eq-nowhere.")
    with pytest.raises(ValueError, match="eq-nowhere"): site("out")
    assert sorted(p.name for p in old.iterdir()) == sorted([MARK, "index.html"])
    assert (old/"index.html").read_text() == "old"
    assert sorted(p.name for p in copy.iterdir()) == ["nbs", "out", "settings.ini"]


def test_readme_is_reproducible(copy):
    add_cell(copy/"nbs"/"index.ipynb", "Mind [core](51_core.ipynb), `@eq-a` and $x$.")
    site(readme=True)
    first = (copy/"README.md").read_bytes()
    site(readme=True)
    assert (copy/"README.md").read_bytes() == first
    text = first.decode()
    assert "/core.html), `@eq-a` and $x$." in text
    assert not re.search(r"\{#|:::|\.ipynb\)|#\|", text)


@pytest.mark.parametrize("part", ["$$a$$ {#eq-a}", "By @eq-a.", "::: {.callout-note}\nMind.\n:::"])
def test_readme_has_no_boxes_and_labels(copy, part):
    add_cell(copy/"nbs"/"index.ipynb", part)
    with pytest.raises(ValueError, match="also the README"): site(readme=True)


# in a browser

TYPESET = """() => !document.querySelector("script[src*=mathjax]")
    || window.MathJax && MathJax.startup && MathJax.startup.promise
    && MathJax.startup.promise.then(() => !document.querySelector("html.typesetting"))"""
SHIFTS = """() => new Promise((done) => {
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const e of list.getEntries()) if (!e.hadRecentInput) sum += e.value;
    }).observe({type: "layout-shift", buffered: true});
    setTimeout(() => done(sum), 50);
})"""
LOADED = """() => {
    document.querySelectorAll("img[loading=lazy]").forEach((e) => { e.loading = "eager"; });
    return Promise.all([...document.images].map((e) => e.decode().catch(() => 0))).then(() => true);
}"""
REPORT = r"""() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const copy = document.querySelector("article").cloneNode(true);
    const unread = "pre, code, .math, mjx-container, script, style";
    copy.querySelectorAll(unread).forEach(e => e.remove());
    return {
        text: copy.textContent,
        untypeset: all(".math").filter(e => !e.querySelector("mjx-container"))
                               .map(e => e.textContent),
        broken: all("mjx-merror").map(e => e.textContent),
        images: all("article img").filter(e => !e.naturalWidth).map(e => e.src),
        wordless: all("article img").filter(e => !e.alt.trim()).map(e => e.src),
        formulas: all(".math").length, mathjax: !!window.MathJax,
        sidebar: all(".sidebar-tree a, a.sidebar-brand").map(e => e.href.split("#")[0]),
        groups: all(".sidebar-tree .caption-text").map(e => e.textContent),
        desktop: [document.documentElement.scrollWidth, window.innerWidth]};
}"""
WIDTH = "[document.documentElement.scrollWidth, window.innerWidth]"
CUT = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const closed = all("article details:not([open])");
    closed.forEach((e) => { e.open = true; });
    const wide = (e) => e.scrollWidth > e.clientWidth + 1;
    const cut = {code: all("article pre").filter(wide).map(e => e.textContent.slice(0, 200)),
                 formulas: all("article div.math")
                     .filter(e => wide(e) || [...e.querySelectorAll("mjx-container")].some(wide))
                     .map(e => e.textContent.slice(0, 80)),
                 blocks: all("article pre").length};
    closed.forEach((e) => { e.open = false; });
    return cut;
}"""


@pytest.fixture(scope="session")
def reports(browser, built, pages):
    "What the script finds on each page, with console errors, outside requests, width on a phone"
    reports, errors, outside = {}, [], []
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda e: errors.append(str(e)))
    inside = lambda r: r.url.startswith(("file:", "data:"))
    tab.on("request", lambda r: None if inside(r) else outside.append(r.url))
    loaded = set()
    tab.on("request", lambda r: loaded.add(Path(unquote(urlparse(r.url).path))))
    for name in pages:
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.goto((built/name).as_uri())
        tab.wait_for_function(TYPESET)
        weight, shift = sum(p.stat().st_size for p in loaded if p.is_file()), tab.evaluate(SHIFTS)
        tab.evaluate(LOADED)
        report = tab.evaluate(REPORT) | {"weight": weight, "shift": shift}
        report["cut"] = tab.evaluate(CUT)
        tab.set_viewport_size({"width": 390, "height": 844})
        report["phone"] = tab.evaluate(WIDTH)
        reports[name] = report | {"errors": errors.copy(), "outside": outside.copy()}
        errors.clear(), outside.clear(), loaded.clear()
    tab.close()
    return reports


@pytest.mark.parametrize("what", ["errors", "outside", "untypeset", "broken", "images", "wordless"])
def test_pages_are_sound(reports, what):
    assert not {name: report[what] for name, report in reports.items() if report[what]}


def test_no_markup_leaks(reports):
    leak = re.compile(r".{0,30}(?::::|\{(?:ref|numref|eq|figure|table|admonition|container)\}"
                      r"|#\||\{#|\$|Out\[|@(?:eq|fig|tbl|sec)-).{0,30}")
    found = {name: leak.findall(report["text"]) for name, report in reports.items()}
    assert not {name: leaks for name, leaks in found.items() if leaks}


def test_sidebar(reports, built, pages):
    menu = yaml.safe_load((ROOT/"nbs"/"sidebar.yml").read_text())
    contents = menu["website"]["sidebar"]["contents"]
    groups = [c["section"] for c in contents if isinstance(c, dict) and c["contents"]]
    for name, report in reports.items():
        listed = {(built/p).as_uri() for p in pages if p != "search.html"}
        assert listed <= set(report["sidebar"]), name
        assert report["groups"] == groups, name


def test_no_page_is_wider_than_its_window(reports):
    for screen in "desktop", "phone":
        wide = {name: r[screen] for name, r in reports.items() if r[screen][0] > r[screen][1] + 1}
        assert not wide, screen


def test_nothing_is_cut_off_at_1280_pixels(reports):
    "100 columns of code fit, longer outputs wrap, equations break; folds are looked into too"
    assert sum(r["cut"]["blocks"] for r in reports.values()) > 2500
    for what in "code", "formulas":
        cut = {name: r["cut"][what] for name, r in reports.items() if r["cut"][what]}
        assert not cut, (what, {name: len(v) for name, v in cut.items()}, cut)


def test_no_page_is_heavy(reports):
    table = sorted(((r["weight"], name) for name, r in reports.items()), reverse=True)
    for weight, name in table: print(f"{name:25} {weight/1000:8,.0f} kB")
    assert not {name: weight for weight, name in table if weight > WEIGHT}


def test_no_page_jumps(reports):
    assert not {name: r["shift"] for name, r in reports.items() if r["shift"] > SHIFT}


def test_mathjax_only_for_formulas(reports):
    assert not [name for name, r in reports.items() if r["mathjax"] != bool(r["formulas"])]


@pytest.mark.parametrize("term, page", [("gntk", "gntk"), ("GNN-UCB", "bandits"),
                                        ("campaign", "campaigns"), ("SMILES", "molecules"),
                                        ("install", "index"), ("Excel", "campaigns"),
                                        ("scikit-learn", "bridges"), ("solvent", "conditions")])
def test_search(browser, built, term, page):
    tab, errors = browser.new_page(), []
    tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    tab.goto((built/"index.html").as_uri())
    tab.fill(".sidebar-search", term)
    tab.press(".sidebar-search", "Enter")
    tab.wait_for_selector("#search-results li a", timeout=10_000)
    tab.wait_for_function("/found|matching/.test(document.querySelector('#search-results').innerText)")
    hits = tab.eval_on_selector_all("#search-results li a", "links => links.map(a => a.href)")
    assert any(f"/{page}.html" in h for h in hits[:8]) and not errors, (hits[:10], errors)
    tab.close()


BUSY = ["index", "report", "story", "gntk", "campaigns", "molecules", "reports", "serve", "claims"]


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 390)])
def test_accessibility(browser, built, pages, axe, scheme, width):
    "No violation of WCAG 2 A or AA in two opposite views; of every page if EVERY_PAGE is set"
    found = {}
    for name in pages if os.environ.get("EVERY_PAGE") else [f"{n}.html" for n in BUSY]:
        tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        tab.set_default_timeout(PATIENCE)
        tab.goto((built/name).as_uri())
        tab.wait_for_function(TYPESET)
        found |= {(name, *key): nodes for key, nodes in axe(tab).items()}
        tab.close()
    assert not found, "\n".join(f"{key}: {nodes}" for key, nodes in found.items())


def test_keyboard(browser, built):
    "The first stop skips the sidebar; on a phone the drawer opens by keyboard, and hides"
    tab = browser.new_page(viewport={"width": 1400, "height": 800})
    tab.goto((built/"index.html").as_uri())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.getAttribute('href')") == "#furo-main-content"
    tab.set_viewport_size({"width": 375, "height": 800})
    shown = "() => getComputedStyle(document.querySelector('.sidebar-drawer')).visibility"
    assert tab.evaluate(shown) == "hidden"
    tab.focus("#__navigation")
    tab.keyboard.press("Enter")
    assert tab.evaluate(shown) == "visible" and tab.locator("#__navigation").is_checked()
    tab.keyboard.press("Space")
    assert tab.evaluate(shown) == "hidden"
    tab.close()


@pytest.mark.parametrize("name", ["gntk", "claims", "index"])
def test_print(browser, built, name):
    "On paper there is no sidebar, folds are open, and nothing is wider than the sheet"
    tab = browser.new_page(viewport={"width": 700, "height": 1000})
    tab.goto((built/f"{name}.html").as_uri())
    tab.wait_for_function(TYPESET)
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    for gone in ".sidebar-drawer", ".toc-drawer", ".copybtn", "details.origin":
        assert not tab.locator(gone).first.is_visible(), gone
    closed = "[...document.querySelectorAll('article details:not([open])')]"
    assert tab.evaluate(f"{closed}.every((e) => e.closest('.api, .origin'))")
    across, room = tab.evaluate(WIDTH)
    assert across <= room + 1
    tab.close()


def test_the_report_is_printed(built):
    "The build makes the PDF: the verdict and the figure on the first page, the letter in it"
    from gnn_bandits.project.site import no_printer
    if reason := no_printer(): no_browser(f"no PDF was made: {reason}")
    page, pdf = (built/"report.html").read_text(), built/"report.pdf"
    assert 'href="report.pdf"' in page and pdf.read_bytes().startswith(b"%PDF-")
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
    assert 3 <= sheets <= 8, sheets
    if not (reader := shutil.which("pdftotext")): return          # of poppler-utils
    text = lambda *a: subprocess.run([reader, *a, str(pdf), "-"], capture_output=True, text=True,
                                     check=True).stdout
    first, whole = text("-l", "1"), " ".join(text().split())
    for part in "The reproduction on one page", "The verdict.", "The main figure":
        assert part in first, part
    for part in ("What was reproduced, and what was not", "Cost", "Deviations from the paper",
                 "Dear Parnian Kassraie", "How to cite"): assert part in whole, part
    assert "Open this notebook" not in whole and "This page as a PDF" not in whole


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    "A project of one notebook whose output brings a script and a style"
    (tmp_path/"nbs").mkdir()
    shutil.copy(ROOT/"settings.ini", tmp_path)
    (tmp_path/"nbs"/"sidebar.yml").write_text("website: {sidebar: {contents: [index.ipynb]}}")
    html = ("<style>#count { color: rgb(1, 2, 3); }</style><button id='count'>0</button><script>"
            "document.getElementById('count').onclick = (e) => { e.target.textContent++; }"
            "</script>")
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": html}}
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Tiny\n\n> A page"},
             {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": None,
              "source": "from collections import Counter\nCounter()", "outputs": [output]}]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path/"nbs"/"index.ipynb").write_text(json.dumps(notebook))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_scripts_of_outputs_run(browser, tiny):
    site("out")
    tab = browser.new_page()
    tab.goto((tiny/"out"/"index.html").as_uri())
    tab.click("#count")
    assert tab.inner_text("#count") == "1"
    look = "getComputedStyle(document.getElementById('count')).color"
    assert tab.evaluate(look) == "rgb(1, 2, 3)"
    tab.close()
    site(readme=True)
    assert "<script" not in (tiny/"README.md").read_text()


def test_dark_mode(browser, built):
    tab, seen = browser.new_page(color_scheme="light"), {}
    tab.goto((built/"index.html").as_uri())
    look = "[document.body.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    for _ in range(3):
        tab.locator(".theme-toggle:visible").first.click()
        theme, colour = tab.evaluate(look)
        seen[theme] = colour
    assert {"light", "dark"} <= set(seen) and seen["light"] != seen["dark"], seen
    tab.close()


def test_copy_buttons(browser, built):
    tab = browser.new_page()
    tab.goto((built/"core.html").as_uri())
    assert tab.locator(".cell_input button.copybtn").count() > 3
    assert tab.locator(".cell_output button.copybtn, .api > div button.copybtn").count() == 0
    assert tab.locator(".api details button.copybtn").count() > 3
    tab.close()
