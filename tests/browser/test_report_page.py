"""The report in a real browser: headless Chromium (envs/install-chromium.sh) opens it from disk."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from analysis.report import ReportData, gather, render_html
from contract import LatencyRecord
from tests.analysis.report_samples import (
    HOSTILE,
    failed,
    latency_record,
    request_rows,
    trace_entry,
    write_preflight,
    write_record,
    write_tables,
)

pytestmark = pytest.mark.browser

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


def program(variable: str, *names: str) -> str:
    """Path of the browser or its driver; fails, not skips, since these tests are worth nothing unrun."""
    wanted = [os.environ[variable]] if os.environ.get(variable) else list(names)
    found = [path for name in wanted if (path := shutil.which(name))]
    assert found, f"{' or '.join(wanted)}: not found; run envs/install-chromium.sh"
    return found[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = program("LAUNCHGAP_CHROMIUM", "chromium", "chromium-browser", "google-chrome")
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(program("LAUNCHGAP_CHROMEDRIVER", "chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def fresh_window(browser: webdriver.Chrome) -> None:
    show(browser, 1280, 800)
    complaints(browser)


def complaints(browser: webdriver.Chrome) -> list[dict[str, object]]:
    """What the console said since the last look."""
    return list(browser.get_log("browser"))  # type: ignore[no-untyped-call]


def show(browser: webdriver.Chrome, width: int, height: int, scheme: str = "light") -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def traced(root: Path) -> None:
    for record in (latency_record(), latency_record("bert-tiny")):
        write_record(root, record)
        write_tables(root, record["case"]["name"])


def single(root: Path) -> None:
    record = latency_record()
    write_record(root, record)
    write_tables(root, record["case"]["name"])


def simulated(root: Path) -> None:
    record = latency_record(simulated=True)
    write_record(root, record)
    entries = [trace_entry("eager", "node", "no gpu", "there is no GPU work to count")]
    write_tables(root, record["case"]["name"], entries=entries, requests=request_rows(simulated=True))


def hostile(root: Path) -> None:
    record: LatencyRecord = latency_record("x" * 120 + HOSTILE)
    record["case"]["name"] = "hostile"
    record["command"] = ["x" * 300, HOSTILE]
    record["strategies"][HOSTILE] = failed(HOSTILE * 3)
    write_record(root, record, "hostile")
    write_tables(root, "hostile", kernels=[HOSTILE, "k" * 300, "plain"])
    write_record(root, record, "cut").write_text("{", encoding="utf-8")


KINDS: dict[str, Callable[[Path], None]] = {
    "several cases": traced,
    "one case": single,
    "simulation": simulated,
    "hostile names": hostile,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def gathered(root: Path) -> ReportData:
    preflight = write_preflight(root, findings=["nvtx: too new; pin it"])
    return gather(root / "latency", root / "tables", preflight, root)


@cache
def page_of(write: Callable[[Path], None]) -> str:
    """The report of what is written, rendered once."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write(root)
        return render_html(gathered(root))


def open_report(browser: webdriver.Chrome, root: Path, kind: str) -> None:
    open_page(browser, root, KINDS[kind])


def open_page(browser: webdriver.Chrome, root: Path, write: Callable[[Path], None]) -> None:
    path = root / "report.html"
    path.write_text(page_of(write), encoding="utf-8")
    browser.get(path.as_uri())


@every_kind
def test_it_opens_from_disk_without_a_complaint_or_a_request(
    browser: webdriver.Chrome, tmp_path: Path, kind: str
) -> None:
    open_report(browser, tmp_path, kind)
    assert browser.title.startswith("launchgap: ")
    assert complaints(browser) == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.scripts.length") == 2


@every_kind
@pytest.mark.parametrize("width", [320, 375, 768, 1280, 1440])
def test_it_fits_the_width_of_any_screen(
    browser: webdriver.Chrome, tmp_path: Path, kind: str, width: int
) -> None:
    show(browser, width, 844)
    open_report(browser, tmp_path, kind)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") == width


@every_kind
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_either_scheme(
    browser: webdriver.Chrome, tmp_path: Path, kind: str, scheme: str
) -> None:
    show(browser, 1280, 800, scheme)
    open_report(browser, tmp_path, kind)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script(CONTRAST) == []


def colours(browser: webdriver.Chrome) -> list[str]:
    script = """
      const text = getComputedStyle(document.querySelector("figure svg text")).fill;
      const bar = getComputedStyle(document.querySelector(".bar.s-graph")).backgroundColor;
      return [getComputedStyle(document.body).backgroundColor, text, bar];
    """
    found = browser.execute_script(script)
    assert isinstance(found, list)
    return found


def test_pictures_and_page_turn_dark_together(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, tmp_path, "one case")
    light = colours(browser)
    show(browser, 1280, 800, "dark")
    dark = colours(browser)
    assert all(before != after for before, after in zip(light, dark, strict=True))


