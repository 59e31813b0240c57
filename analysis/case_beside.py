"""What the explanations of a case take from beside its traces: the latency record and the calibration."""

from __future__ import annotations

from pathlib import Path

from analysis.calibration import Calibration, read_calibration, shipped_calibration
from analysis.case_explained import Beside
from analysis.report_checks import check_record
from contract import LatencyRecord, LaunchgapError, read_record


def read_beside(case: str, latency: Path | None, calibration: Path | None) -> Beside:
    """Read both files; of one that is not there or cannot be used the reason is kept in its place.

    Without a calibration of the host's own, the one that launchgap ships is taken.
    """
    return Beside(_latency(case, latency), _calibration(calibration or shipped_calibration()))


def _latency(case: str, path: Path | None) -> LatencyRecord | str:
    if path is None:
        return "there is no latency record to compare with; give --latency latency.json"
    try:
        record = check_record(path, read_record(path, "latency"), LatencyRecord)
    except LaunchgapError as error:
        return _told(error, path)
    if record["case"]["name"] != case:
        return f"{path.name} is of {record['case']['name']}; give the latency record of the same case"
    return record


def _calibration(path: Path) -> Calibration | str:
    try:
        return read_calibration(path)
    except LaunchgapError as error:
        return _told(error, path)


def _told(error: LaunchgapError, path: Path) -> str:
    """An error's sentence without the folders of this machine, for it goes into a report."""
    return str(error).replace(str(path), path.name)
