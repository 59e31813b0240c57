import pytest

from analysis.commands.select import parse_time_ns, seconds
from analysis.commands.words import SHOWN_CHARACTERS, markdown, shown, width


@pytest.mark.parametrize("text", ["", "gemm<float>", "日本語", "µs", "a" * SHOWN_CHARACTERS])
def test_what_can_be_shown_is_shown_as_it_is(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    "text",
    ["\x1b[2J", "a\r\nb", "\x00", "\u202e", "\ud800", "\x9b31m", "\u2028", "e" * 200, "\x07" * 100_000],
)
@pytest.mark.parametrize("limit", [20, 60, 1000])
def test_nothing_unprintable_and_nothing_endless(text: str, limit: int) -> None:
    told = shown(text, limit)
    assert told.isprintable()
    assert len(told) <= limit
    assert told


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    told = shown("begin" + "x" * 1000 + "the end")
    assert told.startswith("beginx")
    assert told.endswith("xthe end")
    assert "…" in told


def test_markdown_has_no_markup_left() -> None:
    text = markdown("<b>|`*_[x](http://e.org)@me$1$&#~!")
    assert not {"<", ">", "@", "$"} & set(text)
    assert "://" not in text
    assert "\\|" in text


def test_width_counts_columns() -> None:
    assert width("kernel") == 6
    assert width("日本") == 4
    assert width("e\u0301") == 1


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("0", 0),
        ("1.5", 1_500_000_000),
        ("-0.25s", -250_000_000),
        (" -5ms", -5_000_000),
        ("40us", 40_000),
        ("40 µs", 40_000),
        ("1200ns", 1200),
        (".5us", 500),
        ("9223372036.854775807", 2**63 - 1),
        ("123456789.123456789", 123_456_789_123_456_789),
    ],
)
def test_times(text: str, time_ns: int) -> None:
    assert parse_time_ns(text) == time_ns


@pytest.mark.parametrize(
    "text", ["", "s", "1h", "1e3", "nan", "inf", "1,5", "9223372036.9", "9" * 400, "\u0661"]
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time_ns(text)


@pytest.mark.parametrize("time_ns", [0, 1, -900, 1_500_000_000, 123_456_789_123_456_789])
def test_seconds_are_exact(time_ns: int) -> None:
    assert parse_time_ns(seconds(time_ns)) == time_ns
