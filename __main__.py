"""``perdure`` and ``python -m perdure``: the command line."""


def main() -> None:
    """Run the command that the process's arguments name."""
    from .actors.cli.commands import app

    app()


if __name__ == "__main__":
    main()