def test_the_first_screen_holds_verdict_latency_launches_and_kernels(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    open_report(browser, tmp_path, "one case")
    assert browser.find_element(By.CLASS_NAME, "verdict").rect["y"] < 300
    tiles = browser.find_element(By.CLASS_NAME, "tiles")
    assert tiles.rect["y"] + tiles.rect["height"] < 800
    words = " ".join(tiles.text.split())
    assert "Launches per request eager 237 → graph 2" in words
    assert "Kernels per request eager 232 → graph 306" in words
    assert browser.find_element(By.CLASS_NAME, "figures").rect["y"] < 800


def table_with(browser: webdriver.Chrome, caption: str) -> WebElement:
    path = f"//table[starts-with(normalize-space(caption), '{caption}')]"
    return browser.find_element(By.XPATH, path)


def column(table: WebElement, number: int) -> list[str]:
    return [cell.text for cell in table.find_elements(By.CSS_SELECTOR, f"tbody tr > :nth-child({number})")]


def test_a_click_sorts_a_column_and_another_turns_it_round(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, tmp_path, "one case")
    table = table_with(browser, "Launches by host API")
    header = table.find_elements(By.CSS_SELECTOR, "thead th")[3]
    header.find_element(By.TAG_NAME, "button").click()
    assert column(table, 5) == ["183", "49", "4", "1", "1", "1", "1"]
    assert header.get_attribute("aria-sort") == "descending"
    header.find_element(By.TAG_NAME, "button").click()
    assert column(table, 5) == ["1", "1", "1", "1", "4", "49", "183"]
    assert header.get_attribute("aria-sort") == "ascending"


def test_names_sort_by_the_keyboard_and_one_column_at_a_time(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    open_report(browser, tmp_path, "one case")
    table = table_with(browser, "Launches by host API")
    first, second = table.find_elements(By.CSS_SELECTOR, "thead th")[:2]
    first.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert column(table, 1) == sorted(column(table, 1), key=str.lower)
    second.find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert column(table, 2) == sorted(column(table, 2))
    assert (first.get_attribute("aria-sort"), second.get_attribute("aria-sort")) == (None, "ascending")


def with_a_failure(root: Path) -> None:
    single(root)
    record = latency_record("b")
    record["strategies"]["graph"] = failed("out of GPU memory")
    write_record(root, record)


def test_cells_that_were_not_measured_stay_last(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_page(browser, tmp_path, with_a_failure)
    table = table_with(browser, "All cases")
    button = table.find_elements(By.CSS_SELECTOR, "thead th button")[3]
    for _ in range(2):
        button.click()
        assert column(table, 4)[-1] == "–"


def test_a_case_is_one_click_away_from_the_overview(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, tmp_path, "several cases")
    browser.find_element(By.CLASS_NAME, "overview").find_element(
        By.LINK_TEXT, "gpt2-float32-p50-m1024"
    ).click()
    assert browser.current_url.endswith("#case-2")
    title = browser.find_element(By.ID, "case-2-title")
    assert title.text.startswith("gpt2")
    assert browser.execute_script("return arguments[0].getBoundingClientRect().top", title) < 200


def test_it_reads_without_scripts(browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_report(browser, tmp_path, "one case")
        assert "Graph takes 61" in browser.find_element(By.CLASS_NAME, "verdict").text
        assert browser.find_elements(By.CSS_SELECTOR, "thead button") == []
        assert column(table_with(browser, "Latency of one forward pass"), 1) == [
            "eager",
            "graph",
            "graph_padded",
        ]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_prints_with_what_is_read_unfolded(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, tmp_path, "one case")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    assert browser.execute_script(
        "return [...document.querySelectorAll('article details.printed')].every((one) => one.open)"
    )


def test_names_with_markup_do_nothing(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, tmp_path, "hostile names")
    assert HOSTILE in browser.find_element(By.TAG_NAME, "body").text
    assert browser.execute_script("return document.querySelectorAll('main script').length") == 0


def alarming(root: Path) -> None:
    single(root)
    (path,) = root.glob("tables/*/explained.json")
    record = json.loads(path.read_text())
    lost = "6 operations per request (9.8 us) missing for no known reason"
    record["matches"][0] |= {"sentence": lost, "alarms": [lost]}
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_work_that_escaped_is_red_and_above_the_numbers(
    browser: webdriver.Chrome, tmp_path: Path, scheme: str
) -> None:
    show(browser, 1280, 800, scheme)
    open_page(browser, tmp_path, alarming)
    first, second = browser.find_elements(By.CSS_SELECTOR, "[role=alert]")
    assert first.text == (
        "graph may be faster because work escaped it: 6 operations per request (9.8 µs) missing for no known "
        "reason."
    )
    assert second.text.startswith("graph: 6 operations")
    red, green, blue = map(int, first.value_of_css_property("color").strip("rgba()").split(", ")[:3])
    assert red > 1.5 * max(green, blue)
    tiles = browser.find_element(By.CLASS_NAME, "tiles")
    assert first.location["y"] < tiles.location["y"]
    assert browser.execute_script(CONTRAST) == []
