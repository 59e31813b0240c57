from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.report import ReportData, gather, render_html
from contract import LatencyRecord, Strategy
from tests.analysis.report_page import Page
from tests.analysis.report_samples import (
    ENTRIES,
    HOSTILE,
    failed,
    latency_record,
    peers_record,
    request_rows,
    trace_entry,
    write_preflight,
    write_record,
    write_tables,
)


def read(root: Path, *records: LatencyRecord, tables: bool = True) -> ReportData:
    for record in records:
        write_record(root, record)
        if tables:
            write_tables(root, record["case"]["name"])
    return gather(root / "latency", root / "tables", None, root)


def page_of(root: Path, *records: LatencyRecord, tables: bool = True) -> Page:
    return Page(render_html(read(root, *records, tables=tables)))


def test_one_case_starts_with_its_verdict_and_has_every_section(tmp_path: Path) -> None:
    page = page_of(tmp_path, latency_record())
    order = [
        "criterion met",
        "Graph takes 61",
        "Median latency, ms",
        "Launches per request",
        "Before and after",
        "Same output as eager?",
        "Launches and kernels of one request",
        "Kernels by name",
        "Is the output the same?",
        "What a graph costs",
        "The traces",
        "How it was measured",
        "Definitions and limits",
    ]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert page.open == []
    assert "All cases" not in page.text


def test_several_cases_start_with_an_overview(tmp_path: Path) -> None:
    page = page_of(
        tmp_path, latency_record("a"), latency_record("b", medians_ms={"eager": 4.0, "graph": 5.0})
    )
    rows = page.table("All cases")
    assert [row[0] for row in rows[1:]] == ["a-float32-p50-m1024", "b-float32-p50-m1024"]
    assert [row[1] for row in rows[1:]] == ["criterion met", "criterion missed"]
    anchors = [
        attributes["href"]
        for attributes in page.attributes("a")
        if (attributes["href"] or "").startswith("#")
    ]
    ids = {attributes.get("id") for _, attributes in page.elements}
    assert {anchor[1:] for anchor in anchors if anchor} <= ids


def test_latency_before_and_after_with_intervals_and_words(tmp_path: Path) -> None:
    header, eager, graph, padded = page_of(tmp_path, latency_record()).table("Latency of one forward pass")
    assert [title for title in header if title][:6] == [
        "strategy",
        "median ms",
        "mean ms",
        "p95 ms",
        "min ms",
        "max ms",
    ]
    assert eager[-3] == "baseline"
    assert re.fullmatch(r"61\.\d \[6\d\.\d, 6\d\.\d\]", graph[-4])
    assert graph[-3].endswith("% less time")
    assert padded[-3].endswith("% slower")
    assert header[-1] == "whole request, reduction % [95 % interval]"
    assert re.fullmatch(r"60\.\d \[\d\d\.\d, 6\d\.\d\]", graph[-1])
    assert eager[-1] == "–"


def test_the_page_holds_every_strategy_its_cost_and_the_floor(tmp_path: Path) -> None:
    page = page_of(tmp_path, peers_record())
    assert [row[0] for row in page.table("Latency of one forward pass")[1:]] == list(Strategy)
    header, *rows = page.table("Cost of compiling and capturing")
    cost = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert cost["compiled"]["compile s"] == "31.0"
    assert cost["compiled"]["capture s"] == cost["graph_last"]["compile s"] == "–"
    assert cost["graph_padded"]["earned back after requests"] == "never"
    assert "eager_last" not in cost
    assert "41.5 s to compile and 0.50 s and 46 MiB to capture, earned back after" in page.text
    assert "their eager counterpart is eager_last" in page.text
    assert "Floor: reading 400 MiB" in page.text


def test_p99_appears_only_with_a_thousand_samples(tmp_path: Path) -> None:
    few = page_of(tmp_path / "few", latency_record())
    assert "p99 ms" not in few.text
    record = latency_record()
    for fields in record["strategies"].values():
        fields["event_ms"] = fields["event_ms"] * 25
        fields["wall_ms"] = fields["wall_ms"] * 25
    record["aa_event_ms"] = []
    many = page_of(tmp_path / "many", record)
    assert "p99 ms" in many.table("Latency of one forward pass")[0]


