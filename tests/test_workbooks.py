"Tables as people have them, in workbooks, Parquet and text: read as they are meant, or refused."
import io
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnn_bandits import cli
from gnn_bandits.campaigns import Campaign
from gnn_bandits.intake import (FILES, Upload, as_file, column_names, from_spreadsheet, numbers,
                                read_cells, read_results, same_id)
from gnn_bandits.logbook import Asked

openpyxl = pytest.importorskip("openpyxl")
pytestmark = pytest.mark.usefixtures("one_thread")
SMILES = ["CCO", "CCN", "CCC", "CCCC", "CCOC", "CC(C)O", "CCCN", "CO"]
TEXTS = ["007", "7", "7.0", "1e5", "=SUM(A1)", "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@x", "'=1",
         "''=1", "'a", "a\rb", "a\r\nb", "a\nb", "\ta", "a,b;c\t\"d\"", "é α 日本 🧪", "\u200fx",
         "x"*30_000, "_x000D_", "_x005F_x000D_", "__x0041_", "\x01\x1f", "\ufffe", "NA", "nan",
         "None", "TRUE", "#N/A", "2024-03-01", "1/2", "<b>&amp;</b>", "  inside  blanks", "ﬁ₂"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(home, capsys):
    def call(line, *words):
        capsys.readouterr()
        try: code = cli.main(["campaign", *line.split(), *map(str, words)])
        except SystemExit as e: code = e.code
        return code, *capsys.readouterr()
    return call


def workbook(name, *sheets, merged=(), hidden=(), formats=None):
    "A file with a sheet for each list of rows"
    book = openpyxl.Workbook()
    book.remove(book.active)
    for k, rows in enumerate(sheets, 1):
        page = book.create_sheet(f"Plate {k}")
        for row in rows: page.append(row)
        for ref in merged: page.merge_cells(ref)
        for ref, form in (formats or {}).items(): page[ref].number_format = form
        if k in hidden: page.sheet_state = "hidden"
    book.save(name)
    return name


def needs(kind):
    if kind == "parquet": pytest.importorskip("pyarrow")


# texts and numbers that come back as they were

@pytest.mark.parametrize("kind", FILES)
def test_any_text_in_any_cell(kind):
    needs(kind)
    rng = np.random.default_rng(0)
    some = [*range(32, 127), *range(0x80, 0x3000, 7), 0x1f600, 13, 10]
    wild = ["x" + "".join(map(chr, rng.choice(some, 12))) + "x" for _ in range(300)]
    texts = TEXTS + wild
    table = pd.DataFrame({"id": texts, "=name": texts[::-1], "n": range(len(texts))})
    back = read_cells(Upload(f"t.{kind}", as_file(table, kind)))
    bare = from_spreadsheet if kind == "csv" else str
    assert [bare(c) for c in back] == list(table)
    for name in back:
        assert [bare(t) for t in back[name]] == table[bare(name)].astype(str).tolist()


@pytest.mark.parametrize("kind", FILES)
def test_numbers_keep_their_digits(kind):
    needs(kind)
    rng = np.random.default_rng(1)
    values = [*(rng.standard_normal(200)*10.**rng.integers(-30, 30, 200)), 0.1 + 0.2, 1e-7, 2.**53,
              -0., np.nan, 1e-300, 7.]
    table = pd.DataFrame({"id": range(len(values)), "y": values, "none": [None]*len(values)})
    back = read_cells(Upload(f"t.{kind}", as_file(table, kind)))
    np.testing.assert_array_equal([np.nan if v is None else v for v in numbers(back, "y", "t")],
                                  values)
    assert back["id"].tolist() == list(map(str, range(len(values))))
    assert set(back.get("none", [""])) == {""}


@pytest.mark.parametrize("kind", FILES)
def test_dates_truth_and_whole_numbers(kind):
    needs(kind)
    table = pd.DataFrame({"d": pd.to_datetime(["2024-03-01", "1999-12-31"]), "b": [True, False],
                          "n": pd.array([7, None], dtype="Int64"), "f": [7., np.nan],
                          "mixed": [1.5, ">10"], "big": [2**60, 1]})
    back = read_cells(Upload(f"t.{kind}", as_file(table, kind))).to_dict("list")
    whole = "7.0" if kind == "csv" else "7"
    assert back == {"d": ["2024-03-01", "1999-12-31"], "b": ["True", "False"], "n": ["7", ""],
                    "f": [whole, ""], "mixed": ["1.5", ">10"], "big": [str(2**60), "1"]}


def test_no_cell_that_we_write_is_a_formula(home):
    data = as_file(pd.DataFrame({"=id": TEXTS, "value": 1.}), "xlsx")
    page = openpyxl.load_workbook(io.BytesIO(data))["Sheet1"]
    assert {c.data_type for row in page for c in row} == {"s", "n"} and page["A6"].value == TEXTS[4]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert b"<f" not in archive.read("xl/worksheets/sheet1.xml")
    risky = [c for c, in page["A2:A12"] if c.value.startswith(("=", "+", "-", "@", "'="))]
    assert len(risky) == 6 and all(c.quotePrefix for c in risky)


def test_what_a_workbook_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="row 1, column 'id': an .xlsx file holds 32,767"):
        as_file(pd.DataFrame({"id": ["x"*32_768]}), "xlsx")
    with pytest.raises(ValueError, match="fewer than 1,048,576 rows"):
        as_file(pd.DataFrame({"id": range(2**20)}), "xlsx")
    with pytest.raises(ValueError, match="ends in .csv, .xlsx, .parquet"):
        as_file(pd.DataFrame({"id": [1]}), "ods")


