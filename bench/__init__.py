"""The benchmark: Holdfast measured so that nobody need take our word.

What is compared is run in one run, round by round in turn, and told as medians of ratios with their
range. Durability is never turned down.
"""

import warnings

warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")  # of the packaged PostgreSQL
