from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.report import ReportData, gather, render_html
from analysis.report_drawing import drawing
from contract import DEFAULT_STRATEGIES, LatencyRecord, Strategy
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

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE_RECORDS, EXAMPLE_TABLES = ROOT / "profiles/reference", ROOT / "docs/example-report/tables"

ORDER = (
    "criterion met",
    "Graph takes 61",
    "Median latency, ms",
    "Launches per request",
    "Before and after",
    "Same output as eager?",
    "From eager to graph to the floor",
    "The graph, predicted from the eager trace",
    "Launches and kernels of one request",
    "Kernels by name",
    "Does the graph do eager's work?",
    "What stands in the way of a capture",
    "One request on a time axis",
    "Every request",
    "Is the output the same?",
    "What a graph costs",
    "The traces",
    "How it was measured",
    "Definitions and limits",
)


def read(root: Path, *records: LatencyRecord, tables: bool = True) -> ReportData:
    for record in records:
        write_record(root, record)
        if tables:
            write_tables(root, record["case"]["name"])
    return gather(root / "latency", root / "tables", None, root)


def page_of(root: Path, *records: LatencyRecord, tables: bool = True) -> Page:
    return Page(render_html(read(root, *records, tables=tables)))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of one case, for tests that look at it."""
    return render_html(read(tmp_path_factory.mktemp("one"), latency_record()))


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return read(tmp_path_factory.mktemp("pair"), latency_record("a"), latency_record("b"))


@pytest.fixture(scope="module")
def pair_html(pair: ReportData) -> str:
    """The page of two cases that are alike."""
    return render_html(pair)


def test_one_case_starts_with_its_verdict_and_has_every_section(page: Page) -> None:
    report = page.text[page.text.index("criterion met") :]
    places = [report.index(words) for words in ORDER]
    assert places == sorted(places)
    assert page.open == []
    assert "All cases" not in page.text


@pytest.mark.usefixtures("without_figures")
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


def test_latency_before_and_after_with_intervals_and_words(page: Page) -> None:
    header, eager, graph, padded = page.table("Latency of one forward pass")
    assert [title for title in header if title][:6] == [
        "strategy",
        "median ms",
        "mean ms",
        "p95 ms",
        "min ms",
        "max ms",
    ]
    assert eager[-4] == "baseline"
    assert re.fullmatch(r"61\.\d \[6\d\.\d, 6\d\.\d\]", graph[-5])
    assert graph[-4].endswith("% less time")
    assert padded[-4].endswith("% slower")
    assert header[-2:] == ["whole request, reduction % [95 % interval]", "GPU busy as traced, ms"]
    assert re.fullmatch(r"60\.\d \[\d\d\.\d, 6\d\.\d\]", graph[-2])
    assert eager[-2:] == ["–", "1.500"]


def test_the_page_holds_every_strategy_its_cost_and_the_floor(tmp_path: Path) -> None:
    page = page_of(tmp_path, peers_record())
    usual, peers = page.table("Latency of one forward pass"), page.table("Latency of the other ways")
    assert [row[0] for row in usual[1:]] == list(DEFAULT_STRATEGIES)
    assert [row[0] for row in peers[1:]] == ["eager", *list(Strategy)[3:]]
    captions = list(page.tables)
    places = [
        next(i for i, one in enumerate(captions) if one.startswith(words))
        for words in ("Cost of compiling and capturing", "Latency of the other ways", "Traces.")
    ]
    assert places == sorted(places)
    header, *rows = page.table("Cost of compiling and capturing")
    cost = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert cost["compiled"]["compile s"] == "31.0"
    assert cost["compiled"]["capture s"] == cost["graph_last"]["compile s"] == "–"
    assert cost["graph_padded"]["earned back after requests"] == "never"
    assert "eager_last" not in cost
    assert "their eager counterpart is eager_last" in page.text
    assert "Floor: reading 400 MiB" in page.text


@pytest.mark.usefixtures("without_figures")
def test_p99_appears_only_with_a_thousand_samples(page: Page, tmp_path: Path) -> None:
    assert "p99 ms" not in page.text
    record = latency_record()
    for fields in record["strategies"].values():
        fields["event_ms"] = fields["event_ms"] * 25
        fields["wall_ms"] = fields["wall_ms"] * 25
    record["aa_event_ms"] = []
    many = page_of(tmp_path, record)
    assert "p99 ms" in many.table("Latency of one forward pass")[0]


@pytest.mark.usefixtures("without_figures")
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


@pytest.mark.usefixtures("without_figures")
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


def test_busy_time_and_replay_span_are_apart_and_named(page: Page) -> None:
    header, eager, graph, _ = page.table("One request.")
    assert header[-2:] == ["GPU busy, node mode µs", "replay span, graph mode µs"]
    assert eager[-2:] == ["1\u2009500.2", "–"]
    assert graph[-2:] == ["1\u2009503.5", "1\u2009670.5"]


def test_launches_and_kernels_come_side_by_side(page: Page) -> None:
    counts = page.table("One request.")
    assert [row[:4] for row in counts[1:]] == [
        ["eager", "237", "0", "232"],
        ["graph", "2", "1", "306"],
        ["graph_padded", "2", "1", "306"],
    ]
    launches = page.table("Launches by host API")
    assert launches[1][:5] == ["cudaLaunchKernel", "eager", "kernel", "", "183"]
    comparison = page.table("Kernels per request, eager against graph.")
    assert len(comparison) == 1 + 20
    assert comparison[1] == ["kernel_0", "", "10", "12", "100.0", "90.0", "−10.0"]


def test_each_table_names_the_file_it_came_from(page: Page) -> None:
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
    assert page.table("Latency of one forward pass")[-1][-4] == "failed"
    assert "graph_padded failed: out of GPU memory; use a smaller model" in page.text


def test_without_a_single_success_every_reason_is_told(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"] = {name: failed(f"{name}: lost the GPU; restart") for name in record["strategies"]}
    page = page_of(tmp_path, record)
    for name in record["strategies"]:
        assert f"{name} failed: lost the GPU; restart" in page.text
    assert {row[2] for row in page.table("Latency of one forward pass")[1:]} == {"–"}
    assert "Every request" in page.text


@pytest.mark.usefixtures("without_figures")
def test_doubts_stand_above_the_numbers(tmp_path: Path) -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 1.8})
    page = page_of(tmp_path, record)
    doubt = page.text.index("Traced but not measured: graph_padded.")
    assert doubt < page.text.index("Median latency, ms")


@pytest.mark.usefixtures("without_figures")
def test_a_broken_case_is_shown_as_broken(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record(), "cut").write_text("{", encoding="utf-8")
    page = page_of(tmp_path, latency_record())
    assert page.table("All cases")[-1][:2] == ["cut", "broken"]
    assert "latency/cut/latency.json: not valid JSON" in page.text


@pytest.fixture(scope="module")
def hostile_html(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("hostile")
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


def test_names_with_markup_stay_text(hostile_html: str) -> None:
    page = Page(hostile_html)
    assert page.open == []
    assert len(page.attributes("script")) == hostile_html.count("<script") == 2
    assert page.text.count(HOSTILE) >= 6
    assert [row[0] for row in page.table("Kernels per request, eager against graph.")][1] == HOSTILE


@pytest.mark.parametrize("which", ["html", "hostile_html"])
def test_the_page_loads_nothing(which: str, request: pytest.FixtureRequest) -> None:
    html: str = request.getfixturevalue(which)
    page = Page(html)
    for tag in ("link", "img", "iframe", "object", "embed", "base", "form"):
        assert page.attributes(tag) == []
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    for _, attributes in page.elements:
        assert not {"src", "onclick", "onerror", "onload"} & set(attributes)


def test_the_security_policy_allows_its_own_two_scripts(html: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    policy = next(
        a["content"]
        for a in Page(html).attributes("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}';" in policy


def test_the_page_serves_screen_readers(pair_html: str) -> None:
    page = Page(pair_html)
    headers = page.attributes("th")
    assert headers
    assert {header.get("scope") for header in headers} <= {"col", "row"}
    assert all(header.get("scope") for header in headers)
    assert page.attributes("html")[0]["lang"] == "en"
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) - 2 == len(page.attributes("figure")) == 6
    assert all(picture.get("aria-label") or picture.get("aria-labelledby") for picture in pictures)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_identifiers_are_unique_and_references_resolve(pair_html: str) -> None:
    page = Page(pair_html)
    ids = Counter(attributes["id"] for _, attributes in page.elements if attributes.get("id"))
    assert [name for name, times in ids.items() if times > 1] == []
    assert set(re.findall(r"url\(#([^)]+)\)", pair_html)) <= set(ids)
    assert {(a.get("xlink:href") or "#")[1:] for a in page.attributes("use")} <= set(ids)


def test_pictures_follow_the_theme(html: str) -> None:
    figures = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--eager)" in figures
    assert re.findall(r"#[0-9a-fA-F]{6}\b", figures) == []


def test_a_colour_or_an_id_in_a_name_is_left_alone(tmp_path: Path) -> None:
    record = latency_record()
    name = 'id="#1c2127"'
    record["strategies"][name] = record["strategies"].pop("graph_padded")
    html = render_html(read(tmp_path, record, tables=False))
    assert name in Page(html).text


def test_the_page_is_small(pair_html: str) -> None:
    assert len(pair_html.encode()) < 2 * 600_000


def test_the_contents_lead_to_every_section_in_its_order(pair_html: str) -> None:
    page = Page(pair_html)
    links = [(one["href"] or "")[1:] for one in page.attributes("a") if (one["href"] or "").startswith("#")]
    contents = links[1 : links.index("definitions") + 1]
    assert links[0] == "main"
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id") in contents]
    assert ids == contents
    assert len(contents) == 1 + 2 * (1 + 13) + 1


def test_commands_and_environment_are_told(page: Page) -> None:
    for command in (
        "python scripts/cuda_graph_benchmark.py --model gpt2 --dtype float32",
        "# trace of graph, graph mode\nnsys profile --cuda-graph-trace=graph graph",
    ):
        assert command in page.text
    environment = dict(row[:2] for row in page.table("What was measured, and on what.")[1:])
    assert environment["environment.driver"] == "580.159"


@pytest.mark.usefixtures("without_figures")
def test_each_case_draws_its_timeline_while_there_is_room(
    pair: ReportData, pair_html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timelines = [one for one in Page(pair_html).elements if one[1].get("class") == "timeline"]
    assert [one[1]["id"] for one in timelines] == ["c1-timeline", "c2-timeline"]
    size = max(len(one[1]["data-timeline"] or "") for one in timelines)
    monkeypatch.setattr("analysis.report_html.TIMELINES_BYTES", 3 * size)
    page = Page(render_html(pair))
    assert [one.get("id") for _, one in page.elements if one.get("class") == "timeline"] == ["c1-timeline"]
    assert "scripts/build_report.py --cases b-float32-p50-m1024 makes a report of this case" in page.text
    assert "eager: the longest 15 operations of 20." in page.tables


def test_long_tables_are_whole_and_marked_for_the_script(page: Page) -> None:
    assert [one["data-top"] for one in page.attributes("table") if "data-top" in one] == ["15"] * 6
    assert len(page.table("Kernels of eager")) == 1 + 20


def test_fifty_cases_of_real_size_are_one_page_below_two_megabytes() -> None:
    data = gather(EXAMPLE_RECORDS, EXAMPLE_TABLES, None, ROOT / "docs")
    copies = [dataclasses.replace(data.cases[one % 3], name=f"model-{one:02}") for one in range(50)]
    html = render_html(dataclasses.replace(data, cases=tuple(copies)))
    assert len(html.encode()) < 2_000_000
    page = Page(html)
    assert len(page.table("All cases.")) == 1 + 50
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    assert {f"case-{number}-measured" for number in range(1, 51)} <= set(ids)
    in_full, in_brief = html.index("<article"), html.index("In brief: figures, timeline and most tables")
    assert html.count("<article", in_full, in_brief) >= 2
    assert html.count("In brief: ", in_brief) == html.count("<article", in_brief) + 1
    assert html.rindex('class="timeline"') < in_brief
    links = [html.index(f'href="#case-{one}">') for one in (1, 10, 50)]
    assert links == sorted(links)


@pytest.mark.usefixtures("without_drawing")
def test_a_case_without_room_is_shown_in_brief_with_links_to_the_rest(
    pair: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.report_html.PAGE_BYTES", 0)
    page = Page(render_html(pair))
    assert (
        "python scripts/build_report.py --cases b-float32-p50-m1024 makes a report of this case" in page.text
    )
    assert not page.attributes("figure")
    assert page.text.count("requests each, no profiler attached.") == 2
    assert not [caption for caption in page.tables if caption.startswith("Kernels of ")]
    linked = {one["href"] for one in page.attributes("a")}
    for name in ("a-float32-p50-m1024", "b-float32-p50-m1024"):
        with drawing([case for case in pair.cases if case.name == name]) as drawn:
            figures = {file for file in drawn() if file.endswith(".svg")}
        assert len(figures) == 5
        assert figures <= linked
        for file in ("kernels.csv", "ledger.csv", "kernel_match.csv", "timeline.json"):
            assert f"tables/{name}/{file}" in linked
        assert f"latency/{name}/latency.json" in linked


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(("profiled_ms", "warned"), [(5.6, False), (6.0, True)])
def test_a_profiler_that_slowed_eager_much_is_a_warning(
    tmp_path: Path, profiled_ms: float, warned: bool
) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    entries = [one | {"profiled_event_ms_median": profiled_ms} for one in ENTRIES]
    write_tables(tmp_path, record["case"]["name"], entries=entries)
    html = render_html(gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path))
    assert (
        bool(re.search(r"Warning\.</strong> Eager took [0-9]+ % longer under the profiler", html)) == warned
    )
