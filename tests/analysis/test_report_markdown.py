from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from analysis.report import ReportData, gather, render_html, render_markdown
from analysis.report_markdown import escape
from contract import LatencyRecord, Strategy
from tests.analysis.report_samples import (
    HOSTILE,
    failed,
    latency_record,
    peers_record,
    write_preflight,
    write_record,
    write_tables,
)


def markdown_of(
    root: Path, *records: LatencyRecord, tables: bool = True, preflight: Path | None = None
) -> str:
    for record in records:
        write_record(root, record)
        if tables:
            write_tables(root, record["case"]["name"])
    return render_markdown(gather(root / "latency", root / "tables", preflight, root))


def gather_one(root: Path, record: LatencyRecord) -> ReportData:
    write_record(root, record)
    write_tables(root, record["case"]["name"])
    return gather(root / "latency", root / "tables", None, root)


def html_of(markdown: str) -> str:
    """As GitHub reads it: tables, raw HTML let through, bare addresses left alone."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))


def test_every_table_is_a_table(tmp_path: Path) -> None:
    markdown = markdown_of(tmp_path, latency_record("a"), latency_record("b"))
    tables = re.findall(r"(?:^\|.*\|$\n?)+", markdown, re.MULTILINE)
    assert len(tables) == html_of(markdown).count("<table>") == 2 + 2 * 17
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_it_holds_every_strategy(tmp_path: Path) -> None:
    markdown = markdown_of(tmp_path, peers_record(), tables=False)
    for name in Strategy:
        assert f"| {escape(name)} |" in markdown
    assert "Floor: reading 400 MiB" in markdown


def test_it_says_what_the_page_says(tmp_path: Path) -> None:
    markdown = markdown_of(tmp_path, latency_record())
    for words in (
        "**criterion met**: Graph takes 61.",
        "| Launches per request | 237 | 2 |",
        "| Kernels per request | 232 | 306 |",
        "graph\\_padded against eager: 10",
        "Random weights ran",
        "Eager against eager",
        "tables/gpt2-float32-p50-m1024/comparison.csv",
        "figures/gpt2-float32-p50-m1024.where_time_went.png",
        "cuda_graph_benchmark.py --model gpt2 --dtype float32",
    ):
        assert words in markdown


def test_a_simulation_promises_nothing(tmp_path: Path) -> None:
    markdown = markdown_of(tmp_path, latency_record(simulated=True), tables=False)
    assert "no speed-up is to be expected" in markdown
    for promise in ("criterion", "less time", "slower", "30 %"):
        assert promise not in markdown
    assert "Not in this report" in markdown
    assert "To get it: run" in markdown


def test_failures_breakage_and_findings_are_told(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph_padded"] = failed("graph_padded: out of GPU memory")
    write_record(tmp_path, record, "cut").write_text("{", encoding="utf-8")
    preflight = write_preflight(tmp_path, findings=["nvtx 0.2.14: too new"])
    markdown = markdown_of(tmp_path, record, preflight=preflight)
    assert "graph\\_padded failed: out of GPU memory" in markdown
    assert "**cut** is broken: latency/cut/latency.json: not valid JSON" in markdown
    assert "- nvtx 0.2.14: too new" in markdown


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    record = latency_record(HOSTILE)
    record["case"]["name"] = "ho stile"
    record["command"] = ["x", HOSTILE, "```"]
    write_record(tmp_path, record, "ho stile")
    write_tables(tmp_path, "ho stile", kernels=[HOSTILE])
    markdown = render_markdown(gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path))
    html = html_of(markdown)
    assert "<script" not in html
    assert "<a " not in html
    assert "<em>" not in re.sub(r"<p><em>Latency is measured.*", "", html)
    shown = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert f"<td>{shown}</td>" in html
    assert 'src="figures/ho%20stile.latency_comparison.png"' in html


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("line\nbreak", "line break"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("@someone", "&#64;someone"),
        ("https://x", "https&#58;//x"),
    ],
)
def test_escaping(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_sections_come_in_the_order_of_the_page(tmp_path: Path) -> None:
    data = gather_one(tmp_path, peers_record())
    page = render_html(data)
    titles = re.findall(r"^### (.*)$", render_markdown(data), re.MULTILINE)
    assert titles == [unescape(one) for one in re.findall(r"<h3 id=[^>]*>(.*?)</h3>", page)]
    assert titles[0] == "Before and after"
    assert titles[-4:] == ["What a graph costs", "Other ways to run it", "The traces", "How it was measured"]


def test_long_tables_are_folded_and_say_what_they_leave_out(tmp_path: Path) -> None:
    markdown = markdown_of(tmp_path, latency_record())
    (fold,) = re.findall(
        r"<summary>Kernels per request, eager against graph\..*?</details>", markdown, re.DOTALL
    )
    assert "The first 15 of 20.</summary>" in fold
    assert "kernel\\_14" in fold
    assert "kernel\\_15" not in fold


def test_three_cases_fit_into_a_comment(tmp_path: Path) -> None:
    """65,536 characters are what GitHub takes."""
    assert len(markdown_of(tmp_path, *[latency_record(name) for name in "abc"])) < 65_536
