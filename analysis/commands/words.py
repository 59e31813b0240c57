"""Names from a trace as text that a terminal and Markdown show as it is.

The traced program chose these names: they may hold terminal escapes, markup, line breaks, or a book.
"""

from __future__ import annotations

import re
import unicodedata

SHOWN_CHARACTERS = 60
"""Longest name in a cell of a text table. JSON and CSV hold names whole."""

_ELLIPSIS = "…"
_TAIL = 14
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#!])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "://": "&#58;//"}


def shown(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """At most `limit` characters on one line, unprintable ones as escapes; the middle of a long name is cut.

    Unprintable are control characters, line breaks, marks that reverse the direction of writing, and halves
    of characters (surrogates): none of them reaches the terminal.
    """
    # Far more than is shown need not be escaped first: a name may be a megabyte long.
    if len(text) > 2 * limit:
        text = f"{text[:limit]}{_ELLIPSIS}{text[-limit:]}"
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    if len(escaped) <= limit:
        return escaped
    tail = min(_TAIL, limit // 3)
    return f"{escaped[: limit - tail - 1]}{_ELLIPSIS}{escaped[len(escaped) - tail :]}"


def markdown(text: str) -> str:
    """Text that Markdown and the HTML inside it show as it is: no markup, links, mentions or table breaks."""
    text = _MARKUP.sub(r"\\\1", text)
    for plain, entity in _ENTITIES.items():
        text = text.replace(plain, entity)
    return text


def width(text: str) -> int:
    """Columns that a terminal needs: East Asian wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