def test_ids_that_look_like_numbers():
    known = {"7", "8.0", "0010", "x"}
    pairs = {"7": "7", "7.0": "7", "7.": "7", "8": "8.0", "8.0": "8.0", "10": "10", "0010": "0010",
             "x": "x", "7.5": "7.5", "": "", "-7": "-7"}
    assert {t: same_id(t, known) for t in pairs} == pairs


# workbooks that people made

GOOD = [["id", "value"], ["a", 1.5], ["b", 2]]


def test_several_sheets(home):
    workbook("w.xlsx", GOOD, [["id", "value"], ["c", 3]])
    with pytest.warns(UserWarning, match="2 sheets, and the first, 'Plate 1', was read; sheet="):
        assert len(read_results("w.xlsx")) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_results("w.xlsx", sheet="Plate 2")["id"].tolist() == ["c"]
        workbook("h.xlsx", [["old"]], GOOD, hidden=[1])
        assert read_results("h.xlsx")["id"].tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="no sheet 'x'; its sheets are 'Plate 1', 'Plate 2'"):
        read_results("w.xlsx", sheet="x")
    workbook("e.xlsx", [], GOOD)
    with pytest.raises(ValueError, match="'Plate 1' is empty; sheet=, or --sheet .*: 'Plate 2'"):
        read_results("e.xlsx")


def test_a_sheet_as_people_leave_it(home):
    rows = [[], [None, None], ["id", " value ", None], ["007", "3.5", None], [], ["b", 2., ""],
            [None, None], []]
    found = read_results(workbook("w.xlsx", rows))
    assert found["id"].tolist() == ["007", "b"] and found["value"].tolist() == [3.5, 2.]
    found = read_cells(workbook("f.xlsx", [["id"], [7], [12]], formats={"A2": "000"}))
    assert found["id"].tolist() == ["007", "12"]
    date = pd.Timestamp("2024-03-01").to_pydatetime()
    workbook("d.xlsx", [["id", "value"], ["a", date]])
    with pytest.raises(ValueError, match="row 1, column 'value': .*'2024-03-01'.*a date"):
        read_results("d.xlsx")


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def by_hand(cells, strings, x=""):
    "A workbook as other programs write it: shared strings, a wrong dimension, a prefix if wanted"
    ns, tag = (f'xmlns:{x}="{MAIN}"', f"{x}:") if x else (f'xmlns="{MAIN}"', "")
    mark = lambda text: re.sub("<(/?)", rf"<\1{tag}", text)
    package = "http://schemas.openxmlformats.org/package/2006"
    part = lambda name, kind: f'<Override PartName="/xl/{name}" ContentType="{KIND}.{kind}+xml"/>'
    link = lambda i, kind, to: f'<Relationship Id="{i}" Type="{REL}/{kind}" Target="{to}"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        + part("workbook.xml", "sheet.main") + part("s.xml", "worksheet")
        + part("t.xml", "sharedStrings") + "</Types>",
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{REL}"><sheets><sheet name="S" '
        'sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        + link("r1", "worksheet", "s.xml") + link("r2", "sharedStrings", "t.xml")
        + "</Relationships>",
        "xl/s.xml": f"<{tag}worksheet {ns}>" + mark('<dimension ref="A1"/><sheetData>' + cells
                                                    + "</sheetData></worksheet>"),
        "xl/t.xml": f'<sst xmlns="{MAIN}">' + "".join(f"<si>{t}</si>" for t in strings) + "</sst>"}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, text in parts.items(): z.writestr(name, text)
    return out.getvalue()


