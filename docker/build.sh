#!/usr/bin/env bash
# docker/build.sh [BASE]: builds the images tenure-member and tenure-node. What they need is fetched first, by pip and by
# Tenure itself, as requirements-run.lock pins it; the images are built without a network.
# PYTHON is what this is done with (default: python3; it has Tenure), TAG names the images (default: latest).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(dirname "$here")
base=${1:-python:3.13-slim-bookworm}
python=${PYTHON:-python3}
tag=${TAG:-latest}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
version=$(docker run --rm --network none --entrypoint python3 "$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$context/project" "$project"
"$python" -m pip download --quiet --require-hashes --only-binary :all: --python-version "$version" \
    --dest "$context/wheels" --requirement "$project/requirements-run.lock"
TENURE_CACHE_DIR=$context/cache "$python" -c 'from tenure.members import fetch_jar; fetch_jar()'
cp "$here/Dockerfile" "$here/healthy" "$context"
for image in member node; do
    docker build --build-arg "BASE=$base" --target "$image" --tag "tenure-$image:$tag" "$context"
done
