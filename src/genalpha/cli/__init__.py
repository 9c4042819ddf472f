"""The command line. Each command has its own file."""


class Refused(Exception):
    """Bad input. The command line prints the message without a traceback and exits with code 2."""
