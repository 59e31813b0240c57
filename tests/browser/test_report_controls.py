"""What a reader does with the report in a real browser: search, theme, contents; and accessibility."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

import tests.browser.test_report_page as report_page
from tests.browser.test_report_page import CONTRAST, column, complaints, show, table_with
from tests.browser.test_timeline import axe

pytestmark = pytest.mark.browser
browser, fresh_window = report_page.browser, report_page.fresh_window

COMPARISON = "Kernels per request, eager against graph."


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports as files; each is rendered once."""
    found = {}
    for kind in ("one case", "several cases", "hostile names"):
        found[kind] = tmp_path_factory.mktemp("page") / "report.html"
        found[kind].write_text(report_page.page_of(report_page.KINDS[kind]), encoding="utf-8")
    return found


@pytest.fixture
def page(browser: WebDriver, pages: dict[str, Path]) -> Iterator[WebDriver]:
    """The report of one case, opened; what it remembers is forgotten afterwards."""
    browser.get(pages["one case"].as_uri())
    yield browser
    browser.execute_script("localStorage.clear()")


def box_of(table: WebElement) -> WebElement:
    return table.find_element(By.XPATH, "ancestor::div[@class='scroll']/preceding-sibling::div[1]/input")


def count_of(table: WebElement) -> str:
    path = "ancestor::div[@class='scroll']/preceding-sibling::div[1]/output"
    return table.find_element(By.XPATH, path).text


def shown(table: WebElement, number: int = 1) -> list[str]:
    return [text for text in column(table, number) if text]


def test_a_search_leaves_the_rows_that_match_and_says_how_many(page: WebDriver) -> None:
    table = table_with(page, COMPARISON)
    box = box_of(table)
    assert (len(shown(table)), count_of(table)) == (15, "")
    box.send_keys("KERNEL_1")
    assert sorted(shown(table)) == sorted(["kernel_1", *(f"kernel_{one}" for one in range(10, 20))])
    assert count_of(table) == "11 of 20 rows"
    box.send_keys("9 void")  # a second word, of the long name behind the short one
    assert (shown(table), count_of(table)) == (["kernel_19"], "1 of 20 rows")
    box.send_keys("nothing")
    assert (shown(table), count_of(table)) == ([], "0 of 20 rows")
    box.send_keys(Keys.ESCAPE)
    assert (box.get_attribute("value"), len(shown(table)), count_of(table)) == ("", 15, "")


def test_a_search_is_announced_and_named_after_its_table(page: WebDriver) -> None:
    table = table_with(page, COMPARISON)
    label = page.find_element(By.CSS_SELECTOR, f"label[for={box_of(table).get_attribute('id')}]")
    assert COMPARISON in str(label.get_attribute("textContent"))
    output = label.find_element(By.XPATH, "../output")
    assert output.get_attribute("aria-live") == "polite"


def test_sorting_and_searching_work_together(page: WebDriver) -> None:
    table = table_with(page, COMPARISON)
    button = table.find_elements(By.CSS_SELECTOR, "thead button")[3]
    button.click()
    button.click()
    assert shown(table)[0] == "kernel_19"  # of all rows, not only of the first that were shown
    box_of(table).send_keys("kernel_1")
    assert shown(table)[:2] == ["kernel_19", "kernel_18"]
    button.click()
    assert shown(table)[:2] == ["kernel_1", "kernel_10"]


def test_the_rest_of_a_long_table_is_one_press_away(page: WebDriver) -> None:
    table = table_with(page, COMPARISON)
    more = table.find_element(By.XPATH, "ancestor::div[@class='scroll']/following-sibling::button[1]")
    assert (more.text, more.get_attribute("aria-expanded")) == ("Show all 20 rows", "false")
    more.send_keys(Keys.ENTER)
    assert len(shown(table)) == 20
    assert (more.text, more.get_attribute("aria-expanded")) == ("Show the first 15", "true")
    more.send_keys(Keys.ENTER)
    assert len(shown(table)) == 15


def test_only_long_tables_are_searched(page: WebDriver) -> None:
    for table in page.find_elements(By.TAG_NAME, "table"):
        rows = len(table.find_elements(By.CSS_SELECTOR, "tbody tr"))
        assert (table.get_attribute("data-searched") is not None) <= (rows > 8)
    assert len(page.find_elements(By.CSS_SELECTOR, ".search input")) > 3


def paper(browser: WebDriver) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 28)"


def choose(browser: WebDriver, theme: str) -> None:
    """By the keyboard."""
    steps = [Keys.ARROW_DOWN] * ("auto", "light", "dark").index(theme)
    browser.find_element(By.ID, "theme").send_keys(Keys.HOME, *steps)


def test_the_theme_is_switched_by_keyboard_and_remembered(page: WebDriver) -> None:
    assert paper(page) == LIGHT
    choose(page, "dark")
    assert paper(page) == DARK
    assert page.execute_script(CONTRAST) == []
    page.refresh()
    assert paper(page) == DARK
    assert page.find_element(By.ID, "theme").get_attribute("value") == "dark"
    choose(page, "auto")
    assert paper(page) == LIGHT
    show(page, 1280, 800, "dark")
    assert paper(page) == DARK
    choose(page, "light")
    assert paper(page) == LIGHT
    page.refresh()
    assert paper(page) == LIGHT


