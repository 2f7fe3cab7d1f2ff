#!/usr/bin/env bash
# docker/engine.sh FOLDER: a Docker Engine of its own, where none runs: as root, without networks of its own, listening at
# FOLDER/docker.sock alone. Containers use the host's network. Ends with SIGTERM to the process in FOLDER/pid.
set -euo pipefail
folder=$1
mkdir -p "$folder"
exec dockerd \
    --host "unix://$folder/docker.sock" \
    --data-root "$folder/data" \
    --exec-root "$folder/exec" \
    --pidfile "$folder/pid" \
    --bridge=none --iptables=false --ip6tables=false
