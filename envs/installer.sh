# What the installers beside this file share; they source it. $scratch is a folder that goes when they end.
# shellcheck shell=bash
export DEBIAN_FRONTEND=noninteractive

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    local name=${0##*/}
    printf '%s: %s\n' "${name%.sh}" "$1" >&2
    exit 1
}

require_root() {
    ((EUID == 0)) && return 0
    command -v sudo >/dev/null || fail "installing needs root: there is no sudo here; run this script as root"
    sudo -n true 2>/dev/null || sudo -v || fail "installing needs root: sudo was refused; run this script as root"
}

# Run a command as root; the end of its output is shown only when it fails.
try_as_root() {
    local -a prefix=()
    ((EUID == 0)) || prefix=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    "${prefix[@]}" "$@" >"$scratch/root.log" 2>&1 || {
        tail -n 3 "$scratch/root.log" >&2
        return 1
    }
}

# The same where nothing goes on without it.
as_root() {
    try_as_root "$@" || fail "${*:1:2} failed: see the lines above; mend it and run again"
}
