#!/bin/sh
# Ask a real registry what tests/support/registry.py is asked: REGISTRY names a folder for its repository, SOURCE
# the repository's address. It takes git, npm, curl and half a minute the first time.
set -eu

version=9ff0e3f4531f9b02bfad391d780a27db69f0245b
folder=$REGISTRY
bun=$folder/npm/node_modules/.bin/bun

prepare() {
    rm -rf "$folder"
    git init --quiet "$folder/source"
    npm install --silent --prefix "$folder/npm" bun@1.3.14
    (cd "$folder/npm/node_modules/bun" && node install.js 2>/dev/null) # where npm runs no scripts
    cd "$folder/source"
    git fetch --quiet --depth 1 "${SOURCE:-https://github.com/chesterkuo/OpenKnowledgePulse}" $version
    git checkout --quiet FETCH_HEAD
    # Only what the server needs, and from the registry of packages that npm is set to.
    sed -i 's/"workspaces": \[/"workspaces": ["packages\/sdk", "registry"], "others": [/' package.json
    rm bunfig.toml
    "$bun" install --silent --production --omit=optional --registry "$(npm config get registry)"
    cd packages/sdk
    "$bun" build src/index.ts --outdir dist --target bun \
        --external @huggingface/transformers --external mammoth --external pdf-parse >/dev/null
    touch "$folder/ready"
}

[ -e "$folder/ready" ] || (prepare)
export KP_PORT="${PORT:-3911}" REGISTRY_URL="http://localhost:${PORT:-3911}"
(cd "$folder/source/registry" && exec "$bun" src/index.ts) &
trap 'kill $!' EXIT
curl --silent --fail --output /dev/null --retry 30 --retry-connrefused --retry-delay 1 "$REGISTRY_URL/health"
kill -0 $! # it, and not another one on its port
"$@" tests/unit/knowledgepulse_curator/contributions/test_registry_client.py
