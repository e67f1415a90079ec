"""The command line, as `holdfast` and as `python -m holdfast`."""

import sys


def main() -> None:
    """Run the command line, or say what is missing to have one."""
    try:
        from holdfast.edges import cli
    except ModuleNotFoundError as error:
        if error.name != "cyclopts":
            raise
        sys.exit("holdfast: the command line needs an extra: pip install 'holdfast[server]'")
    cli.main()


if __name__ == "__main__":
    main()
