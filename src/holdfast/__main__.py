"""The command line, run as `holdfast` or as `python -m holdfast`."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, or exit with a message if its extra is not installed.

    `find_spec` checks for the package without importing it: some commands never import it, but all of them
    require the extra.
    """
    if find_spec("cyclopts") is None:
        # late: this must run without the packages of the command line
        from holdfast.extras import sentence

        sys.exit(f"holdfast: {sentence('cyclopts', 'cli', 'the command line')}")
    # late: it needs those packages
    from holdfast.edges import cli

    cli.main()


if __name__ == "__main__":
    main()
