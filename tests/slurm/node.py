"""A Slurm cluster of one node, run by root: munged, slurmctld and slurmd, in one folder and gone with it.

Its one GPU is a stand-in, the file /dev/null: Slurm counts it and hands it out like any other. It claims more
cores and memory than the host may have, so that what the profile asks for fits. There is no accounting.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.pipeline.conftest import wait_for

_START_S = 30.0
_STOP_S = 20.0

_SLURM_CONF = """\
ClusterName=launchgap
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MinJobAge=3600
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 Gres=gpu:1
PartitionName=debug Nodes={host} Default=YES
PartitionName=gpu Nodes={host}
"""
# The plugin's job steps drop SLURM_CONF from the environment of srun, which then would look in /etc alone.
_SRUN = """\
#!/bin/sh
SLURM_CONF={folder}/slurm.conf exec {program} "$@"
"""
# The plugin asks less and less often, and so learns of a short job's end long after it. Here its question,
# the only one by name, is answered as soon as one more job has ended.
_SQUEUE = """\
#!/bin/bash
[[ $* == *--states=all*--name* ]] || exec {program} "$@"
known=$(cat "{folder}/ended" 2>/dev/null || echo 0)
for ((i = 0; i < 80; i++)); do
    answer=$({program} "$@") || exit
    ended=$(grep -cE "COMPLETED|TIMEOUT|FAILED|CANCELLED" <<<"$answer")
    ((ended == known)) || break
    sleep 0.5
done
echo "$ended" >"{folder}/ended"
printf '%s\n' "$answer"
"""
_GRES_CONF = "AutoDetect=off\nNodeName={host} Name=gpu File=/dev/null\n"


class SlurmNode:
    """Starts the daemons on entry; on exit ends jobs and daemons and removes the folder, whatever happened.

    Raises:
        AssertionError: a daemon does not come up, or a command of Slurm fails.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="launchgap-slurm-"))
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to talk to this node."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        """What one of Slurm's commands says."""
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self) -> list[dict[str, str]]:
        """Every job so far, finished ones included, as `scontrol` shows them."""
        lines = self.run("scontrol", "show", "job", "--oneliner", "--details").splitlines()
        words = [[word.partition("=") for word in line.split()] for line in lines if "JobId=" in line]
        return [{key: value for key, _, value in each} for each in words]

    def leftovers(self) -> list[int]:
        """Process ids of daemons, job steps and programs of jobs that still run."""
        mark = os.fsencode(f"SLURM_CONF={self.folder}/")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def __enter__(self) -> SlurmNode:
        try:
            self._configure()
            self._start_daemons()
        except BaseException as error:
            error.add_note(self._log())
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_jobs()
        finally:
            self._remove()

    def _configure(self) -> None:
        self.folder.chmod(0o755)  # munged runs as a user of its own
        for name in ("munge", "state", "spool", "bin"):
            (self.folder / name).mkdir()
        ports = _free_ports(2)
        fields = {
            "host": socket.gethostname().partition(".")[0],
            "folder": str(self.folder),
            "controller_port": str(ports[0]),
            "node_port": str(ports[1]),
        }
        (self.folder / "slurm.conf").write_text(_SLURM_CONF.format(**fields))
        (self.folder / "gres.conf").write_text(_GRES_CONF.format(**fields))
        key = self.folder / "munge/key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for path in (key, key.parent):
            shutil.chown(path, "munge", "munge")
        for name, script in (("srun", _SRUN), ("squeue", _SQUEUE)):
            command = self.folder / "bin" / name
            command.write_text(script.format(program=shutil.which(name), folder=self.folder))
            command.chmod(0o755)

    def _start_daemons(self) -> None:
        munge = self.folder / "munge"
        as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--pdeathsig=TERM"]
        files = [f"--{name}={munge / name.removesuffix('-file')}" for name in _MUNGE_FILES]
        self._start(*as_munge, "munged", "--foreground", *files)
        wait_for((munge / "socket").exists, "munged", _START_S)
        self._start("setpriv", "--pdeathsig=TERM", "slurmctld", "-D")
        self._start("setpriv", "--pdeathsig=TERM", "slurmd", "-D")
        wait_for(lambda: "idle" in self._states(), "an idle node", _START_S)

    def _start(self, *command: str) -> None:
        """Start a daemon in the foreground; it ends with this process, however this one ends."""
        with (self.folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log, cwd=self.folder)
        self._daemons.append(process)

    def _states(self) -> str:
        command = ["sinfo", "--noheader", "--format=%T"]
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    def _log(self) -> str:
        log = self.folder / "daemons.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def _end_jobs(self) -> None:
        if self.run("squeue", "--noheader", "--format=%i"):
            self.run("scancel", "--user=root", "--signal=KILL", "--full")
            self.run("scancel", "--user=root")
            wait_for(lambda: not self.run("squeue", "--noheader"), "the jobs to end", _STOP_S)

    def _remove(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for(lambda: not self.leftovers(), "the last processes to end", _STOP_S)
        shutil.rmtree(self.folder)


_MUNGE_FILES = ("key-file", "socket", "pid-file", "log-file", "seed-file")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
