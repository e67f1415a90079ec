"""The command line, as `holdfast` and as `python -m holdfast`."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line, or say what is missing to have one.

    It is looked for and not imported: a command may do without it, but all need the extra alike.
    """
    if find_spec("cyclopts") is None:
        from holdfast.extras import sentence

        sys.exit(f"holdfast: {sentence('cyclopts', 'cli', 'the command line')}")
    from holdfast.edges import cli

    cli.main()


if __name__ == "__main__":
    main()