def test_without_storage_the_switch_works_until_the_page_is_left(page: WebDriver) -> None:
    broken = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('none'); } });"
    script = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": broken})
    try:
        page.refresh()
        choose(page, "dark")
        assert paper(page) == DARK
        assert complaints(page) == []
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
        page.refresh()


def test_paper_is_light_and_whole_whatever_was_chosen(page: WebDriver) -> None:
    choose(page, "dark")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert paper(page) == LIGHT
        assert len(shown(table_with(page, COMPARISON))) == 20
        for hidden in (".theme", ".contents", ".search", ".more", ".tl-live"):
            assert not any(one.is_displayed() for one in page.find_elements(By.CSS_SELECTOR, hidden))
        assert page.find_element(By.CLASS_NAME, "tl-static").is_displayed()
        printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_first_press_of_tab_skips_to_the_report(page: WebDriver) -> None:
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    link = page.switch_to.active_element
    assert link.text == "Skip to the report"
    assert link.rect["y"] >= 0
    link.send_keys(Keys.ENTER)
    assert page.execute_script("return document.activeElement.id") == "main"


def current(browser: WebDriver) -> str:
    (link,) = browser.find_elements(By.CSS_SELECTOR, ".contents a[aria-current]")
    return str(link.get_attribute("hash"))


def test_the_contents_follow_the_reader_beside_the_text(browser: WebDriver, pages: dict[str, Path]) -> None:
    show(browser, 1440, 900)
    browser.get(pages["several cases"].as_uri())
    contents = browser.find_element(By.CLASS_NAME, "contents")
    assert current(browser) == "#overview"
    contents.find_element(By.LINK_TEXT, "gpt2-float32-p50-m1024").click()
    kernels = contents.find_element(By.CSS_SELECTOR, "a[href='#case-2-kernels']")
    assert not contents.find_element(By.CSS_SELECTOR, "a[href='#case-1-kernels']").is_displayed()
    kernels.click()
    title = browser.find_element(By.ID, "case-2-kernels")
    assert 0 <= browser.execute_script("return arguments[0].getBoundingClientRect().top", title) < 100
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert current(browser) == "#case-2-kernels"
    assert kernels.is_displayed()
    assert browser.execute_script("return arguments[0].getBoundingClientRect().top", kernels) > 0


def test_the_contents_are_folded_on_a_phone(browser: WebDriver, pages: dict[str, Path]) -> None:
    show(browser, 375, 812)
    browser.get(pages["one case"].as_uri())
    contents = browser.find_element(By.CLASS_NAME, "contents")
    link = contents.find_element(By.CSS_SELECTOR, "a[href='#case-1-cost']")
    assert not link.is_displayed()
    contents.find_element(By.TAG_NAME, "summary").click()
    link.click()
    assert browser.current_url.endswith("#case-1-cost")
    assert not link.is_displayed()


def test_without_scripts_no_control_and_every_row(browser: WebDriver, pages: dict[str, Path]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["one case"].as_uri())
        assert browser.find_elements(By.CSS_SELECTOR, "input, button.more, thead button") == []
        assert not browser.find_element(By.ID, "theme").is_displayed()
        assert len(shown(table_with(browser, COMPARISON))) == 20
        assert browser.find_element(By.CLASS_NAME, "tl-static").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_timeline_is_alive(page: WebDriver) -> None:
    root = page.find_element(By.CLASS_NAME, "timeline")
    assert root.find_element(By.CLASS_NAME, "tl-stage").is_displayed()
    assert not root.find_element(By.CLASS_NAME, "tl-static").is_displayed()
    whole = root.find_element(By.CLASS_NAME, "tl-view").text
    root.find_element(By.CSS_SELECTOR, "button[data-do=in]").click()
    page.execute_async_script("setTimeout(arguments[0], 400)")
    assert root.find_element(By.CLASS_NAME, "tl-view").text != whole


@pytest.mark.parametrize(
    ("kind", "width", "scheme", "without"),
    [
        ("one case", 1440, "light", []),
        # Without what takes most of the time; contrast.js has looked at it.
        ("hostile names", 375, "dark", ["color-contrast"]),
        ("several cases", 375, "light", ["color-contrast"]),
    ],
)
def test_axe_finds_nothing(
    browser: WebDriver, pages: dict[str, Path], kind: str, width: int, scheme: str, without: list[str]
) -> None:
    show(browser, width, 844, scheme)
    browser.get(pages[kind].as_uri())
    if kind != "several cases":  # whose folds hold what the one case's do
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    browser.execute_script(axe())
    script = """
      const nodes = (one) => one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200));
      const told = (one) => `${one.impact} ${one.id}: ${nodes(one)}`;
      const rules = Object.fromEntries(arguments[0].map((id) => [id, { enabled: false }]));
      axe.run({ rules }).then((found) => arguments[1](found.violations.map(told)));
    """
    assert browser.execute_async_script(script, without) == []
