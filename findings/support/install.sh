# For every finding: a temporary folder to work in, and `quietly` for what it only prepares.
# A finding ends with status 1 if what it has seen changed, and with 2 if it could not be run.
work=$(mktemp -d)
cleanup() {
    [ -z "${broker:-}" ] || { kill "$broker"; wait "$broker"; } 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
support=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$work"

quietly() {
    "$@" >"$work/log" 2>&1 && return
    echo "failed: $*" >&2
    tail -n 20 "$work/log" >&2
    exit 2
}

# jars GROUP:ARTIFACT:VERSION FOLDER: download an artifact of Maven Central with what it needs.
jars() {
    IFS=: read -r group artifact version <<<"$1"
    cat >"$2.xml" <<XML
<project>
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
XML
    quietly mvn -q -B -f "$2.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/$2"
}

# packages REQUIREMENT...: install packages of PyPI for venv/bin/python.
packages() {
    quietly python3 -m venv venv
    quietly venv/bin/pip install "$@"
}
