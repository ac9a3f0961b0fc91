"""The page to work on: who is let in, what forms do, two writers, and the page in a real browser.

The browser tests need `chromium` (or `google-chrome`) on the PATH and skip without it; with
REQUIRE_BROWSER=1 they fail instead."""
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gnn_bandits import serve as room
from gnn_bandits.bandits import Prior
from gnn_bandits.campaigns import Campaign
from gnn_bandits.graphs import GraphDomain
from gnn_bandits.serve import Refusal, Server, read_form

ROOT = Path(__file__).parent.parent
N, ENCODED = 12, "application/x-www-form-urlencoded"
pytestmark = pytest.mark.usefixtures("one_thread")


def make(path, **options):
    "A campaign over paths, with a kernel of its own so that nothing has to be fitted"
    graphs = [nx.path_graph(2 + i % 5) for i in range(N)]
    for i, g in enumerate(graphs): nx.set_node_attributes(g, {v: [1., i + v] for v in g}, "x")
    x = np.linspace(0, 3, N)
    prior = Prior.kernel(torch.from_numpy(np.exp(-(x[:, None] - x)**2)))
    ids = [f"c{i}" for i in range(N)]
    return Campaign.create(path, GraphDomain.from_networkx(graphs, features="x"), ids=ids,
                           prior=prior, **options)


class Window:
    "Requests to a server, as a browser sends them"
    def __init__(self, server):
        self.server, self.home = server, urlsplit(server.address).path
        self.campaign = server.desk.campaign

    def ask(self, method, target, body=None, **headers):
        "Status, headers and text of the answer to any request"
        con = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        headers = {k.replace("_", "-"): v for k, v in headers.items() if v is not None}
        con.request(method, target, body, headers)
        got = con.getresponse()
        text = got.read()
        con.close()
        return got.status, dict(got.getheaders()), text.decode()

    def look(self, place=""): return self.ask("GET", self.home + place)

    def send(self, action, seen=None, once="a", **fields):
        "Send a form of a window that has seen everything, or what is said"
        seen = self.server.desk.revision() if seen is None else seen
        fields = dict(seen=seen, once=once) | fields
        return self.ask("POST", self.home + action, urlencode(fields),
                        Content_Type=ENCODED, Sec_Fetch_Site="same-origin",
                        Origin=f"http://127.0.0.1:{self.server.server_port}")

    def upload(self, name, data, **fields):
        "Send a file"
        fields = dict(seen=self.server.desk.revision(), once="u") | fields
        body = b"".join(b'--x7\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
                        % (k.encode(), str(v).encode()) for k, v in fields.items())
        body += (f'--x7\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                 "Content-Type: text/csv\r\n\r\n").encode() + data + b"\r\n--x7--\r\n"
        return self.ask("POST", self.home + "upload", body,
                        Content_Type="multipart/form-data; boundary=x7")

    def told(self):
        "What the journal holds, as another program reads it"
        with Campaign.open(self.campaign.path) as c:
            obs = c.observations
            return list(zip(obs["id"], obs["value"]))


@contextmanager
def served(campaign):
    with Server(campaign, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try: yield Window(server)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def window(tmp_path):
    with make(tmp_path/"lab") as c, served(c) as w: yield w


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with make(tmp_path_factory.mktemp("quiet")/"lab") as c, served(c) as w: yield w


@pytest.fixture
def quiet(shared):
    "A window of a campaign to which nothing must happen"
    yield shared
    assert shared.server.desk.revision() == 0 and shared.told() == []


# who is let in

def test_without_the_token(quiet):
    for target in ("/", "/favicon.ico", "/wrong/", "/" + quiet.home[1:-2] + "/", "//", "/?a=b",
                   "/%00/", "*", quiet.home[:-1] + "x/", quiet.home.upper()):
        status, headers, page = quiet.ask("GET", target)
        assert status == 403 and "Forbidden" in page, target
        assert quiet.home not in page and str(quiet.campaign.path) not in page
    assert quiet.ask("GET", quiet.home)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example",
                                  "localhost.evil.example:8642", "", "[::1]", "0.0.0.0", "127.1"])
def test_names_of_other_hosts(quiet, host):
    status, _, page = quiet.ask("GET", quiet.home, Host=host)
    assert status == 403 and "127.0.0.1 or localhost" in page


