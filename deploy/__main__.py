"""`python -m deploy` is the `causal` command."""

import sys

from deploy.cli import main

sys.exit(main())
