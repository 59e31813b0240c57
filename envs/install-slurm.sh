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
PATH=$PATH:/usr/sbin # where the daemons are, which is not on everybody's PATH

here=${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}
# shellcheck source=envs/installer.sh
source "${here:-./}installer.sh"

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