def test_both_names_of_this_host(quiet):
    for host in ("localhost", "127.0.0.1", "localhost:9999"):       # a tunnel has another port
        assert quiet.ask("GET", quiet.home + "revision", Host=host)[0] == 200


@pytest.mark.parametrize("headers", [dict(Origin="http://evil.example"), dict(Origin="null"),
                                     dict(Sec_Fetch_Site="cross-site"),
                                     dict(Sec_Fetch_Site="same-site"),
                                     dict(Origin="http://127.0.0.1:1", Sec_Fetch_Site="same-site"),
                                     dict(Origin="https://127.0.0.1", Sec_Fetch_Site="none")])
def test_forms_of_other_sites(quiet, headers):
    body = urlencode(dict(seen=0, n=2))
    status, _, page = quiet.ask("POST", quiet.home + "ask", body, Content_Type=ENCODED, **headers)
    assert status == 403 and "another site" in page and quiet.server.desk.revision() == 0
    status, _, page = quiet.ask("POST", "/ask", body, Content_Type=ENCODED)
    assert status == 403 and quiet.server.desk.revision() == 0


def test_unknown_addresses_and_methods(quiet):
    status, _, page = quiet.look("nothing")
    assert status == 404 and f'href="{quiet.home}"' in page                # the way back
    assert quiet.look("../etc/passwd")[0] == 404
    assert quiet.look("report/../ask")[0] == 404
    status, headers, _ = quiet.look("tell")
    assert (status, headers["Allow"]) == (405, "POST")
    status, headers, _ = quiet.ask("POST", quiet.home, "")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "NONSENSE"):
        status, headers, page = quiet.ask(method, quiet.home)
        assert status == 405 and "Allow" in headers and "Error response" not in page, method
    status, headers, _ = quiet.ask("GET", quiet.home[:-1])
    assert status == 308 and headers["Location"] == quiet.home


def test_head_is_get_without_a_body(quiet):
    status, headers, body = quiet.ask("HEAD", quiet.home)
    assert status == 200 and body == "" and int(headers["Content-Length"]) > 5000
    status, headers, body = quiet.ask("HEAD", "/")
    assert status == 403 and body == ""


def test_the_first_address_works_once(quiet):
    target = urlsplit(quiet.server.first).path
    status, headers, _ = quiet.ask("GET", target)
    assert status == 303 and headers["Location"] == quiet.home
    assert quiet.ask("GET", target)[0] == 403


def test_headers_are_strict(quiet):
    for place, status in (("", 200), ("report", 200), ("nothing", 404)):
        got, headers, page = quiet.look(place)
        policy = headers["Content-Security-Policy"]
        assert got == status and "frame-ancestors 'none'" in policy
        assert policy.startswith("default-src 'none'; ")
        scripts = re.search(r"script-src ([^;]*)", policy)[1]
        assert re.fullmatch(r"'sha256-[^' ]*'", scripts) and "http" not in policy
        assert headers.items() >= room.SAFE.items() and "Python" not in headers["Server"]
        assert not re.search(r"""(src|href|action)=["']?(https?:)?//""", page)
        assert str(quiet.campaign.path) not in page
    assert "form-action 'self'" in quiet.look()[1]["Content-Security-Policy"]


# what forms do

def test_a_round_of_work(window):
    status, headers, _ = window.send("ask", n=3, note="plate")
    assert (status, headers["Location"]) == (303, "./?done=1")
    arms = window.campaign.pending["arm"].tolist()
    assert len(arms) == 3 and window.campaign.events["note"].iloc[-1] == "plate"
    page = window.look("?done=1")[2]
    assert "Asked for:" in page and page.count("<article") == 8
    fields = {f"value0.{arms[0]}": " 7.1; 7.4", f"value0.{arms[1]}": "> 10",
              f"value0.{arms[2]}": "",
              "id": "c11", "value0.other": "3", "noise": "0.2", "note": "by hand"}
    assert window.send("tell", **fields)[0] == 303
    obs = window.campaign.observations
    first, second = (window.campaign.ids[a] for a in arms[:2])
    found = [*zip(obs["id"], obs["value"].fillna(0), obs["bound"])]
    assert sorted(found) == sorted([(first, 7.1, ""), (first, 7.4, ""), (second, 0., ">10"),
                                    ("c11", 3., "")])
    assert obs["noise"].dropna().tolist() == [0.2]*3 and {*obs["note"]} == {"by hand"}
    assert window.send("fail", arm=arms[2], reason="spilled")[0] == 303
    assert window.send("exclude", ids="c11; c10", reason="dear")[0] == 303
    assert window.send("include", arm=arms[2])[0] == 303
    assert window.send("undo", event=2)[0] == 303 and window.told() == []
    assert window.send("ask", n=1)[0] == 303
    assert window.send("drop", arm=window.campaign.pending["arm"].iloc[-1])[0] == 303
    kinds = window.campaign.events["kind"].tolist()
    assert kinds == ["ask", "tell", "fail", "exclude", "include", "undo", "ask", "drop"]
    assert window.look()[0] == 200


