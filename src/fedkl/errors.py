"""The one exception that stands for a mistake a user can make and mend."""


class UserError(Exception):
    """Something the user asked for cannot be done; the message is one clear sentence.

    The command line prints it on stderr and exits with code 2. Every other exception is a
    defect of ours and ends in a traceback.
    """


class StalledError(Exception):
    """Training goes nowhere: no update reaches the model any more. What was reached is saved.

    The command line prints it on stderr and exits with code 3, because there is nothing wrong with
    what the user typed.
    """
