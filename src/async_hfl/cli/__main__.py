"""`python -m async_hfl.cli`."""

import sys

from async_hfl.cli.main import main

sys.exit(main())