@pytest.mark.parametrize("action, fields, words", [
    ("tell", {"value0.1": "3,5"}, "decimal comma"),
    ("tell", {"value0.1": "1 000"}, "expected a finite number"),
    ("tell", {"value0.1": "2", "value0.2": "high"}, "the result of &#39;c2&#39;"),
    ("tell", {"value0.1": ">"}, "is no bound"),
    ("tell", {"value0.1": "1", "noise": "-1"}, "the standard deviation"),
    ("tell", {"value0.99": "1"}, "no candidate with the number 99"),
    ("tell", {"value0.other": "1"}, "no id beside it"),
    ("tell", {"id": "c1"}, "no result beside the id"),
    ("tell", {"id": "c77", "value0.other": "1"}, "no candidate with the id"),
    ("tell", {"value0.1": "nan"}, "expected a finite number"),
    ("tell", {"value0.1": "1e300"}, "take another unit"),
    ("tell", {}, "no result was entered"),
    ("tell", {"value0.1": "1", "seen": "soon"}, "does not say what it has seen"),
    ("ask", {"n": "many"}, "how many candidates"), ("ask", {"n": "0"}, "how many candidates"),
    ("ask", {"n": "9"*30}, "how many candidates"), ("ask", {}, "how many candidates"),
    ("undo", {"event": "7"}, "no event 7"), ("undo", {"event": "-1"}, "number of an event"),
    ("fail", {"arm": "x"}, "no candidate with the number"),
    ("exclude", {"ids": ";"}, "got nothing"), ("drop", {"arm": "1"}, "is not pending"),
    ("include", {"arm": "1"}, "neither excluded nor failed"),
    ("upload", {}, "no result was entered")])
def test_bad_fields_are_one_line_and_keep_what_was_typed(quiet, action, fields, words):
    status, _, page = quiet.send(action, form=action, **fields)
    alert = re.search(r'role="alert">(.*?)</div>', page, re.S)[1]
    assert status == 400 and words in alert and "Nothing was recorded" in alert
    assert "Traceback" not in page and quiet.server.desk.revision() == 0
    if "value0.other" in fields: assert f'value="{fields["value0.other"]}"' in page


def test_broken_requests(quiet):
    post = lambda body, **headers: quiet.ask("POST", quiet.home + "tell", body, **headers)
    assert post("{}", Content_Type="application/json")[0] == 415
    assert post("x", Content_Type="multipart/form-data")[0] == 415
    assert post(b"\xff=%ff", Content_Type=ENCODED)[0] == 400
    bad = b'--x7\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x7--\r\n'
    assert post(bad, Content_Type="multipart/form-data; boundary=x7")[0] == 400
    assert post(None, Content_Length="x")[0] == 411
    assert post(iter([b"a"]), Content_Type=ENCODED,
                Transfer_Encoding="chunked")[0] == 411
    with socket.create_connection(("127.0.0.1", quiet.server.server_port)) as s:
        s.sendall(b"GET / nonsense\r\n\r\n")
        answer = s.makefile("rb").read()
        assert b" 400 " in answer.split(b"\r\n")[0] and b"cannot be read" in answer
    assert quiet.server.desk.revision() == 0 and quiet.look()[0] == 200


def test_too_large(quiet, monkeypatch):
    monkeypatch.setattr(room, "MOST", 2**20)
    status, _, page = quiet.upload("big.csv", b"id,value\n" + b"c1,1\n"*2**18)
    assert status == 413 and "larger than 1 MB" in page and quiet.server.desk.revision() == 0