def test_times_under_the_profiler_stay_in_their_table(tmp_path: Path) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    entries = [entry | {"profiled_event_ms_median": 777.125} for entry in ENTRIES]
    write_tables(tmp_path, record["case"]["name"], entries=entries)
    page = Page(render_html(gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path)))
    assert page.text.count("777.125") == len(ENTRIES)
    rows = page.table("Traces.")
    assert [row[6] for row in rows[1:]] == ["777.125"] * len(ENTRIES)
    assert rows[0][6] == "median under the profiler ms"
    assert rows[0][8] == "against latency without profiler, %"
    assert "profiler and host together" in page.text
    assert "profiler cost" not in page.text
    node_mode_launch_us = "602.5"
    assert node_mode_launch_us not in page.text


def test_the_capturing_nsys_and_the_export_are_told_apart(tmp_path: Path) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    write_tables(tmp_path, record["case"]["name"], entries=[ENTRIES[0] | {"export_version": "2025.3.2.0"}])
    page = Page(render_html(gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path)))
    header, row = page.table("Traces.")
    assert (header[4], row[4]) == ("tracer", "nsys 2025.3.1.90")
    assert (header[5], row[5]) == ("export schema", "3.20.3 (nsys 2025.3.2.0)")


def test_a_simulation_compares_no_profiled_time(tmp_path: Path) -> None:
    record = latency_record(simulated=True)
    write_record(tmp_path, record)
    entry = trace_entry("eager", "node", "no gpu", "x") | {"profiled_event_ms_median": 9.5}
    write_tables(tmp_path, record["case"]["name"], entries=[entry], requests=request_rows(simulated=True))
    page = Page(render_html(gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path)))
    assert page.table("Traces.")[1][8] == "–"
    assert "profiler and host together" not in page.text


def test_busy_time_and_replay_span_are_apart_and_named(tmp_path: Path) -> None:
    header, eager, graph, _ = page_of(tmp_path, latency_record()).table("One request.")
    assert header[-2:] == ["GPU busy, node mode µs", "replay span, graph mode µs"]
    assert eager[-2:] == ["1\u2009500.2", "–"]
    assert graph[-2:] == ["1\u2009503.5", "1\u2009670.5"]


def test_launches_and_kernels_come_side_by_side(tmp_path: Path) -> None:
    page = page_of(tmp_path, latency_record())
    counts = page.table("One request.")
    assert [row[:4] for row in counts[1:]] == [
        ["eager", "237", "0", "232"],
        ["graph", "2", "1", "306"],
        ["graph_padded", "2", "1", "306"],
    ]
    launches = page.table("Launches by host API")
    assert launches[1][:5] == ["cudaLaunchKernel", "eager", "kernel", "", "183"]
    comparison = page.table("Kernels per request, eager against graph.")
    assert len(comparison) == 1 + 15
    assert len(page.table("The rest. Kernels per request, eager against graph.")) == 1 + 5
    assert comparison[1] == ["kernel_0", "", "10", "12", "100.0", "90.0", "−10.0"]


def test_each_table_names_the_file_it_came_from(tmp_path: Path) -> None:
    page = page_of(tmp_path, latency_record())
    name = "gpt2-float32-p50-m1024"
    linked = {attributes["href"] for attributes in page.attributes("a")}
    for file in ("requests.csv", "launches.csv", "kernels.csv", "comparison.csv", "traces.json"):
        assert f"tables/{name}/{file}" in linked
    assert f"latency/{name}/latency.json" in linked


def test_a_simulation_promises_and_judges_nothing(tmp_path: Path) -> None:
    page = page_of(tmp_path, latency_record(simulated=True), tables=False)
    assert "no speed-up is to be expected" in page.text
    before_definitions = page.text[: page.text.index("Definitions and limits")]
    for promise in ("criterion", "less time", "slower", "30 %", "reduction"):
        assert promise not in before_definitions
    assert "Not in this report" in page.text


def test_missing_traces_are_dashes_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    reason = "nsys: not found; run `bash envs/install-nsys.sh`"
    entries = [trace_entry(one["strategy"], one["trace_mode"], "missing", reason) for one in ENTRIES]
    write_tables(tmp_path, record["case"]["name"], entries=entries, requests=[])
    preflight = write_preflight(tmp_path, can_trace=False, findings=[reason])
    page = Page(render_html(gather(tmp_path / "latency", tmp_path / "tables", preflight, tmp_path)))
    assert "Not in this report" in page.text
    assert reason in page.text
    assert "What the preflight found" in page.text
    assert "Kernels by name" not in page.text
    assert "where one request" not in page.text.lower()
    assert {row[3] for row in page.table("Traces.")[1:]} == {"–"}


