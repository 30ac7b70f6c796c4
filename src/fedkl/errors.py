"""The one exception that stands for a mistake a user can make and mend."""


class UserError(Exception):
    """Something the user asked for cannot be done; the message is one clear sentence.

    The command line prints it on stderr and exits with code 2. Every other exception is a
    defect of ours and ends in a traceback.
    """
