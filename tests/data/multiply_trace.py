"""Makes a large trace from a real one: `python -m tests.data.multiply_trace SOURCE OUT --kernels 10000000`.

The source is laid out again and again. Each repetition of a process comes later than the one before it and
has correlation ids of its own, so that every kernel still finds its launch call and every call its range.
With several processes (or devices) the repetitions are dealt out to them in turn: processes then run side
by side and use the same correlation ids, as real ones do. Names, durations and the order of calls stay
those of the source.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
EVENTS = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    KERNELS,
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
)
"""Tables whose rows are repeated; all others are copied as they are."""

DOMAIN_CREATE = 75
PROCESS_STEP = 1 << 24
"""Distance of two neighbouring processes in a serialized id."""

_GAP_NS = 1_000_000
_ROWS_AT_ONCE = 500_000


@dataclass(frozen=True)
class Plan:
    """How often the source is laid out, and how far apart.

    `period_ns` and `ids` are the distances of two repetitions of one process in time and correlation ids.
    """

    copies: int
    processes: int
    devices: int
    period_ns: int
    ids: int


def multiply(source: Path, out: Path, kernels: int, processes: int = 1, devices: int = 1) -> int:
    """Write `out` with at least so many kernels; returns how many there are.

    Raises:
        ValueError: the source has no kernels, or `out` exists.
    """
    if out.exists():
        raise ValueError(f"{out}: exists; name another file")
    image = source.read_bytes()
    with closing(sqlite3.connect(out, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("ATTACH ':memory:' AS source")
        connection.deserialize(gzip.decompress(image) if source.suffix == ".gz" else image, name="source")
        plan = _plan(connection, kernels, processes, devices)
        connection.execute("BEGIN")
        for table, create in _tables(connection):
            connection.execute(create)
            if table in EVENTS:
                _repeat(connection, table, plan)
            else:
                connection.execute(f'INSERT INTO main."{table}" SELECT * FROM source."{table}"')
        connection.execute("COMMIT")
        return plan.copies * _count(connection, KERNELS)


def _plan(connection: sqlite3.Connection, kernels: int, processes: int, devices: int) -> Plan:
    present = [table for table, _ in _tables(connection) if table in EVENTS]
    if KERNELS not in present:
        raise ValueError("the source has no kernels; give a trace of a GPU")
    spans = " UNION ALL ".join(
        f'SELECT min("start") AS first, max(ifnull("end", "start")) AS last FROM source."{table}" '
        + (f"WHERE eventType != {DOMAIN_CREATE}" if table == "NVTX_EVENTS" else "")
        for table in present
    )
    first, last = connection.execute(f"SELECT min(first), max(last) FROM ({spans})").fetchone()
    ids = " UNION ALL ".join(
        f'SELECT max(correlationId) AS id FROM source."{table}"'
        for table in present
        if table != "NVTX_EVENTS"
    )
    (highest,) = connection.execute(f"SELECT max(id) FROM ({ids})").fetchone()
    copies = math.ceil(kernels / _count(connection, KERNELS))
    return Plan(copies, processes, devices, last - first + _GAP_NS, highest + 1)


def _repeat(connection: sqlite3.Connection, table: str, plan: Plan) -> None:
    columns = [row[1] for row in connection.execute(f'PRAGMA source.table_info("{table}")')]
    values = ", ".join(_value(column, plan) for column in columns)
    # The rows that name the domains are needed once for each process, not for each repetition.
    once = f"eventType != {DOMAIN_CREATE} OR n < {plan.processes}" if table == "NVTX_EVENTS" else "1"
    step = max(1, _ROWS_AT_ONCE // max(1, _count(connection, table)))
    portions = range(0, plan.copies, step)
    for start in tqdm(portions, desc=table, unit_scale=step, unit=" copies", delay=2, disable=None):
        stop = min(start + step, plan.copies)
        connection.execute(
            f"WITH RECURSIVE copies(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM copies "
            f'WHERE n + 1 < {stop}) INSERT INTO main."{table}" '
            f'SELECT {values} FROM copies CROSS JOIN source."{table}" WHERE {once}'
        )


def _value(column: str, plan: Plan) -> str:
    """One column of repetition n, which is the (n / processes)th of process n % processes."""
    steps = {
        "start": f"(n / {plan.processes}) * {plan.period_ns}",
        "end": f"(n / {plan.processes}) * {plan.period_ns}",
        "correlationId": f"(n / {plan.processes}) * {plan.ids}",
        "deviceId": f"n % {plan.devices}",
    }
    for name in ("globalPid", "globalTid", "endGlobalTid"):
        steps[name] = f"(n % {plan.processes}) * {PROCESS_STEP}"
    return f'"{column}" + {steps[column]}' if column in steps else f'"{column}"'


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'")
    return [(name, create) for name, create in rows if not name.startswith("sqlite_")]


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f'SELECT count(*) FROM source."{table}"').fetchone()[0])


def main() -> int:
    """Read the command line and write the trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="a real export, .sqlite or .sqlite.gz")
    parser.add_argument("out", type=Path, help="file to write; 10 million kernels take about 2.5 GB")
    parser.add_argument(
        "--kernels", type=int, default=10_000_000, help="at least so many (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=1, help="deal them out to so many (default: 1)")
    parser.add_argument("--devices", type=int, default=1, help="deal them out to so many (default: 1)")
    args = parser.parse_args()
    count = multiply(args.source, args.out, args.kernels, args.processes, args.devices)
    sys.stdout.write(f"{args.out}: {count:,} kernels\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