def test_slow_windows_do_not_hold_up_others(quiet, monkeypatch):
    monkeypatch.setattr(room.Handler, "timeout", 0.5)
    calls = [socket.create_connection(("127.0.0.1", quiet.server.server_port)) for _ in range(20)]
    half = (f"POST {quiet.home}ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n\r\nseen=0&n")
    for s in calls[10:]: s.sendall(half.encode())
    assert quiet.look("revision")[2] == "0"
    assert b" 408 " in calls[-1].makefile("rb").readline()
    for s in calls: s.close()
    assert quiet.server.desk.revision() == 0


# tables

def test_upload(window):
    table = "id;value;note\nc1;1.5;\nc2;>3;a “note”\n".encode()
    assert window.upload("results.csv", table, note="all")[0] == 303
    obs = window.campaign.observations
    assert obs["id"].tolist() == ["c1", "c2"] and obs["bound"].tolist() == ["", ">3"]
    assert obs["note"].tolist()[1] == "a “note”"
    assert window.upload("results.csv", table, once="again")[1]["Location"] == "./?done=2"
    assert "2 of these values were told before" in window.look("?done=2")[2]
    renamed = b"compound,logS\nc4,2\n"
    assert window.upload("r.csv", renamed, id_column="compound", value_column="logS")[0] == 303
    assert window.told()[-1] == ("c4", 2.)


@pytest.mark.parametrize("name, data, words", [
    ("r.csv", b"id,value\nc1,\n", "r.csv: row 1, column &#39;value&#39;"),
    ("r.csv", b"id,value\nzz,1\n", "no candidate with the id &#39;zz&#39;"),
    ("r.csv", b"name,result\nc1,1\n", "r.csv has no column &#39;id&#39;"),
    ("r.csv", b"", "r.csv"), ("r.csv", b"\x00\x01\x02", "r.csv"),
    ("../../etc/passwd", b"x", "expected a table"), ("r.exe", b"MZ", "expected a table"),
    ("r.parquet", b"PAR1", "parquet"), ("", b"", "no file was chosen")])
def test_bad_uploads(quiet, name, data, words):
    status, _, page = quiet.upload(name, data, form="upload")
    alert = re.search(r'role="alert">(.*?)</div>', page, re.S)[1]
    assert status == 400 and words in alert and "/tmp" not in alert and ".." not in alert
    assert quiet.server.desk.revision() == 0


def test_files_arrive_byte_for_byte():
    rng = np.random.default_rng(0)
    for _ in range(50):
        data = rng.choice([b"\r", b"\n", b"-", b"--x7", b"\r\n--x", b"\0", b"\xff", b"a"], 30)
        data = b"".join(data.tolist())
        if b"\r\n--x7" in b"\r\n" + data: continue           # a browser picks another boundary
        body = (b'--x7\r\nContent-Disposition: form-data; name="t"\r\n\r\n\xc3\xa9;\r\n\r\n1\r\n'
                b'--x7\r\nContent-Disposition: form-data; name="file"; filename="d\xc3\xa9.csv"'
                b'\r\n\r\n' + data + b"\r\n--x7--\r\n")
        form = read_form("multipart/form-data; boundary=x7", body)
        assert form.files == {"file": ("dé.csv", data)} and form.texts == {"t": "é;\r\n\r\n1"}
    with pytest.raises(Refusal): read_form("text/plain", b"")


def test_download_fill_in_and_upload(window):
    assert window.look("suggestions.csv")[0] == 404
    window.send("ask", n=2)
    status, headers, text = window.look("suggestions.csv")
    assert status == 200 and "attachment" in headers["Content-Disposition"]
    head, *rows = text.splitlines()
    k = head.split(",").index("value")
    filled = [",".join(row.split(",")[:k] + [str(i)] + row.split(",")[k + 1:])
              for i, row in enumerate(rows)]
    assert window.upload("suggestions.csv", "\n".join([head, *filled]).encode())[0] == 303
    assert [v for _, v in window.told()] == [0., 1.] and window.campaign.pending.empty


def test_workbooks(window):
    pytest.importorskip("openpyxl")
    from gnn_bandits.intake import Upload, as_file, read_cells
    window.send("ask", n=2)
    con = http.client.HTTPConnection("127.0.0.1", window.server.server_port)
    con.request("GET", window.home + "suggestions.xlsx")
    table = read_cells(Upload("s.xlsx", con.getresponse().read()))
    assert table["id"].tolist() == window.campaign.pending["id"].tolist()
    table["value"] = ["1.5", ">2"]
    assert window.upload("s.xlsx", as_file(table, "xlsx"))[0] == 303
    assert window.campaign.observations["bound"].tolist() == ["", ">2"]
    status, _, page = window.upload("s.xlsx", b"id,value", form="upload")
    assert status == 400 and "s.xlsx is no .xlsx file" in page


