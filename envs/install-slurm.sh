#!/usr/bin/env bash
# Install Slurm's daemons and munge on Debian or Ubuntu, for the tests that run the pipeline on a cluster of one node.
#
#   envs/install-slurm.sh           install what is missing, then prove it
#   envs/install-slurm.sh --check   prove only; changes nothing
#
# Needs root or sudo to install, neither to check. Running it again on a working host changes nothing. It configures
# and starts nothing: tests/slurm/node.py does, in a folder of its own. It is not for a host that belongs to a cluster.
set -euo pipefail

readonly programs=(munged munge slurmctld slurmd sbatch srun squeue scontrol scancel sinfo setpriv)
readonly packages=(munge slurmctld slurmd slurm-client util-linux)
readonly cluster_file=${SLURM_CONF:-/etc/slurm/slurm.conf}
export DEBIAN_FRONTEND=noninteractive
PATH=$PATH:/usr/sbin # where the daemons are, which is not on everybody's PATH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    printf 'install-slurm: %s\n' "$1" >&2
    exit 1
}

# Every program is here and the daemon loads its libraries. On failure `reason` says why.
prove() {
    local name
    for name in "${programs[@]}"; do
        reason="$name: not found; run envs/install-slurm.sh"
        command -v "$name" >/dev/null || return 1
    done
    reason="slurmctld: does not start; run slurmctld -V by hand to see why"
    version=$(slurmctld -V 2>&1) || return 1
    reason="munge: there is no user of that name to run munged as; reinstall the package munge"
    getent passwd munge >/dev/null
}

# Run a command as root; its output is shown only when it fails.
as_root() {
    local -a prefix=()
    ((EUID == 0)) || prefix=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    "${prefix[@]}" "$@" >"$scratch/root.log" 2>&1 || {
        tail -n 3 "$scratch/root.log" >&2
        fail "${*:1:2} failed: see the lines above; mend it and run again"
    }
}

require_root() {
    ((EUID == 0)) && return 0
    command -v sudo >/dev/null || fail "installing needs root: there is no sudo here; run this script as root"
    sudo -n true 2>/dev/null || sudo -v || fail "installing needs root: sudo was refused; run this script as root"
}

install_slurm() {
    [[ ! -e $cluster_file ]] || fail "$cluster_file: exists, so this host belongs to a cluster; use another host"
    command -v apt-get >/dev/null || fail "no apt-get here; install slurmctld, slurmd, Slurm's commands and munge by hand"
    require_root
    as_root apt-get update
    as_root apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${packages[@]}"
}

main() {
    case "$#:${1:-}" in
        0: | 1:--check) ;;
        *) fail "usage: envs/install-slurm.sh [--check]" ;;
    esac
    if ! prove; then
        [[ ${1:-} != --check ]] || fail "$reason"
        install_slurm
        hash -r
        prove || fail "$reason"
    fi
    printf 'OK: %s with munge\n' "$version"
}

main "$@"
