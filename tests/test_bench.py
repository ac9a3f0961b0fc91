"The benchmark: reports old and new, peers that are not there, work in a process of its own."
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnn_bandits.project import bench

ROOT = Path(__file__).parent.parent
OLD = dict(machine=dict(cpu="some", cores=2, threads=2, system="Linux", versions=dict(torch="2")),
           rows=[dict(row="work", repeats=3, difference=0., absent={"peer": "module"}, results=[
               dict(who="gnn_bandits", median=2., quartiles=[1., 3.], peak=None, ratio=1.)])])


def test_an_older_report_can_be_read():
    table = bench.as_table(OLD)
    assert "| work | gnn_bandits | 2 s | 1 s to 3 s | 1 |  |  |" in table
    assert "| | peer | not installed |" in table
    assert bench.growth_table(OLD).count("\n") == 1
    assert bench.machine_line(OLD) == "some, 2 cores, 2 threads; torch 2."


def test_the_committed_report_can_be_read():
    report = json.loads((ROOT/"nbs"/"results"/"bench.json").read_text())
    lines = bench.as_table(report).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 2 + sum(len(r["results"]) + len(r["absent"]) for r in report["rows"])
    assert len(bench.growth_table(report).splitlines()) == 2 + len(report.get("growth", []))
    assert report["machine"]["cpu"] in bench.machine_line(report)


def test_names_are_unique_and_peers_are_named():
    rows, axes = bench.all_rows(), bench.all_axes()
    assert len({x.name for x in (*rows, *axes)}) == len(rows) + len(axes)
    needed = {m for r in rows for m in r.needs.values()}
    assert needed == {"neural_tangents", "grakel", "botorch", "sklearn"}
    for r in rows:
        assert next(iter(r.contestants)) == "gnn_bandits"
        assert set(r.needs) <= set(r.contestants)
        assert not r.once or len(r.contestants) == 1


def test_every_axis_spans_what_it_should():
    spans = {}
    for a in bench.all_axes():
        assert len(a.sizes) >= 4 and list(a.sizes) == sorted(set(a.sizes))
        sizes = a.sizes + spans.get(a.grows, ())
        spans[a.grows] = min(sizes), max(sizes)
    assert spans.pop(r"$\vert\mathcal{G}\vert$") == (100, 10**6)
    assert spans == {"$N$": (5, 400), "$d$": (4, 200), "$m$": (256, 8192), "$T$": (250, 2000)}


@pytest.mark.parametrize("name", [a.name for a in bench.all_axes() if "streamed" not in a.name])
def test_axes_run(name):
    axis = {a.name: a for a in bench.all_axes()}[name]
    size = {"$N$": 5, "$d$": 4, "$m$": 8, "$T$": 3}.get(axis.grows, 12)
    data = axis.setup(size)
    first, second = (np.asarray(axis.work(data)) for _ in range(2))
    np.testing.assert_array_equal(first, second)         # nothing is left over from the first time


def test_growth_table_has_a_line_for_each_axis():
    points = [dict(size=k, seconds=float(k), peak=0) for k in (1, 2, 4, 8)]
    axes = [dict(name=a.name, grows=a.grows, expected=1., points=points) for a in bench.all_axes()]
    lines = bench.growth_table(dict(growth=axes)).splitlines()
    assert len(lines) == 2 + len(axes) and {line.count("|") for line in lines} == {8}
    assert all("| 1.00 ± 0.00 | 1.00 | 1 |" in line for line in lines[2:])


def test_exponent_of_a_power_law():
    sizes = np.array([3., 10., 50., 200.])
    assert bench.exponent(sizes, 5*sizes**1.5) == pytest.approx((1.5, 0), abs=1e-12)


def test_results_that_differ_are_refused_unless_time_only():
    row = lambda tol: bench.Row("work", lambda: 1., {"gnn_bandits": lambda x: lambda: x,
                                                     "peer": lambda x: lambda: x + 1}, tol, {})
    with pytest.raises(ValueError, match="differ by 1"): bench.run_row(row(0.5), 1, memory=False)
    report = bench.run_row(row(math.inf), 1, memory=False, busy=1)
    assert report["difference"] is None and report["busy"]["ratio"] > 0
    json.dumps(report, allow_nan=False)


def test_own_process_returns_and_reports_mistakes():
    seconds, peak = bench.in_own_process("weigh_row", "aggregation, 1000 graphs, N=20, d=10",
                                         "gnn_bandits")
    assert seconds > 0 and (peak is None or peak >= 0)
    with pytest.raises(ValueError, match="nobody.*failed in its own process"):
        bench.in_own_process("weigh_row", "aggregation, 1000 graphs, N=20, d=10", "nobody")


def test_weisfeiler_lehman_is_a_kernel():
    pytest.importorskip("grakel")
    row = bench.wl_row()
    data = bench.er_arrays(6)
    K = np.asarray(row.contestants["GraKel, Weisfeiler-Lehman"](data)())
    np.testing.assert_allclose(K, K.T)
    np.testing.assert_allclose(K.diagonal(), 1)
    assert row.contestants["gnn_bandits"](data)().shape == K.shape


def test_growth_can_be_left_out(tmp_path):
    command = [sys.executable, "-m", "gnn_bandits", "bench", "--rows", "growth", "--no-growth"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert run.returncode == 2 and "no benchmark row contains 'growth'" in run.stderr