# several outcomes and prices

@pytest.fixture
def several(tmp_path):
    prices = pd.DataFrame({"price": np.arange(1., N + 1)})
    wanted = {"yield": "max", "waste": "min", "purity": ">= 0.5"}
    with make(tmp_path/"lab", outcomes=wanted, cost="price", table=prices) as c, served(c) as w:
        yield w


def test_several_outcomes(several):
    c = several.campaign
    assert several.send("ask", n=5, budget="12")[0] == 303
    arms = c.pending["arm"].tolist()
    assert 0 < len(arms) and sum(a + 1 for a in arms) <= 12
    page = several.look()[2]
    for k, name in enumerate(("yield", "waste", "purity")):
        assert f'name="value{k}.{arms[0]}"' in page and f"{name}<span" in page
    a = arms[0]
    fields = {f"value0.{a}": "70; 72", f"value1.{a}": "3", "id": "c11", "value2.other": ">0.9"}
    assert several.send("tell", **fields)[0] == 303                 # a part of it: still pending
    assert a in c.pending["arm"].tolist()
    assert several.send("tell", **{f"value2.{a}": "0.8"})[0] == 303
    assert a not in c.pending["arm"].tolist()
    obs = c.observations
    found = {(i, o): v for i, o, v in zip(obs["id"], obs["outcome"], obs["value"])}
    assert len(obs) == 5 and found[c.ids[a], "yield"] == 72. and found[c.ids[a], "waste"] == 3.
    assert several.send("tell", **{"value3.1": "1"})[0] == 400      # there is no fourth
    status, _, page = several.look()
    assert status == 200 and "The front" in page and "spent" in page and c.ids[a] in page
    assert "Budget" in page and 'name="noise"' not in page
    assert several.look("report")[0] == 200
    seen = several.server.desk.revision()
    table = b"id,yield,waste,purity\nc1,50,,\nc2,60,2,>0.6\n"
    assert several.upload("results.csv", table)[0] == 303
    assert len(c.observations) == 9
    status, _, page = several.send("tell", seen=seen, **{"value0.1": "51", "value1.1": "1"})
    assert status == 409 and "c1 yield = 51, c1 waste = 1" in page
    again = re.search(r'name="table" value="([^"]*)"', page)[1]
    assert several.send("tell", table=again)[0] == 303 and len(c.observations) == 11
    assert several.look("suggestions.csv")[0] == (200 if len(c.pending) else 404)
    for fields in (dict(budget="0.5"), dict(budget="much"), dict(budget="-1")):
        status, _, page = several.send("ask", n=1, **fields)
        assert status == 400 and "Nothing was recorded" in page
    assert several.send("tell", noise="1", **{"value0.1": "1"})[0] == 400


# two windows

def test_a_double_click_records_once(window):
    fields = {"value0.1": "2.5", "once": "the same", "seen": 0}
    answers, start = [], threading.Barrier(4)
    def click():
        start.wait()
        answers.append(window.send("tell", **fields)[:2])
    threads = [threading.Thread(target=click) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert window.told() == [("c1", 2.5)] and {a for a, _ in answers} == {303}
    assert {h["Location"] for _, h in answers} == {"./?done=1"}
    assert window.send("tell", **fields | {"once": "another"})[0] == 409


def test_a_window_left_open_over_night(window):
    window.send("tell", **{"value0.1": "1"})
    seen = window.server.desk.revision()
    with Campaign.open(window.campaign.path) as colleague:
        colleague.tell("c2", 2., note="from a shell")
    before = window.told()
    status, _, page = window.send("undo", seen=seen, event=1, form="undo")
    assert status == 409 and "has changed meanwhile" in page and "c2 = 2" in page
    assert "Undo event 1. It was not done." in page and window.told() == before
    assert window.send("ask", seen=seen, n=2)[0] == 409
    again = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page))
    assert again["event"] == "1" and again["seen"] == "2"
    assert window.send("undo", **again)[0] == 303 and window.told() == [("c2", 2.)]


