"""`python -m tenure.cli`, for where the command itself is not installed."""

import sys

from tenure.cli.app import main

sys.exit(main())