def test_a_failed_strategy_is_shown_with_its_reason(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph_padded"] = failed("graph_padded: out of GPU memory; use a smaller model")
    page = page_of(tmp_path, record)
    assert page.table("Latency of one forward pass")[-1][-3] == "failed"
    assert "graph_padded failed: out of GPU memory; use a smaller model" in page.text


def test_a_broken_case_is_shown_as_broken(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record(), "cut").write_text("{", encoding="utf-8")
    page = page_of(tmp_path, latency_record())
    assert page.table("All cases")[-1][:2] == ["cut", "broken"]
    assert "latency/cut/latency.json: not valid JSON" in page.text


def hostile_page(root: Path) -> str:
    record = latency_record(HOSTILE)
    record["case"]["name"] = "hostile"
    record["command"] = ["x", HOSTILE]
    record["model"]["reason"] = HOSTILE
    record["environment"]["gpu"] = HOSTILE
    record["strategies"][HOSTILE] = failed(HOSTILE)
    write_record(root, record, "hostile")
    write_tables(root, "hostile", kernels=[HOSTILE, "plain"])
    preflight = write_preflight(root, can_trace=False, findings=[HOSTILE])
    return render_html(gather(root / "latency", root / "tables", preflight, root))


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    html = hostile_page(tmp_path)
    page = Page(html)
    assert page.open == []
    assert len(page.attributes("script")) == 1
    assert html.count("<script") == 1
    assert page.text.count(HOSTILE) >= 6
    assert [row[0] for row in page.table("Kernels per request, eager against graph.")][1] == HOSTILE


@pytest.mark.parametrize("hostile", [False, True])
def test_the_page_loads_nothing(tmp_path: Path, hostile: bool) -> None:
    html = hostile_page(tmp_path) if hostile else render_html(read(tmp_path, latency_record()))
    page = Page(html)
    for tag in ("link", "img", "iframe", "object", "embed", "base", "form"):
        assert page.attributes(tag) == []
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    for _, attributes in page.elements:
        assert not {"src", "onclick", "onerror", "onload"} & set(attributes)


def test_the_security_policy_allows_the_one_script(tmp_path: Path) -> None:
    html = render_html(read(tmp_path, latency_record()))
    found = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    policy = next(
        a["content"]
        for a in Page(html).attributes("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_page_serves_screen_readers(tmp_path: Path) -> None:
    page = page_of(tmp_path, latency_record("a"), latency_record("b"))
    headers = page.attributes("th")
    assert headers
    assert {header.get("scope") for header in headers} <= {"col", "row"}
    assert all(header.get("scope") for header in headers)
    assert page.attributes("html")[0]["lang"] == "en"
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == len(page.attributes("figure")) == 6
    assert all(picture["aria-label"] for picture in pictures)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_identifiers_are_unique_and_references_resolve(tmp_path: Path) -> None:
    html = render_html(read(tmp_path, latency_record("a"), latency_record("b")))
    page = Page(html)
    ids = Counter(attributes["id"] for _, attributes in page.elements if attributes.get("id"))
    assert [name for name, times in ids.items() if times > 1] == []
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)
    assert {(a.get("xlink:href") or "#")[1:] for a in page.attributes("use")} <= set(ids)


def test_pictures_follow_the_theme(tmp_path: Path) -> None:
    html = render_html(read(tmp_path, latency_record()))
    figures = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--eager)" in figures
    assert re.findall(r"#[0-9a-fA-F]{6}\b", figures) == []


def test_a_colour_or_an_id_in_a_name_is_left_alone(tmp_path: Path) -> None:
    record = latency_record()
    name = 'id="#1c2127"'
    record["strategies"][name] = record["strategies"].pop("graph_padded")
    html = render_html(read(tmp_path, record, tables=False))
    assert name in Page(html).text


def test_the_page_is_small(tmp_path: Path) -> None:
    html = render_html(read(tmp_path, *[latency_record(name) for name in "abc"]))
    assert len(html.encode()) < 2_000_000
