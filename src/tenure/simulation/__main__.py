"""`python -m tenure.simulation`."""

import sys

from tenure.simulation.command import main

sys.exit(main())
