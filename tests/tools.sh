#!/bin/sh
# The programs that tests start and pip does not bring: checks that they are there, and installs what is
# missing where that is possible, which is as root on Debian and its kin.
set -eu

missing=""
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing="$missing prometheus"
command -v chromium >/dev/null || missing="$missing chromium"
[ -n "$missing" ] || exit 0

say="The tests need the Debian package(s)$missing"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$say. To install: apt-get install --no-install-recommends$missing, as root" >&2
    exit 1
fi

echo "$say; installing."
# The package of a server starts it; the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # several packages
apt-get install -qq --no-install-recommends $missing >/dev/null
