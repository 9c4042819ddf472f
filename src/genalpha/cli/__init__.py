"""What the commands of the command line do, one file each."""


class Refused(Exception):
    """Bad input: the command line prints the message, without a traceback, and ends with 2."""