@pytest.mark.parametrize("prefix", ["", "x"])
def test_a_workbook_of_another_program(prefix):
    strings = ["<t>id</t>", "<t>value</t>", "<t>a_x000D_\nb</t>",
               "<r><t>ri</t></r><r><t>ch</t></r>"]
    cell = lambda ref, kind, inside: f'<c r="{ref}" t="{kind}">{inside}</c>'
    head = f'<row r="1">{cell("A1", "s", "<v>0</v>")}{cell("B1", "s", "<v>1</v>")}</row>'
    rows = [cell("A2", "s", "<v>2</v>") + cell("B2", "n", "<f>1+1</f><v>2</v>"),
            cell("A4", "s", "<v>3</v>") + cell("B4", "n", '<f t="shared" si="0"/><v>1.5E-7</v>'),
            cell("A5", "str", "<f>A4</f><v>x</v>") + cell("B5", "b", "<v>1</v>")
            + cell("C5", "str", "<f>IF(1,\"\")</f><v></v>")]
    body = "".join(f'<row r="{k}">{row}</row>' for k, row in zip((2, 4, 5), rows))
    found = read_cells(Upload("w.xlsx", by_hand(head + body, strings, prefix)))
    assert found.to_dict("list") == {"id": ["a\r\nb", "rich", "x"],
                                     "value": ["2", "1.5e-07", "True"]}
    for lost in ("<f>1+1</f>", "<f>1+1</f><v/>", '<f t="shared" si="0"/><v></v>'):
        bad = head + f'<row r="2">{cell("A2", "n", lost)}</row>'
        with pytest.raises(ValueError, match="the cell A2 holds a formula without its result"):
            read_cells(Upload("w.xlsx", by_hand(bad, strings, prefix)))


def test_damage_anywhere_is_one_line():
    whole = as_file(pd.DataFrame({"id": TEXTS[:9], "value": range(9)}), "xlsx")
    rng, kept = np.random.default_rng(0), read_cells(Upload("w.xlsx", whole))
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(len(data), size=rng.integers(1, 4)): data[at] = rng.integers(256)
        try: found = read_cells(Upload("w.xlsx", bytes(data)))
        except ValueError as e: assert "\n" not in str(e) and "w.xlsx" in str(e), e
        else: assert found.equals(kept)                   # a byte that says nothing, or a checksum


def damaged(data, part, change):
    "The bytes of a workbook with one part changed"
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for p in old.infolist():
            text = old.read(p)
            new.writestr(p.filename, change(text) if p.filename == part else text)
    return out.getvalue()


