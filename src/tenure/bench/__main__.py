"""`python -m tenure.bench`: one measurement in a process of its own calls this, too."""

import sys

from tenure.bench.command import main

sys.exit(main(sys.argv[1:]))
