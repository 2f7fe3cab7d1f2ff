#!/usr/bin/env python3
"""Forwards records whose value contains the pattern, and filters out the others."""

import sys

pattern = sys.argv[1]
for key in sys.stdin:
    value = next(sys.stdin)
    if pattern in value.removeprefix("value: "):
        sys.stdout.write(f"forward\n{key}{value}")
    else:
        sys.stdout.write("filter\n")
