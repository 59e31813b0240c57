"""Short, readable names for demangled GPU kernels.

A demangled PyTorch name is a C++ declaration of up to a kilobyte. What a reader wants is the kernel and the
one thing that tells it from its siblings: the functor of an elementwise kernel, the tile and type of a matrix
product. `shorten` keeps these, in the words of the source so that they can be searched for, and drops the
return type, the arguments, the namespaces and the plumbing. Any string is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LENGTH = 60
"""Longest short name, a collision suffix aside."""

UNNAMED = "(unnamed)"

_MAX_DEPTH = 8
_OPENING, _CLOSING = "<([{", ">)]}"
_ELLIPSIS = "…"
_TAIL = 14

_TYPES = frozenset(
    {"bool", "char", "short", "int", "long", "float", "double", "half", "complex"}
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"Half", "BFloat16", "Float8_e4m3fn", "Float8_e5m2"}
    | {"half_t", "bfloat16_t", "tfloat32_t", "float_e4m3_t", "float_e5m2_t"}
    | {"__half", "__nv_bfloat16"}
)
_ANONYMOUS = re.compile(r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\}|_GLOBAL__N__\w+)::")
_CAST = re.compile(r"\((?:bool|char|short|int|long|unsigned(?: \w+)*|long long|[\w:]+)\)(?=-?\d)")
_TRUTH = re.compile(r"\(bool\)\d|\b(?:true|false)\b")
_INTEGER = re.compile(r"(-?\d+)[uUlL]*")
_LAMBDA = re.compile(r"[\[{]lambda\s*\(")
# Template arguments that say how a kernel runs, not what it computes.
_PLUMBING = re.compile(
    r"array|(?:Trivial)?OffsetCalculator|(?:Load|Store)With(?:out)?Cast|NullType|Policy\w*|ScanTileState"
    r"|cublasGemv\w*|cublasSplitK\w*|Params|CUDAGeneratorImpl|tuple|integral_constant|C|Layout"
)
# Wrappers whose own argument is the kernel's meaning.
_TRANSPARENT = re.compile(
    r"gpu_kernel_\w+|gpu_index_kernel|distribution_nullary_kernel|opmath_gpu_kernel\w*|BinaryFunctor|UnaryFunctor"
    r"|ReduceOp"
)
_HALF_APPLIED = re.compile(r"([AB]Unary)Functor")
_TRAITS = re.compile(r"\w*traits\w*", re.IGNORECASE)
_MEANINGFUL = re.compile(r"Functor|[Oo]ps?\b|plus|minus|maximum|minimum|traits|lambda\s*\(|\)::")
_GENERIC_BASES = frozenset({"kernel", "Kernel", "run", "main"})
# Long names of matrix products: what follows the tile says nothing that another kernel would not say as well.
_GEMM_NOISE = re.compile(
    r"_(?:stage\d+|warpsize\w+?(?=_)|warpgroupsize\w+?(?=_)|aligna\d+|alignb\d+|alignc\d+|execute(?:_\w+)?$)"
)


def shorten(demangled: str) -> str:
    """A name of at most `MAX_LENGTH` characters on one line; the same for the same input, always."""
    text = _clean(demangled)
    if not text:
        return UNNAMED
    declaration = _declarator(text)
    base, arguments = _split_template(declaration)
    if _components(base)[-1:] in (["Kernel2"], ["Kernel"]) and len(arguments) == 1:
        return _fit(_gemm(_components(arguments[0])[-1] if _components(arguments[0]) else arguments[0]))
    name = _gemm(_base_name(base)) or text
    detail = _detail(arguments, 0)
    return _fit(f"{name}<{detail}>" if detail else name)


def shorten_all(names: Iterable[str]) -> dict[str, str]:
    """Short names of a table's kernels, no two alike: later ones, by full name, get ` #2` and so on."""
    short_of: dict[str, str] = {}
    taken: set[str] = set()
    for full in sorted(set(names)):
        short, number = shorten(full), 1
        candidate = short
        while candidate in taken:
            number += 1
            candidate = f"{short} #{number}"
        taken.add(candidate)
        short_of[full] = candidate
    return short_of


