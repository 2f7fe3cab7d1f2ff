#!/usr/bin/env bash
# docker/base.sh [IMAGE]: a base image made on this machine, for where none can be pulled: Debian with Python.
# Needs root, debootstrap, and a Debian mirror (MIRROR).
set -euo pipefail
image=${1:-tenure-base}
mirror=${MIRROR:-http://deb.debian.org/debian}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" "$mirror"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | docker import --change 'ENV LANG=C.UTF-8' - "$image"
