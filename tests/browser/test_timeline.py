"""The timeline in a real browser: drawn from disk, zoomed, picked from, read aloud, printed."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

import tests.browser.test_report_page as report_page
from analysis.attribute import RangeSelector
from analysis.timeline import Operation, Timeline
from analysis.timeline_page import timeline_panel
from analysis.timeline_trace import timeline_of
from analysis.trace import read_trace
from tests.browser.test_report_page import CONTRAST, complaints, show

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "profiles" / "reference"
TEMPLATES = ROOT / "analysis" / "templates"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
SCRIPTS = ("timeline_model.js", "timeline_draw.js", "timeline.js")
AXE_PACKAGES = ("axe_playwright_python", "axe_core_python")

browser, fresh_window = report_page.browser, report_page.fresh_window


def axe() -> str:
    """Source of axe-core, by LAUNCHGAP_AXE or from the package that brings it."""
    named = os.environ.get("LAUNCHGAP_AXE")
    specs = [importlib.util.find_spec(name) for name in AXE_PACKAGES]
    paths = [Path(spec.origin).with_name("axe.min.js") for spec in specs if spec and spec.origin]
    found = [path for path in ([Path(named)] if named else paths) if path.is_file()]
    assert found, "axe-core: not found; pip install axe-core-python, or set LAUNCHGAP_AXE to its axe.min.js"
    return found[0].read_text(encoding="utf-8")


def traced(case: str, strategy: str) -> Timeline:
    return timeline_of(read_trace(REFERENCE / case / f"{strategy}.node.sqlite.gz"), RangeSelector(), strategy)


def renamed(timeline: Timeline, name: str) -> Timeline:
    """The timeline with the kernel of most runs called otherwise."""
    names = [one.name for one in timeline.operations if one.kind == "kernel"]
    old = max(names, key=names.count)

    def rename(one: Operation) -> Operation:
        return dataclasses.replace(one, name=name) if one.name == old else one

    return dataclasses.replace(timeline, operations=tuple(map(rename, timeline.operations)))


@pytest.fixture(scope="module")
def gpt2() -> tuple[Timeline, Timeline]:
    return traced("gpt2-float32-p50-m1024", "eager"), traced("gpt2-float32-p50-m1024", "graph")


PAGE = """<!DOCTYPE html>
{% from "timeline.html.j2" import timeline %}
<html lang="en"><head><meta charset="utf-8"><title>timeline</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{{ digest }}'">
<style>{{ style }}</style></head>
<body><main class="page"><h1>One request</h1>{{ timeline(panel) }}</main>
<script>{{ script }}</script></body></html>
"""


def page(timelines: Sequence[Timeline]) -> str:
    """A page of nothing but a timeline, under the report's own content security policy."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["link"] = environment.filters["css_name"] = str
    style, script = (
        "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)
        for names in (("style.css", "timeline.css"), SCRIPTS)
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(PAGE).render(
        panel=timeline_panel(timelines, "c1-"), style=Markup(style), script=Markup(script), digest=digest
    )


def open_page(browser: WebDriver, root: Path, timelines: Sequence[Timeline]) -> WebElement:
    path = root / "timeline.html"
    path.write_text(page(timelines), encoding="utf-8")
    browser.get(path.as_uri())
    return browser.find_element(By.CLASS_NAME, "timeline")


def view(root: WebElement) -> tuple[int, int]:
    """First and last nanosecond that are shown, or will be once the view has come to rest."""
    first, last = (root.get_attribute("data-view") or "").split()
    return int(first), int(last)


def span(root: WebElement) -> int:
    first, last = view(root)
    return last - first


def press(root: WebElement, words: str) -> None:
    root.find_element(By.XPATH, f".//button[normalize-space()='{words}']").click()


def stage(root: WebElement) -> WebElement:
    return root.find_element(By.CLASS_NAME, "tl-stage")


def details(root: WebElement) -> str:
    return root.find_element(By.CLASS_NAME, "tl-details").text


def facts(root: WebElement) -> dict[str, str]:
    terms, words = (root.find_elements(By.CSS_SELECTOR, f".tl-details {tag}") for tag in ("dt", "dd"))
    return {term.text: word.text for term, word in zip(terms, words, strict=True)}


def rest(browser: WebDriver) -> None:
    """Wait until what is shown has been drawn: a zoom takes a dozen frames."""
    script = "let n = 16; const d = arguments[0]; const f = () => n-- ? requestAnimationFrame(f) : d(); f();"
    browser.execute_async_script(script)


def pixels(browser: WebDriver) -> dict[str, int]:
    """How many pixels of the canvas have each colour, as #rrggbb."""
    script = """
      const canvas = document.querySelector(".tl-canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const found = {};
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] < 255) continue;
        const name = "#" + [0, 1, 2].map((j) => data[i + j].toString(16).padStart(2, "0")).join("");
        found[name] = (found[name] || 0) + 1;
      }
      return found;
    """
    found: dict[str, int] = browser.execute_script(script)
    return found


EAGER, GRAPH, DARK_GRAPH = "#d9822b", "#17548f", "#6fb1ee"


def test_it_draws_from_disk_without_a_complaint_or_a_request(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(browser, tmp_path, gpt2)
    rest(browser)
    assert complaints(browser) == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert view(root) == (0, gpt2[0].range_ns)
    drawn = pixels(browser)
    assert min(drawn[EAGER], drawn[GRAPH]) > 100
    assert not root.find_element(By.CLASS_NAME, "tl-static").is_displayed()
    # Both on one scale: the graph's busy stretch is as much shorter as its range is.
    script = """
      const canvas = document.querySelector(".tl-canvas"), ctx = canvas.getContext("2d");
      const { data } = ctx.getImageData(0, 0, canvas.width, canvas.height);
      let last = 0;
      for (let i = 0; i < data.length; i += 4) {
        const isGraph = data[i] === 0x17 && data[i + 1] === 0x54 && data[i + 2] === 0x8f;
        if (isGraph) last = Math.max(last, (i / 4) % canvas.width);
      }
      return (last - 46) / (canvas.clientWidth - 56);
    """
    last = max(one.start_ns + one.duration_ns for one in gpt2[1].operations)
    assert browser.execute_script(script) == pytest.approx(last / gpt2[0].range_ns, abs=0.005)


def test_buttons_keys_and_the_wheel_change_the_scale(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(browser, tmp_path, gpt2)
    whole = gpt2[0].range_ns
    press(root, "+")
    assert span(root) == pytest.approx(whole / 2, abs=1)
    press(root, "−")
    assert view(root) == (0, whole)
    press(root, "graph")
    assert list(view(root)) == pytest.approx([0, gpt2[1].range_ns * 1.02], abs=1)
    press(root, "all")
    stage(root).send_keys("++")
    assert span(root) == pytest.approx(whole / 4, abs=1)
    before = view(root)
    stage(root).send_keys(Keys.ARROW_RIGHT)
    assert list(view(root)) == pytest.approx([edge + whole / 20 for edge in before], abs=2)
    stage(root).send_keys(Keys.HOME)
    assert view(root)[0] == 0
    stage(root).send_keys("-", Keys.END, "0")
    assert view(root) == (0, whole)
    for _ in range(20):
        stage(root).send_keys("+")
    assert span(root) == 500
    press(root, "all")
    rest(browser)
    wheel = {"type": "mouseWheel", "x": 700, "y": 300, "deltaX": 0, "deltaY": -40}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    assert view(root) == (0, whole)  # the page's own
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", wheel | {"modifiers": 2})
    assert span(root) < 0.8 * whole
    assert complaints(browser) == []


def test_dragging_moves_it_and_a_double_click_shows_one_bar(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(browser, tmp_path, gpt2)
    stage(root).send_keys("+++")
    rest(browser)
    first, last = view(root)
    ActionChains(browser).drag_and_drop_by_offset(stage(root), -200, 0).perform()
    width = stage(root).rect["width"] - 56
    assert view(root)[0] == pytest.approx(first + 200 / width * (last - first), rel=0.01)
    chart = root.find_element(By.CLASS_NAME, "tl-map")
    ActionChains(browser).move_to_element_with_offset(chart, -400, 0).click().perform()
    assert view(root)[0] < first
    press(root, "graph")
    rest(browser)
    synchronize = gpt2[1].ranges[-1]
    # The NVTX lane of the second request.
    ActionChains(browser).move_to_element_with_offset(stage(root), 200, 32).double_click().perform()
    assert facts(root)["lasts"] == f"{synchronize.duration_ns / 1000:,.3f} µs"


def test_keys_pick_an_operation_and_follow_it_to_its_call(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    eager = gpt2[0]
    root = open_page(browser, tmp_path, gpt2)
    assert details(root).startswith("Nothing is picked")
    stage(root).send_keys(Keys.ENTER, Keys.HOME, Keys.ARROW_RIGHT)
    second = eager.operations[1]
    call = eager.calls[second.call]
    assert facts(root)["from"].startswith(f"{second.start_ns / 1000:,.3f} µs")
    assert facts(root)["lasts"] == f"{second.duration_ns / 1000:,.3f} µs"
    assert facts(root)["launched by"].startswith(f"{call.name} from {call.start_ns / 1000:,.3f} µs")
    stage(root).send_keys(Keys.ENTER)
    assert details(root).startswith(f"eager: {call.name}")
    assert facts(root)["launched"] == second.name
    stage(root).send_keys(Keys.ENTER, Keys.ARROW_DOWN)
    assert details(root).split("\n")[0] in {"eager: launch-bound gap", "eager: device gap"}
    stage(root).send_keys(Keys.ESCAPE, *[Keys.ARROW_DOWN] * 2)
    expected = f"graph, host: {len(gpt2[1].calls)} to pick from. Enter picks the one nearest to the middle."
    assert details(root) == expected
    stage(root).send_keys(Keys.TAB)
    assert browser.execute_script("return document.activeElement.className") != "tl-stage"


def test_one_graph_launch_leads_to_all_its_kernels(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(browser, tmp_path, gpt2[1:])
    stage(root).send_keys(Keys.ENTER, Keys.END, Keys.ENTER)
    assert details(root).startswith("graph: cudaGraphLaunch_v10000")
    assert facts(root)["launched"].startswith("259 operations, from ")


def test_the_pointer_shows_what_is_under_it(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(browser, tmp_path, gpt2)
    press(root, "graph")
    rest(browser)
    tip = root.find_element(By.CLASS_NAME, "tl-tip")
    assert not tip.is_displayed()
    ActionChains(browser).move_to_element_with_offset(stage(root), 200, 32).perform()
    assert tip.text.split("\n")[0] == "synchronize"
    ActionChains(browser).move_to_element(root.find_element(By.CLASS_NAME, "tl-summary")).perform()
    assert not tip.is_displayed()


def test_a_name_with_markup_is_text_everywhere(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    root = open_page(
        browser, tmp_path, [renamed(gpt2[0], HOSTILE), dataclasses.replace(gpt2[1], strategy=HOSTILE)]
    )
    stage(root).send_keys(Keys.ENTER, Keys.HOME)
    for _ in range(len(gpt2[0].operations)):
        if HOSTILE in details(root):
            break
        stage(root).send_keys(Keys.ARROW_RIGHT)
    assert details(root).startswith(f"eager: {HOSTILE}")
    root.find_element(By.TAG_NAME, "summary").click()
    assert HOSTILE in root.text
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.images.length") == 0
    assert complaints(browser) == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "light"), (375, "dark")])
def test_axe_finds_nothing_and_it_fits(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline], width: int, scheme: str
) -> None:
    show(browser, width, 844, scheme)
    root = open_page(browser, tmp_path, [renamed(gpt2[0], HOSTILE), gpt2[1]])
    stage(root).send_keys(Keys.ENTER)
    root.find_element(By.TAG_NAME, "summary").click()
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert browser.execute_script(CONTRAST) == []
    for button in root.find_elements(By.CSS_SELECTOR, ".tl-tools button"):
        assert min(button.rect["width"], button.rect["height"]) >= 24
    browser.execute_script(axe())
    script = "axe.run().then((found) => arguments[0](found.violations.map((one) => one.id)))"
    assert browser.execute_async_script(script) == []


def test_it_turns_dark_with_the_page(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    open_page(browser, tmp_path, gpt2)
    rest(browser)
    assert DARK_GRAPH not in pixels(browser)
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")  # the report's own switch
    rest(browser)
    assert pixels(browser)[DARK_GRAPH] > 100
    browser.execute_script("delete document.documentElement.dataset.theme")
    rest(browser)
    assert DARK_GRAPH not in pixels(browser)
    show(browser, 1280, 800, "dark")
    rest(browser)
    drawn = pixels(browser)
    assert drawn[DARK_GRAPH] > 100
    assert GRAPH not in drawn


def touch(browser: WebDriver, kind: str, *places: tuple[float, float]) -> None:
    points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def test_two_fingers_zoom_and_a_tap_picks(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    show(browser, 375, 844)
    root = open_page(browser, tmp_path, gpt2)
    area = root.find_element(By.CLASS_NAME, "tl-canvas").rect
    y = area["y"] + area["height"] / 2
    touch(browser, "touchStart", (180, y), (220, y))
    for by in range(10, 60, 10):
        touch(browser, "touchMove", (180 - by, y), (220 + by, y))
    touch(browser, "touchEnd")
    assert span(root) == pytest.approx(gpt2[0].range_ns * 40 / 140, rel=0.1)
    press(root, "graph")
    rest(browser)
    top = area["y"] + area["height"] / 2 + 32
    touch(browser, "touchStart", (250, top))
    touch(browser, "touchEnd")
    assert details(root).startswith("graph: synchronize")


def test_without_scripts_and_on_paper_the_picture_stands_for_it(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, 375, 844)
        root = open_page(browser, tmp_path, gpt2)
        picture = root.find_element(By.CLASS_NAME, "tl-static")
        assert picture.is_displayed()
        assert "6.38 ms · 231 kernels" in picture.text
        assert not root.find_element(By.CLASS_NAME, "tl-tools").is_displayed()
        assert picture.rect["width"] <= 375
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    root = open_page(browser, tmp_path, gpt2)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert root.find_element(By.CLASS_NAME, "tl-static").is_displayed()
    assert not stage(root).is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_ten_thousand_operations_are_drawn(
    browser: WebDriver, tmp_path: Path, gpt2: tuple[Timeline, Timeline]
) -> None:
    first = gpt2[0].operations[0]
    crowd = [dataclasses.replace(first, start_ns=1_200 * place, duration_ns=700) for place in range(10_000)]
    root = open_page(browser, tmp_path, [dataclasses.replace(gpt2[0], operations=tuple(crowd))])
    stage(root).send_keys(Keys.ENTER, Keys.END)
    assert facts(root)["from"].startswith("11,998.800 µs")
    stage(root).send_keys("+" * 12)
    rest(browser)
    assert pixels(browser)["#a23b72"] > 100
    assert complaints(browser) == []
