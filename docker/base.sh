#!/usr/bin/env bash
# docker/base.sh [IMAGE]: a base image made on this machine, for where none can be pulled: Debian with Python.
# Needs root and debootstrap, which knows where Debian is; MIRROR names another place.
set -euo pipefail
image=${1:-tenure-base}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" ${MIRROR:+"$MIRROR"}
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | docker import --change 'ENV LANG=C.UTF-8' - "$image"
