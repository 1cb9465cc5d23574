#!/bin/sh
# Check for the given programs, which the tests start and pip does not provide. Missing ones are installed with apt-get, as
# root on Debian and its derivatives: after confirmation on a terminal, without it elsewhere, such as in CI.
# APT_INSTALL=no disables the installation.
set -eu

has() {
    command -v "$1" >/dev/null && { [ "$1" != prometheus ] || command -v promtool >/dev/null; }
}

missing=""
for program in "$@"; do
    has "$program" || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

install="apt-get install --no-install-recommends$missing"
echo "The tests need the Debian package(s)$missing." >&2
refuse() {
    echo "$1 To install: $install, as root" >&2
    exit 1
}
[ "${APT_INSTALL:-yes}" != no ] || refuse "APT_INSTALL=no disables their installation."
command -v apt-get >/dev/null || refuse "apt-get is not available."
[ "$(id -u)" -eq 0 ] || refuse "Only root can install them."
if [ -t 0 ] && [ -t 2 ]; then
    printf 'Run %s now? [y/N] ' "$install" >&2
    read -r answer
    case $answer in [yY]*) ;; *) refuse "Nothing was installed." ;; esac
fi

echo "Running $install" >&2
# Keep Debian from starting the installed servers; the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | install -m 755 /dev/stdin "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # several packages
apt-get install -qq --no-install-recommends $missing >/dev/null
