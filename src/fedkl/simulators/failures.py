"""What other people's environments do wrong, in a sentence."""

from __future__ import annotations

from fedkl.core.errors import UserError


def in_a_line(error: BaseException) -> str:
    """What an exception says, in a line that begins with its kind.

    Example:
        >>> in_a_line(ValueError("no\\nlegs"))
        'ValueError: no legs'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failed(who: str, error: Exception, step: int) -> UserError:
    """An environment's mistake, with the moment at which it happened.

    Args:
        who: the environment.
        error: what it raised, or what we say of what it returned.
        step: of the episode; 0: its start.
    """
    when = f"in step {step} of an episode" if step else "when it was reset"
    if isinstance(error, UserError):
        return UserError(f"{error}, {when}")
    if isinstance(error, ValueError) and "values to unpack" in str(error):
        return UserError(
            f"{who} returned another number of values than Gymnasium's do ({error}), {when}: it "
            "may be made for an older Gym"
        )
    return UserError(f"{who} raised {in_a_line(error)}, {when}")
