#!/usr/bin/env bash
# Install Nsight Systems (nsys) on Debian or Ubuntu, and prove that it can turn a capture into a report.
#
#   envs/install-nsys.sh           install what is missing, then prove it
#   envs/install-nsys.sh --check   prove only; changes nothing
#
# Needs root or sudo to install, neither to check. Running it again on a working host changes nothing.
# Environment: PYTHON (default python3) is the traced program; LAUNCHGAP_NSYS names the one nsys to use;
# LAUNCHGAP_OS_RELEASE (default /etc/os-release) says which system this is; LAUNCHGAP_OPT (default /opt/nvidia)
# is where NVIDIA's own packages put Nsight tools that are on no PATH.
set -euo pipefail

readonly os_release=${LAUNCHGAP_OS_RELEASE:-/etc/os-release}
readonly opt_folder=${LAUNCHGAP_OPT:-/opt/nvidia}
readonly python=${PYTHON:-python3}
readonly package=nsight-systems
readonly sources_file=/etc/apt/sources.list.d/launchgap-non-free.sources
readonly capture_timeout_s=60

here=${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}
# shellcheck source=envs/installer.sh
source "${here:-./}installer.sh"

# Path of nsys: the one named, else the one on PATH, else the newest that NVIDIA's packages keep off the PATH.
find_nsys() {
    command -v "${LAUNCHGAP_NSYS:-nsys}" && return 0
    [[ -z ${LAUNCHGAP_NSYS:-} ]] || return 1
    local candidates
    candidates=$(
        compgen -G "$opt_folder/nsight-systems*/*/bin/nsys" || true
        compgen -G "$opt_folder/nsight-compute/*/host/target-linux-*/nsys" || true
    )
    [[ -n $candidates ]] && sort --version-sort <<<"$candidates" | tail -n 1
}

# Trace a tiny program; succeeds when a finished report appears. On failure `reason` says why.
# A host without the importer leaves only a .qdstrm stream, and nsys may still exit 0. While other captures start
# on the same host, nsys 2022.4 now and then loses its own agent and leaves nothing: that is tried again.
prove() {
    reason="${LAUNCHGAP_NSYS:-nsys}: not found; run envs/install-nsys.sh, or install NVIDIA's nsight-systems-cli"
    nsys=$(find_nsys) || return 1
    reason="$nsys: made no .nsys-rep from a capture; run envs/install-nsys.sh to install or repair it"
    local attempt
    for attempt in 1 2 3; do
        timeout "$capture_timeout_s" "$nsys" profile --trace=nvtx --sample=none --cpuctxsw=none \
            --output="$scratch/proof$attempt" "$python" -c 'print("traced")' >"$scratch/proof.log" 2>&1 &&
            [[ -s $scratch/proof$attempt.nsys-rep ]] && return 0
        [[ ! -e $scratch/proof$attempt.qdstrm ]] || return 1
    done
    return 1
}

report_success() {
    local version
    version=$("$nsys" --version | grep --only-matching --max-count=1 -E '[0-9]{4}(\.[0-9]+)+')
    printf 'OK: nsys %s (%s) turns a capture into a .nsys-rep\n' "$version" "$nsys"
}