def test_a_window_that_is_behind_may_record_what_nobody_touched(window):
    window.send("tell", **{"value0.1": "1"}, seen=0)
    assert window.send("tell", **{"value0.2": "2"}, seen=0)[0] == 303
    status, _, page = window.send("tell", **{"value0.1": "1.25; >3", "note": "<i>"}, seen=0)
    assert status == 409 and "Record c1 = 1.25, c1 &gt;3." in page and len(window.told()) == 2
    assert "<i>" not in page
    again = re.search(r'name="table" value="([^"]*)"', page)[1].replace("&gt;", ">")
    assert window.send("tell", table=again, note="<i>")[0] == 303
    obs = window.campaign.observations
    assert obs["value"].tolist()[2] == 1.25 and obs["bound"].tolist()[3] == ">3"
    window.send("undo", event=1)
    assert window.send("tell", **{"value0.5": "1"}, seen=3)[0] == 409       # an undo matters


def test_the_notice_is_about_ones_own_event(window, monkeypatch):
    "Somebody writes between our event and the page about it"
    from gnn_bandits.journal import Journal
    writing = Journal.writing
    @contextmanager
    def then_a_colleague(self, timeout=10.):
        outer = self.db is None
        with writing(self, timeout): yield self
        if outer and self is window.campaign.journal:
            with Campaign.open(window.campaign.path) as c: c.exclude("c9")
    monkeypatch.setattr(Journal, "writing", then_a_colleague)
    assert window.send("tell", **{"value0.1": "1"})[1]["Location"] == "./?done=1"
    assert window.server.desk.revision() == 2


def test_two_writers(window):
    "Windows and another program at once: every acknowledged value is there, once"
    def colleague():
        with Campaign.open(window.campaign.path) as c:
            for k in range(5): c.tell("c0", 100. + k)
    def person(who):
        for k in range(5):
            got.append(window.send("tell", once=f"{who}-{k}", seen=0, **{f"value0.{who}": k})[0])
    got, people = [], [threading.Thread(target=colleague)]
    people += [threading.Thread(target=person, args=(who,)) for who in (1, 2)]
    for t in people: t.start()
    for t in people: t.join()
    told = window.told()
    assert got.count(303) == 2 and got.count(409) == 8 and len(told) == 5 + 2
    assert len({*told}) == 7 and window.look()[0] == 200


def test_a_journal_that_is_held(quiet, monkeypatch):
    from gnn_bandits.journal import Journal, JournalBusy
    def held(self, timeout=10.): raise JournalBusy(f"{self.path} is held by somebody; try again")
    monkeypatch.setattr(Journal, "writing", held)
    status, _, page = quiet.send("tell", **{"value0.1": "1"})
    assert status == 503 and "held by somebody" in page and str(quiet.campaign.path) not in page


def test_mistakes_of_ours_are_one_line(quiet, monkeypatch, capfd):
    def broken(*args, **options): raise TypeError("secret\nthing")
    monkeypatch.setattr(room, "plan", broken)
    status, _, page = quiet.send("tell", **{"value0.1": "1"})
    assert status == 500 and "made a mistake" in page and "secret" not in page
    assert capfd.readouterr().err == "gnn_bandits: TypeError: secret\\nthing\n"


def test_doubts_and_hostile_text(tmp_path):
    nasty = "<script>alert(1)</script>"
    with make(tmp_path/"<b>lab") as c, served(c) as w:
        c.tell([f"c{i}" for i in range(1, 7)], [1., 1.1, 1.2, 1.3, 1.4, 1.5])
        w.send("tell", **{"value0.8": "13000", "note": nasty})
        w.send("exclude", ids="c9", reason=nasty)
        status, _, page = w.look("?done=2")
        assert status == 200 and "is far from all other values" in page and "c.undo" not in page
        assert "alert(1)" in page and nasty not in page and "<b>lab" not in page


def test_a_read_only_campaign(tmp_path, monkeypatch):
    make(tmp_path/"lab").close()
    with Campaign.open(tmp_path/"lab") as c, served(c) as w:
        monkeypatch.setattr(c.journal, "readonly", True)
        status, _, page = w.look()
        assert status == 200 and "read-only" in page and 'action="tell"' not in page
        status, _, page = w.send("tell", **{"value0.1": "1"})
        assert status == 400 and str(tmp_path) not in page and w.told() == []