def _clean(text: str) -> str:
    """One printable line without anonymous namespaces, casts of literals and truth values."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = (
        _ANONYMOUS.sub("", line)
        .replace("operator ()", "operator_call")
        .replace("operator()", "operator_call")
    )
    return _CAST.sub("", _TRUTH.sub("bool", line)).replace(" <", "<")


def _declarator(text: str) -> str:
    """The name with its template arguments: no return type, no argument list, no trailing qualifiers."""
    head = text[: _first(text, "(")]
    words = _split(head.strip(), " ")
    return words[-1] if words else head


def _base_name(base: str) -> str:
    parts = _components(base)
    if not parts:
        return ""
    if parts[-1] in _GENERIC_BASES and len(parts) > 1:
        return "::".join(parts[-2:])
    return parts[-1]


def _detail(arguments: list[str], depth: int) -> str:
    """What the template arguments say: the functor if there is one, else types and numbers."""
    if depth > _MAX_DEPTH:
        return ""
    classes = [argument for argument in arguments if _is_class(argument)]
    meaningful = [argument for argument in classes if _MEANINGFUL.search(argument)]
    for argument in (*meaningful, *classes):
        described = _describe(argument, depth + 1)
        if described:
            return described
    return _plain_words(arguments)


def _plain_words(arguments: list[str]) -> str:
    """Types, each once, and numbers, each as often as it stands there: a tile may be 64 by 64."""
    plain = [word for word in map(_plain, arguments) if word and word != "bool"]
    repeated = [word in plain[:place] and not word.isdigit() for place, word in enumerate(plain)]
    return ", ".join(word for word, again in zip(plain, repeated, strict=True) if not again)


def _describe(argument: str, depth: int) -> str:
    """One class or lambda among the template arguments, in as few words as tell it apart."""
    base, inner = _split_template(_declarator(argument))
    parts = _components(base)
    if not parts or depth > _MAX_DEPTH:
        return ""
    name = parts[-1]
    if _TRAITS.fullmatch(name):
        return _plain_words(inner) or name
    if _TRANSPARENT.fullmatch(name):
        return _detail(inner, depth) or name
    half = _HALF_APPLIED.fullmatch(name)
    if half is not None:
        return f"{half[1]} {_detail(inner, depth)}".strip()
    detail = _first_type(inner, depth) or _lambda_type(argument)
    return f"{name}<{detail}>" if detail else name


def _first_type(arguments: list[str], depth: int) -> str:
    for argument in arguments:
        word = _describe(argument, depth + 1) if _is_class(argument) else _plain(argument)
        if word:
            return word
    return ""


def _lambda_type(argument: str) -> str:
    """Type that the innermost lambda computes on: the last one it takes, if that is a number's type."""
    matches = list(_LAMBDA.finditer(argument))
    if not matches:
        return ""
    opened = argument[matches[-1].end() :]
    taken = _split(opened[: _first_closing(opened)], ",")
    word = _plain(taken[-1]) if taken else ""
    return "" if _INTEGER.fullmatch(word) else word


def _is_class(argument: str) -> bool:
    parts = _components(_split_template(_declarator(argument))[0])
    return (
        bool(parts)
        and not _plain(argument)
        and _PLUMBING.fullmatch(parts[-1]) is None
        and parts[-1].isidentifier()
    )


def _plain(argument: str) -> str:
    """A fundamental type or an integer, else nothing. Pointers and truth values tell little."""
    number = _INTEGER.fullmatch(argument)
    if number is not None:
        return number[1]
    words = [word for word in argument.split() if word not in {"const", "volatile"}]
    last = words[-1].rsplit("::", 1)[-1] if words else ""
    is_number_type = last in _TYPES and all(word in _TYPES | {"unsigned", "signed"} for word in words[:-1])
    return " ".join([*words[:-1], last]) if is_number_type else ""


def _components(base: str) -> list[str]:
    """Parts of a qualified name, template arguments of the parts dropped."""
    plain = "".join(_outside(base))
    return [part for part in plain.strip().split("::") if part]


def _outside(text: str) -> Iterable[str]:
    depth = 0
    for character in text:
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
        elif depth == 0:
            yield character


def _split_template(declaration: str) -> tuple[str, list[str]]:
    """Name before its last template argument list, and that list. Unclosed lists end with the text."""
    if not declaration.endswith(">"):
        opened = _first(declaration, "<")
        suffix = declaration.rfind(">::")
        if suffix > opened:  # `hub<int>::Policy`: the list belongs to the outer name.
            return declaration, []
        return declaration[:opened], _split(declaration[opened + 1 :], ",")
    depth = 0
    for position in range(len(declaration) - 1, -1, -1):
        depth += (declaration[position] == ">") - (declaration[position] == "<")
        if depth == 0:
            return declaration[:position], _split(declaration[position + 1 : -1], ",")
    return declaration[: _first(declaration, "<")], []


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators that stand outside all brackets; empty parts are dropped."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
        elif character == separator and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [part for part in (*parts, text[begin:].strip()) if part]


def _first(text: str, wanted: str) -> int:
    """Position of the first `wanted` bracket outside all others; the length where there is none."""
    depth = 0
    for position, character in enumerate(text):
        if character == wanted and depth == 0 and position > 0:
            return position
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
    return len(text)


def _first_closing(text: str) -> int:
    depth = 0
    for position, character in enumerate(text):
        if character in _CLOSING:
            if depth == 0:
                return position
            depth -= 1
        elif character in _OPENING:
            depth += 1
    return len(text)


def _gemm(name: str) -> str:
    return _GEMM_NOISE.sub("", name) if len(name) > MAX_LENGTH else name


def _fit(name: str) -> str:
    """Cut the middle out of a long name: its end often holds the number that tells it apart."""
    if len(name) <= MAX_LENGTH:
        return name
    return f"{name[: MAX_LENGTH - _TAIL - 1]}{_ELLIPSIS}{name[-_TAIL:]}"
