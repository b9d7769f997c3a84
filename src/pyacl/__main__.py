"""``python -m pyacl`` is the command ``pyacl``."""

import sys

from pyacl.cli import main

sys.exit(main())
