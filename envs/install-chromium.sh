#!/usr/bin/env bash
# Install headless Chromium and its driver on Debian or Ubuntu, for the tests that open the report in a browser.
#
#   envs/install-chromium.sh           install what is missing, then prove it
#   envs/install-chromium.sh --check   prove only; changes nothing
#
# Needs root or sudo to install, neither to check. Running it again on a working host changes nothing.
# Environment: LAUNCHGAP_CHROMIUM and LAUNCHGAP_CHROMEDRIVER name another browser and its driver.
set -euo pipefail

readonly start_timeout_s=60

here=${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}
# shellcheck source=envs/installer.sh
source "${here:-./}installer.sh"

# First of the names that is a program here.
first_of() {
    local name
    for name in "$@"; do
        command -v "$name" && return 0
    done
    return 1
}

# Open a page whose script changes it; succeeds when the change is seen. On failure `reason` says why.
prove() {
    reason="chromium: not found; run envs/install-chromium.sh, or name one in LAUNCHGAP_CHROMIUM"
    local -a names=(chromium chromium-browser google-chrome)
    [[ -z ${LAUNCHGAP_CHROMIUM:-} ]] || names=("$LAUNCHGAP_CHROMIUM")
    browser=$(first_of "${names[@]}") || return 1
    reason="chromedriver: not found; run envs/install-chromium.sh, or name one in LAUNCHGAP_CHROMEDRIVER"
    command -v "${LAUNCHGAP_CHROMEDRIVER:-chromedriver}" >/dev/null || return 1
    reason="$browser: shows no page when started headless; run it by hand to see why"
    printf '<p></p><script>document.querySelector("p").append("it " + "works")</script>' >"$scratch/page.html"
    timeout "$start_timeout_s" "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --user-data-dir="$scratch/profile" --dump-dom "file://$scratch/page.html" >"$scratch/dom" 2>/dev/null || return 1
    grep --quiet 'it works' "$scratch/dom"
}

report_success() {
    printf 'OK: %s shows pages headless\n' "$("$browser" --version 2>/dev/null | head -n 1)"
}

has_candidate() {
    [[ $(apt-cache policy "$1") =~ Candidate:\ [^\(] ]]
}

install_chromium() {
    command -v apt-get >/dev/null ||
        fail "no apt-get here; install Chromium and chromedriver by hand and name them, see the top of this script"
    require_root
    as_root apt-get update
    # Ubuntu has them under older names, and as snaps: the proof below says whether they start here.
    local -a packages=(chromium chromium-driver)
    has_candidate chromium-driver || packages=(chromium-browser chromium-chromedriver)
    as_root apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${packages[@]}"
}

main() {
    case "$#:${1:-}" in
        0: | 1:--check) ;;
        *) fail "usage: envs/install-chromium.sh [--check]" ;;
    esac
    if ! prove; then
        [[ ${1:-} != --check ]] || fail "$reason"
        [[ -z ${LAUNCHGAP_CHROMIUM:-} ]] || fail "$LAUNCHGAP_CHROMIUM: does not work; correct or unset LAUNCHGAP_CHROMIUM"
        install_chromium
        hash -r
        prove || fail "$reason"
    fi
    report_success
}

main "$@"