# from a shell

def start(folder, *more):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([sys.executable, "-m", "gnn_bandits", "campaign", "serve", str(folder),
                             "--no-browser", *more], env=env, preexec_fn=default, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_a_form_is_carried_out_loses_nothing(tmp_path):
    make(tmp_path/"lab").close()
    program = start(tmp_path/"lab", "--port", "0")
    try:
        first = program.stdout.readline()
        where = urlsplit(first.split()[-1])
        assert first.startswith("lab is at http://127.0.0.1:")
        assert "Ctrl-C" in program.stdout.readline()
        def send(k):
            con = http.client.HTTPConnection(where.netloc, timeout=60)
            body = urlencode({"seen": 0, "once": str(k), f"value0.{k}": k})
            try:
                con.request("POST", where.path + "tell", body,
                            {"Content-Type": ENCODED})
                got[k] = con.getresponse().status
            except OSError: got[k] = None
        got = {}
        send(0)
        people = [threading.Thread(target=send, args=(k,)) for k in range(1, N)]
        for t in people: t.start()
        program.send_signal(signal.SIGINT)
        for t in people: t.join()
        out, err = program.communicate(timeout=60)
    finally: program.kill()
    assert program.returncode == 0 and err == "" and out.startswith("ended; all that was recorded")
    with Campaign.open(tmp_path/"lab") as c: told = c.observations["arm"].tolist()
    acknowledged = {k for k, status in got.items() if status == 303}
    assert got[0] == 303 and acknowledged <= {*told} and len(told) == len({*told})
    assert {*got.values()} <= {303, 503, None}


def test_what_is_refused_before_anything_is_served(tmp_path, capsys, monkeypatch):
    from gnn_bandits import cli
    monkeypatch.setattr(room.Server, "serve_forever", lambda self: 1/0)
    def refused(*argv):
        code = cli.main(["campaign", "serve", *argv])
        out, err = capsys.readouterr()
        assert code == 2 and out == "" and err.count("\n") == 1, err
        return err
    (tmp_path/"empty").mkdir()
    monkeypatch.setattr(room.Server, "__init__", None)
    assert "no folder" in refused(str(tmp_path/"nothing"))
    assert "no campaign" in refused(str(tmp_path/"empty"))
    monkeypatch.undo()
    with make(tmp_path/"lab") as c, Server(c, 0) as other:
        port = str(other.server_port)
        err = refused(str(tmp_path/"lab"), "--no-browser", "--port", port)
        assert f"port {port} cannot be used" in err and "--port 0" in err
    assert "65535" in refused(str(tmp_path/"lab"), "--port", "70000")


def test_json_tells_the_address(tmp_path, capsys, monkeypatch):
    import json
    from gnn_bandits import cli
    make(tmp_path/"lab").close()
    opened = []
    monkeypatch.setattr(room.Server, "serve_forever", lambda self: None)
    monkeypatch.setattr(room, "open_window", opened.append)
    assert cli.main(["campaign", "serve", str(tmp_path/"lab"), "--port", "0", "--json"]) == 0
    address = json.loads(capsys.readouterr().out)["address"]
    assert address.startswith("http://127.0.0.1:") and len(urlsplit(address).path) > 40
    assert len(opened) == 1 and urlsplit(address).path.strip("/") not in opened[0]


# in a browser

@pytest.fixture
def tab(browser, window):
    "The page, opened at the width of a phone on a dark screen; errors and requests are collected"
    tab = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    tab.errors, tab.outside = [], []
    tab.on("console", lambda m: tab.errors.append(m.text) if m.type in ("error", "warning") else 0)
    tab.on("pageerror", lambda e: tab.errors.append(str(e)))
    tab.on("request", lambda r: tab.outside.append(r.url))
    tab.goto(window.server.first)
    yield tab
    tab.close()


def press_until(tab, label, exact=False, most=60):
    "Move the focus by the keyboard until it is on something of this name"
    for _ in range(most):
        tab.keyboard.press("Tab")
        name = tab.evaluate("""() => { const e = document.activeElement;
            return (e.labels?.length ? e.labels[0].textContent : e.textContent).trim() }""")
        if name == label or not exact and name.startswith(label): return
    raise AssertionError(f"the keyboard does not reach {label!r}")


def test_work_by_the_keyboard_on_a_phone(tab, window):
    home = window.server.address
    assert tab.url == home
    press_until(tab, "How many")
    tab.keyboard.type("2")                                      # the old number is selected
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?done=1")
    assert len(window.campaign.pending) == 2
    arm = int(window.campaign.pending["arm"].iloc[0])
    name = window.campaign.ids[arm]
    press_until(tab, f"Result of {name}", exact=True)
    tab.keyboard.type("3,5")
    tab.keyboard.press("Enter")
    tab.get_by_role("alert").wait_for()
    assert "decimal comma" in tab.get_by_role("alert").text_content() and window.told() == []
    tab.reload()                                                # the same again, not another site
    box = tab.get_by_label(f"Result of {name}", exact=True)
    assert box.input_value() == "3,5"
    box.fill("3.5; 3.7")
    press_until(tab, "Record results")
    tab.keyboard.press("Space")
    tab.wait_for_url("**/?done=2")
    assert window.told() == [(name, 3.5), (name, 3.7)]
    assert "Recorded:" in tab.locator(".say").text_content()
    press_until(tab, "Undo event 2")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?done=3")
    assert window.told() == []
    tab.reload()                                                # nothing is sent again
    assert window.server.desk.revision() == 3
    wide = tab.evaluate("document.documentElement.scrollWidth")
    assert wide == 390 and [e for e in tab.errors if "400" not in e] == []
    assert all(u.startswith((home, window.server.first.rpartition("/")[0])) for u in tab.outside)
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_accessibility(tab, window, axe):
    c = window.campaign
    c.tell(["c1", "c2", "c3"], [1., 2., 3.]), c.fail("c4", "spilled"), c.exclude("c5")
    c.ask(2)
    found = {}
    for scheme, width in (("dark", 390), ("light", 1200)):
        tab.emulate_media(color_scheme=scheme), tab.set_viewport_size(dict(width=width, height=800))
        tab.goto(window.server.address + "?done=1")
        for fold in tab.locator("summary").all(): fold.click()
        found |= {(scheme, *key): nodes for key, nodes in axe(tab).items()}
        tab.goto(window.server.address + "nothing")
        found |= {(scheme, *key): nodes for key, nodes in axe(tab).items()}
    assert found == {}


def test_two_windows(tab, window, browser):
    other = browser.new_page()
    other.goto(window.server.address)
    other.get_by_label("How many").fill("1")
    other.get_by_role("button", name="Ask for them").dblclick()
    other.wait_for_url("**/?done=1")
    assert window.server.desk.revision() == 1
    tab.locator("#news a").wait_for()
    assert "has changed" in tab.locator("#news").text_content()
    tab.get_by_role("button", name="Ask for them").click()
    tab.get_by_role("heading", name="The campaign has changed meanwhile").wait_for()
    assert window.server.desk.revision() == 1
    tab.get_by_role("button", name="Do it all the same").click()
    tab.wait_for_url("**/?done=2")
    assert len(window.campaign.pending) > 1
    other.close()


def test_without_script_and_with_a_file(browser, window, tmp_path):
    (tmp_path/"plate.csv").write_text("id,value\nc1,1\nc2,>2\n")
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(window.server.address)
    tab.get_by_text("Upload a table of results").click()
    tab.get_by_label("File").set_input_files(tmp_path/"plate.csv")
    tab.get_by_role("button", name="Record the table").click()
    tab.wait_for_url("**/?done=1")
    assert window.campaign.observations["id"].tolist() == ["c1", "c2"]
    tab.get_by_role("link", name="The whole report").click()
    tab.get_by_role("heading", name="Where it comes from").wait_for()
    tab.context.close()


def test_another_site_in_the_same_browser(browser, window, tmp_path):
    "A page that knows the address and even the token cannot send a form, nor show ours in a frame"
    home = window.server.address
    (tmp_path/"evil.html").write_text(f"""<form method=post action="{home}ask">
        <input name=seen value=0><input name=n value=3><button>go</button></form>
        <iframe src="{home}"></iframe>""")
    tab = browser.new_page()
    tab.goto((tmp_path/"evil.html").as_uri())
    assert tab.frames[1].url != home or tab.frames[1].locator("h1").count() == 0
    tab.get_by_role("button", name="go").click()
    tab.get_by_role("heading", name="403 Forbidden").wait_for()
    assert window.server.desk.revision() == 0
    tab.close()
