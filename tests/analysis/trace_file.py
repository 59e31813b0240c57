"""Builds small traces table by table, the way nsys exports them: tables without events are absent."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
SCHEMAS: dict[str, dict[str, str]] = json.loads((DATA / "export_schemas.json").read_text())
LATEST = "3.20.3"

EXAMPLES = {
    "eager.node": DATA / "traces" / "h200-gpt2-fp32-baseline-trace-node.sqlite.gz",
    "graph.node": DATA / "traces" / "h200-gpt2-fp32-graph-trace-node.sqlite.gz",
    "graph.graph": DATA / "traces" / "h200-gpt2-fp32-graph-trace-graph.sqlite.gz",
}

Value = int | str | None

PROCESS = (1 << 48) | (4321 << 24)
THREAD = PROCESS | 4321


class TraceFile:
    """A trace under construction. Times are nanoseconds; correlation ids are given out by `call`."""

    def __init__(self, path: Path, schema: str = LATEST, mode: str | None = "node") -> None:
        self.path = path
        self.schema = schema
        self._tables = SCHEMAS[schema]
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA synchronous = OFF")  # nothing of it outlives the test
        self._created: set[str] = set()
        self._columns: dict[str, list[tuple[str, bool]]] = {}
        self._strings: dict[str, int] = {}
        self._next_correlation = 1
        about = "EXPORT_META_DATA" if schema == "3.0.0" else "META_DATA_EXPORT"
        self.insert(about, name="EXPORT_SCHEMA_VERSION", value=schema)
        self.insert(about, name="EXPORT_PRODUCT_VERSION", value="2025.3.2.0")
        self.string("[Unknown]")
        if mode is not None and "META_DATA_CAPTURE" in self._tables:
            name = "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"
            self.insert("META_DATA_CAPTURE", name=name, value=mode.capitalize())

    def save(self) -> Path:
        self._connection.commit()
        self._connection.close()
        return self.path

    def execute(self, sql: str) -> None:
        self._columns.clear()
        self._connection.execute(sql)

    def insert(self, table: str, **values: Value) -> None:
        """Insert a row; columns that are declared NOT NULL and not given are 0."""
        if table not in self._created:
            self._connection.execute(f"CREATE TABLE {table} ({self._tables[table]})")
            self._created.add(table)
        if table not in self._columns:
            about = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
            self._columns[table] = [(row[1], bool(row[3])) for row in about]
        known = {name for name, _ in self._columns[table]}
        required: dict[str, Value] = {name: 0 for name, needed in self._columns[table] if needed}
        filled = required | {k: v for k, v in values.items() if k in known}
        names = ", ".join(f'"{name}"' for name in filled)
        marks = ", ".join("?" * len(filled))
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(filled.values()))

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.insert("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def domain(self, name: str, number: int, *, process: int = PROCESS) -> None:
        self.insert(
            "NVTX_EVENTS", start=-500, eventType=75, text=name, globalTid=process | 1, domainId=number
        )

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        domain: int = 1,
        thread: int = THREAD,
        end_thread: int | None = None,
        event_type: int = 59,
        registered: bool = True,
    ) -> None:
        text = {"textId": self.string(name)} if registered else {"text": name}
        self.insert(
            "NVTX_EVENTS",
            **(text | {"start": start, "end": end, "eventType": event_type, "domainId": domain}),
            globalTid=thread,
            endGlobalTid=end_thread,
        )

    def requests(self, *spans: tuple[int, int]) -> None:
        self.domain("launchgap", 1)
        for start, end in spans:
            self.range("request", start, end)

    def call(
        self, name: str, start: int, end: int, *, thread: int = THREAD, correlation: int | None = None
    ) -> int:
        """An API call; returns its correlation id."""
        if correlation is None:
            correlation = self._next_correlation
            self._next_correlation += 1
        self.insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            **{"start": start, "end": end, "globalTid": thread},
            correlationId=correlation,
            nameId=self.string(name),
        )
        return correlation

    def kernel(self, name: str, start: int, end: int, correlation: int | None, **values: Value) -> None:
        columns = ("demangledName", "shortName", "mangledName")
        names: dict[str, Value] = {column: self.string(name) for column in columns}
        self._operation("KERNEL", start, end, correlation, **(names | values))

    def memcpy(self, start: int, end: int, correlation: int | None, **values: Value) -> None:
        self._operation("MEMCPY", start, end, correlation, **({"bytes": 400, "copyKind": 1} | values))

    def memset(self, start: int, end: int, correlation: int | None, **values: Value) -> None:
        self._operation("MEMSET", start, end, correlation, **({"bytes": 16} | values))

    def replay(self, start: int, end: int, correlation: int | None, **values: Value) -> None:
        """A whole graph as the GPU ran it, which graph mode records."""
        self._operation("GRAPH_TRACE", start, end, correlation, **({"graphId": 3, "graphExecId": 4} | values))

    def launch(self, kernel: str, call: tuple[int, int], run: tuple[int, int], **values: Value) -> None:
        """A cudaLaunchKernel call and the kernel that it started."""
        start, end = run
        self.kernel(kernel, start, end, self.call("cudaLaunchKernel_v7000", *call), **values)

    def diagnostic(self, severity: int, text: str) -> None:
        labels = "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"
        if labels not in self._created:
            self._connection.execute(f"CREATE TABLE {labels} (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
            self._created.add(labels)
            rows = enumerate(("Unknown", "Info", "Warning", "Error"))
            self._connection.executemany(
                f"INSERT INTO {labels} VALUES (?, ?, ?)", [(i, n, n) for i, n in rows]
            )
        self.insert("DIAGNOSTIC_EVENT", severity=severity, text=text)

    def _operation(self, kind: str, start: int, end: int, correlation: int | None, **values: Value) -> None:
        common = {
            "start": start,
            "end": end,
            "correlationId": correlation,
            "globalPid": PROCESS,
            "streamId": 7,
        }
        self.insert(f"CUPTI_ACTIVITY_KIND_{kind}", **(common | values))