update_lists() {
    try_as_root apt-get update && return 0
    [[ $# -eq 0 ]] || try_as_root rm -f "$1"
    fail "apt-get update failed: no network or a broken source, see the lines above; mend it and run again"
}

has_candidate() {
    [[ $(apt-cache policy "$package") =~ Candidate:\ [^\(] ]]
}

# The Signed-By path of a source that apt names as FILE:N: the Nth stanza of a .sources file, or line N of a .list.
source_key() {
    local file=${1%:*} number=${1##*:} entry
    [[ -r $file ]] || return 0
    if [[ $file == *.sources ]]; then
        entry=$(grep -v '^#' "$file" | awk -v RS= -v number="$number" 'NR == number')
    else
        entry=$(sed -n "${number}p" "$file")
    fi
    sed -n -E 's|.*[Ss]igned-[Bb]y[:=] *(/[^] ]*).*|\1|p' <<<"$entry"
}

# Debian keeps nsys in non-free and a library that it depends on partly in contrib; both are seldom enabled.
# A file of our own leaves the user's sources alone. It repeats their mirror and key, because apt refuses one
# mirror under two keys.
enable_non_free() {
    local found uri suite entry key
    # shellcheck disable=SC2016  # apt, not the shell, fills in these fields
    found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(SOURCESENTRY)' \
        'Created-By: Packages' 'Origin: Debian' "Codename: $1" 'Component: main')
    read -r uri suite entry <<<"$found"
    [[ -n $uri ]] || fail "apt: no Debian source for '$1' found; add one and run again"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: contrib non-free\n' "$uri" "$suite" >"$scratch/sources"
    key=$(source_key "$entry")
    [[ -z $key ]] || printf 'Signed-By: %s\n' "$key" >>"$scratch/sources"
    try_as_root install -m 0644 "$scratch/sources" "$sources_file" || fail "$sources_file: cannot be written"
    update_lists "$sources_file"
}

# NVIDIA's repository is named after Ubuntu releases; Debian takes the one nearest to it.
nvidia_commands() {
    local release=ubuntu2204
    [[ $1 != ubuntu ]] || release=ubuntu$(system_field VERSION_ID | tr -d .)
    cat <<COMMANDS
As root, from NVIDIA's own repository:
  curl -fsSL https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64/7fa2af80.pub |
    gpg --dearmor -o /usr/share/keyrings/nvidia-devtools.gpg
  echo "deb [signed-by=/usr/share/keyrings/nvidia-devtools.gpg]" \\
    "https://developer.download.nvidia.com/devtools/repos/$release/$(dpkg --print-architecture) /" \\
    > /etc/apt/sources.list.d/nvidia-devtools.list
  apt-get update && apt-get install -y nsight-systems-cli
COMMANDS
}

# Debian's package brings a driver library of its own, which must not be laid over a driver that NVIDIA's
# installer or a container runtime put here.
would_shadow_driver() {
    local library='lib(cuda1|nvidia-tesla-[^ ]*cuda1)'
    [[ $(ldconfig -p) == *libcuda.so.1* ]] &&
        [[ $(apt-get install --simulate --no-install-recommends "$package" 2>/dev/null) =~ Inst\ $library ]]
}

install_package() {
    try_as_root apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$package" ||
        fail "apt-get install $package failed: see the lines above; mend it and run again"
}

# Debian splits the tool over two folders, and nsys looks for its importer beside its target folder only.
link_host_folder() {
    local host target link
    while IFS= read -r host; do
        while IFS= read -r target; do
            link=$(dirname "$target")/$(basename "$host")
            [[ -e $link ]] || try_as_root ln -s "$host" "$link" || fail "$link: cannot be made; run as root"
        done < <(find /usr/lib -maxdepth 3 -type d -path '*/nsight-systems/target-linux-*')
    done < <(find /usr/lib -maxdepth 3 -type d -path '*/nsight-systems/host-linux-*')
}

# Fields of os-release, read in a subshell so that its other variables stay out of this script.
system_field() {
    # shellcheck disable=SC1090  # the file is the running system's
    (. "$os_release" && printf '%s' "${!1:-}")
}

install_nsys() {
    [[ -r $os_release ]] || fail "$os_release: not readable, so this system is unknown; install nsys by hand"
    local system
    system=$(system_field ID)
    [[ $system == debian || $system == ubuntu ]] ||
        fail "${system:-unknown system}: only Debian and Ubuntu are known here; install nsys from NVIDIA's site"
    require_root
    update_lists
    has_candidate || [[ $system != debian ]] || enable_non_free "$(system_field VERSION_CODENAME)"
    if ! has_candidate; then
        nvidia_commands "$system" >&2
        fail "$package: no such package in this system's sources; use NVIDIA's repository, see above"
    fi
    if would_shadow_driver; then
        nvidia_commands "$system" >&2
        fail "$package: would lay a second driver library over this host's; use NVIDIA's repository, see above"
    fi
    install_package
    link_host_folder
}

main() {
    case "$#:${1:-}" in
        0: | 1:--check) ;;
        *) fail "usage: envs/install-nsys.sh [--check]" ;;
    esac
    "$python" -c '' 2>/dev/null || fail "$python: does not run, so nothing can be traced; set PYTHON to a Python"
    if ! prove; then
        [[ ${1:-} != --check ]] || fail "$reason"
        [[ -z ${LAUNCHGAP_NSYS:-} ]] || fail "$LAUNCHGAP_NSYS: does not work; correct or unset LAUNCHGAP_NSYS"
        install_nsys
        hash -r
        if ! prove; then
            grep -iE 'importer|failed|not found' "$scratch/proof.log" | tail -n 3 >&2 || true
            fail "$reason"
        fi
    fi
    report_success
}

main "$@"