def files():
    "Files that are no table, and what is said of them"
    whole = as_file(pd.DataFrame(GOOD[1:], columns=GOOD[0]), "xlsx")
    first = "xl/worksheets/sheet1.xml"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as z: z.writestr("word/document.xml", "<x/>")
    return {"empty": (b"", "is empty"), "text": (b"id,value\na,1\n", "let its name end in .csv"),
            "old": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x"*99, "an old Excel, or needs"),
            "cut": (whole[:len(whole)//2], "is damaged"), "begin": (whole[:30], "is damaged"),
            "flipped": (whole[:200] + b"\xff"*300 + whole[500:], "is damaged"),
            "document": (other.getvalue(), "an archive, but no .xlsx file"),
            "half xml": (damaged(whole, first, lambda t: t[:len(t)//2]), "is damaged"),
            "no xml": (damaged(whole, first, lambda t: b"id,value"), "is damaged"),
            "no sheets": (damaged(whole, "xl/workbook.xml", lambda t: b"<workbook/>"), "w.xlsx"),
            "bomb": (damaged(whole, first, lambda t: b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY '
                             b'a "aaaa">]><x>&a;</x>'), "w.xlsx")}


@pytest.mark.parametrize("case", files())
def test_a_file_that_is_none(home, case):
    data, says = files()[case]
    Path("w.xlsx").write_bytes(data)
    for source in ("w.xlsx", Upload("w.xlsx", data)):
        with pytest.raises(ValueError, match=says) as e: read_results(source)
        assert "\n" not in str(e.value) and len(str(e.value)) < 300
        with pytest.raises(ValueError): column_names(source)


def test_memory_is_estimated_from_the_sizes_in_the_archive(home, monkeypatch):
    from gnn_bandits import core
    workbook("w.xlsx", [["id", "value"], *([f"m{i}", i] for i in range(5000))])
    data = damaged(Path("w.xlsx").read_bytes(), "xl/worksheets/sheet1.xml",
                   lambda t: t + b" "*10**7)
    monkeypatch.setattr(core, "available_bytes", lambda: 2**26)
    with pytest.raises(ValueError, match="w.xlsx would take about .* of memory"):
        read_results(Upload("w.xlsx", data))


def test_a_missing_package_is_named(home, monkeypatch, shell):
    workbook("w.xlsx", GOOD)
    lab(8)
    before = sorted(p.name for p in Path("lab").iterdir())
    for name in ("openpyxl", "openpyxl.cell", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    Path("p.parquet").write_bytes(b"PAR1")
    for line, extra in (("tell lab w.xlsx", "excel"), ("ask lab --out b.xlsx", "excel"),
                        ("export lab --format xlsx", "excel"), ("tell lab p.parquet", "parquet"),
                        ("new w.xlsx --smiles id --out x", "excel"),
                        ("export lab --format parquet", "parquet")):
        code, out, err = shell(line)
        assert code == 2 and out == "" and err.count("\n") == 1, err
        assert f"pip install 'gnn_bandits[{extra}]'" in err, err
    with Campaign.open("lab") as c: assert not len(c.events)
    assert sorted(p.name for p in Path("lab").iterdir()) == before


# campaigns

def lab(n=8, **more):
    "A campaign of molecules from a workbook whose columns have names of their own"
    pytest.importorskip("rdkit")
    ids = ["007", "=SUM(A1)", "@m", "11", "12", "-x", "e\rf", "z"][:n]
    rows = pd.DataFrame({"compound": ids, "formula": SMILES[:n], "logS": None, "price": 3})
    Path("pool.xlsx").write_bytes(as_file(rows, "xlsx"))
    return Campaign.from_csv("lab", "pool.xlsx", "formula", "compound", "logS", **more)


def test_a_campaign_of_workbooks(home, shell):
    c = lab(maximize=False)
    assert c.ids[:2] == ["007", "=SUM(A1)"] and c.ids[6] == "e\rf" and not c.maximize
    assert {"compound", "formula", "logS", "price"} <= {*c.table}
    code, out, err = shell("ask lab -n 8 --out batch.xlsx")
    assert code == 0 and "wrote batch.xlsx" in out, err
    batch = openpyxl.load_workbook("batch.xlsx")
    page = batch.active
    names = [cell.value for cell in page[1]]
    assert names[:2] == ["id", "formula"] and "f" not in {x.data_type for row in page for x in row}
    for k in range(2, page.max_row + 1): page.cell(k, names.index("value") + 1).value = k/4
    batch.save("batch.xlsx")
    code, out, err = shell("tell lab batch.xlsx")
    assert code == 0 and "8 recorded as event 2" in out, err
    with Campaign.open("lab") as c:
        assert sorted(c.observations["id"]) == sorted(c.ids) and not len(c.pending)
        assert sorted(c.observations["value"]) == [k/4 for k in range(2, 10)]
    for kind in ("xlsx", "csv"):
        code, out, err = shell(f"export lab --out tables --format {kind}")
        assert code == 0 and out.count("\n") == 3, err
        told = read_cells(f"tables/measurements.{kind}")
        bare = from_spreadsheet if kind == "csv" else str
        assert sorted(map(bare, told["id"])) == sorted(c.ids)
        assert shell(f"export lab --out tables --format {kind}")[0] == 0          # over its own
    Path("tables/events.xlsx").write_bytes(b"mine")
    code, out, err = shell("export lab --out tables --format xlsx")
    assert code == 2 and "did not write it" in err
    assert Path("tables/events.xlsx").read_bytes() == b"mine"
    code, out, err = shell("predict lab 007 --out batch.xlsx")
    assert code == 2 and "batch.xlsx is there already" in err
    assert shell("predict lab 007 --out p.csv")[0] == 0 and len(read_cells("p.csv")) == 1


def test_parquet_goes_round(home, shell):
    pytest.importorskip("pyarrow")
    lab().tell({"007": 1., "z": ">3"})
    assert shell("ask lab -n 2 --out batch.parquet")[0] == 0
    assert shell("export lab --out tables --format parquet")[0] == 0
    told = read_results("tables/measurements.parquet")
    assert told["id"].tolist() == ["007", "z"] and list(map(str, told["value"])) == ["1.0", ">3"]
    more = pd.DataFrame({"compound": ["020"], "formula": ["CCCCC"]})
    more.to_parquet("more.parquet")
    assert shell("add lab more.parquet")[0] == 0
    pd.DataFrame({"compound": ["020"], "logS": [2.]}).to_parquet("r.parquet")
    assert shell("tell lab r.parquet")[0] == 0


def test_columns_are_remembered(home, shell):
    lab()
    rows = [["compound", "logS", "id", "note"], ["007", 1.5, "nr 1", "a"], [11., "2", "nr 2", ""]]
    code, out, err = shell("tell lab", workbook("r.xlsx", rows, rows[:2]))
    assert code == 0 and "2 sheets, and the first" in err, err
    with Campaign.open("lab") as c:
        assert c.observations["id"].tolist() == ["007", "11"]
        assert c.observations["note"].tolist() == ["a", ""]
    workbook("other.xlsx", [["nr", "y"], ["z", 4]])
    assert "has no column" in shell("tell lab other.xlsx")[2]
    assert shell("tell lab other.xlsx --id nr --value y")[0] == 0
    assert shell("tell lab other.xlsx")[0] == 0               # now by heart
    assert shell("tell lab", workbook("r2.xlsx", [["id", "value"], ["z", 4]]))[0] == 0
    assert shell("undo lab --event 2")[0] == 0 and shell("undo lab --event 3")[0] == 0
    assert "has no column" in shell("tell lab other.xlsx")[2]
    more = [["compound", "formula"], ["020", "CCCCC"]]
    assert shell("add lab", workbook("more.xlsx", more))[0] == 0
    assert shell("add lab", workbook("more2.xlsx", [["x", "formula"], ["021", "CCCCCC"]]), "--id",
                 "x")[0] == 0
    assert shell("add lab", workbook("more3.xlsx", [["compound", "formula"], ["22", "CN"]]))[0] == 0
    with Campaign.open("lab") as c: assert c.ids[-3:] == ["020", "021", "22"] and len(c) == 11
    pd.DataFrame({"compound": [22.], "logS": [3.]}).to_csv("f.csv", index=False)
    assert shell("tell lab f.csv")[0] == 0
    code, out, err = shell("tell lab", workbook("z.xlsx", [["compound", "logS"], [7, 1]]))
    assert code == 2 and "is '007' meant? Spreadsheets take away zeros" in err


BAD = {"two values": ([["compound", "logS", "value"], ["007", 1, 2]], "say which it is with"),
       "merged": ([["compound", "logS", None], ["007", 1, 2]], "B1:C1 of the header are merged"),
       "formula": ([["compound", "logS"], ["007", "=1+1"]], "cell B2 holds a formula without"),
       "text": ([["compound", "logS"], ["007", "n.d."]], "row 1, column 'logS'"),
       "comma": ([["compound", "logS"], ["007", "1,5"]], "write 1.5"),
       "no value": ([["compound", "logS"], ["007", None]], "'007' has no value"),
       "no id": ([["compound", "logS"], [None, 1]], "the id is missing"),
       "unknown": ([["compound", "logS"], ["a", 1]], "no candidate with the id 'a'"),
       "header alone": ([["compound", "logS"]], "a header and no rows"),
       "no sheet": ([], "is empty"), "other columns": ([["a", "b"], [1, 2]], "no column 'id'"),
       "title": ([["Plate 3", None], ["compound", "logS"], ["007", 1]], "row 1 has 2 cells"),
       "error": ([["compound", "logS"], ["007", "#DIV/0!"]], "row 1, column 'logS'"),
       "more cells": ([["compound", "logS"], ["007", 1, None, "see below"]], "row 1 has 4 cells")}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_workbook_records_nothing(home, shell, case):
    rows, says = BAD[case]
    lab(3)
    before = {p.name: p.read_bytes() for p in Path("lab").iterdir()}
    merged = ["B1:C1"] if case == "merged" else []
    code, out, err = shell("tell lab", workbook("r.xlsx", rows, merged=merged))
    assert (code, out, err.count("\n")) == (2, "", 1) and says in err, err
    assert {p.name: p.read_bytes() for p in Path("lab").iterdir()} == before


def test_a_workbook_through_a_pipe(home, shell, monkeypatch):
    lab()
    data = Path(workbook("r.xlsx", [["compound", "logS"], ["z", 1]])).read_bytes()
    class Stdin:
        buffer, isatty = io.BytesIO(data), staticmethod(lambda: False)
    monkeypatch.setattr(sys, "stdin", Stdin)
    code, out, err = shell("tell lab -")
    assert code == 0 and "1 recorded" in out, err


def test_telling_a_file_or_a_table_in_python(home):
    c = lab()
    c.tell(workbook("r.xlsx", [["compound", "logS"], ["z", 1]]))
    c.tell(Path("r.xlsx")).tell(Upload("any.xlsx", Path("r.xlsx").read_bytes()))
    c.tell(pd.DataFrame({"compound": [11.], "logS": [2.]}))
    other = pd.DataFrame({"nr": ["12"], "value": [9.], "y": [3.]})
    c.tell(other, columns={"id": "nr", "value": "y"})
    c.tell(pd.DataFrame({"y": [4.]}, index=pd.Index(["12"], name="nr")))
    assert c.observations["id"].tolist() == ["z", "z", "z", "11", "12", "12"]
    assert c.observations["value"].tolist()[3:] == [2., 3., 4.]
    n = len(c.events)
    for given, more in ((pd.DataFrame({"a": [1]}), {}), ("z", {}), (["z"], dict(sheet="x")),
                        (["z"], dict(columns={"id": "a"})), ("none.xlsx", {}),
                        (pd.DataFrame({"id": ["z"], "value": [1]}), dict(columns={"id": "nr2"})),
                        ("r.xlsx", dict(columns={"smiles": "a"}))):
        with pytest.raises(ValueError): c.tell(given, **more)
    assert len(c.events) == n
    workbook("p.xlsx", [["SMILES"], ["CCO"]])
    assert len(Campaign.from_csv("x", "p.xlsx", "SMILES", results={"0": 2.}).observations) == 1


def test_what_from_csv_says(home):
    pytest.importorskip("rdkit")
    rows = [["id", "SMILES"], ["a", "CCO"], ["b", "OCC"], ["c", "oops"]]
    workbook("p.xlsx", rows)
    with pytest.warns(UserWarning) as caught:
        c = Campaign.from_csv("lab", "p.xlsx", smiles="SMILES", invalid="skip", seed=3)
    said = " ".join(str(w.message) for w in caught)
    assert "1 row was left out; row 3" in said and "the molecule of an earlier row" in said
    assert c.ids == ["a", "b"] and c.settings["seed"] == 3
    with pytest.raises(ValueError, match="row 3, column 'SMILES'"):
        Campaign.from_csv("lab2", "p.xlsx", smiles="SMILES")
    assert not Path("lab2").exists()


def test_ask_shows_ids(home):
    c = lab()
    batch = c.ask(3)
    assert isinstance(batch, Asked) and batch == [int(a) for a in batch] and len(batch) == 3
    assert batch.ids == [c.ids[a] for a in batch]
    assert repr(batch) == "[" + ", ".join(f"{int(a)} ({c.ids[a]})" for a in batch) + "]"
    assert json.loads(json.dumps(batch)) == batch and repr(batch[:2]) == str([*map(int, batch[:2])])
    c.tell(batch, [1., 2., 3.]).tell(c.ask(1).ids, [4.])
    assert isinstance(c.tell(dict(zip(batch.ids, [1., 1., 1.]))), Campaign)
    plain = Campaign.create("plain", c.domain)
    assert repr(got := plain.ask(2)) == repr([*map(int, got)])


def test_a_campaign_in_a_notebook(home):
    c = lab()
    assert "no exact value yet" in c._repr_html_() and "ask(2)" in c._repr_html_()
    c.tell({"007": 1., "=SUM(A1)": 2., "@m": ">3"})
    c.ask(2)
    shown = c._repr_html_()
    assert "2, =SUM(A1) (the largest measured)" in shown and "measure what is pending" in shown
    assert "3 values of 3 candidates" in shown


def test_an_event_that_is_too_long_for_a_cell_is_cut(home):
    c = lab()
    c.tell(["007"]*4000, np.arange(4000.))
    paths = c.export("tables", format="xlsx")
    assert read_cells(paths[2])["data"][0].endswith("…") and len(read_cells(paths[1])) == 4000


def test_several_outcomes_in_a_workbook(home, shell):
    pytest.importorskip("rdkit")
    rows = [["flask", "SMILES", "yield", "purity"], *([f"f{i}", s] for i, s in enumerate(SMILES))]
    line = "new", workbook("pool.xlsx", rows), "--smiles", "SMILES", "--id", "flask", "--out", "lab"
    assert shell(*line, "--outcomes", "yield=max,purity>=0.9")[0] == 0
    code, out, err = shell("ask lab -n 3 --out batch.xlsx")
    assert code == 0, err
    batch = read_cells("batch.xlsx")
    assert list(batch)[:4] == ["id", "SMILES", "yield", "purity"]
    rows = [["flask", "yield", "purity", "remarks"], *([i, 10.*k, None if k else .95, ""]
                                                       for k, i in enumerate(batch["id"]))]
    code, out, err = shell("tell lab", workbook("results.xlsx", rows))
    assert code == 0 and "4 recorded" in out, (out, err)
    with Campaign.open("lab") as c:
        assert c.observations["outcome"].value_counts().to_dict() == {"yield": 3, "purity": 1}
        c.tell("results.xlsx")
        assert "on the front" in c._repr_html_()
        assert c.ask(1).ids and len(c.plot()) == 2
        assert len(read_cells(c.export("tables", format="xlsx")[1])) == 8
        for bad, says in (([["flask", "value"], ["f1", 2]], "expected a column for an outcome"),
                          ([["nr", "yield"], ["f1", 2]], "has no column 'id'"),
                          ([["flask", "yield"], ["f1", "high"]], "row 1, column 'yield'")):
            with pytest.raises(ValueError, match=says): c.tell(workbook("bad.xlsx", bad))
        assert len(c.observations) == 8
