"""Errors of the system that may pass when the same is tried again."""

import errno

_ERRNO = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT}
)


def is_transient(error: BaseException) -> bool:
    """Tell whether an error may pass; a full disk or an absent file does not."""
    return isinstance(error, OSError) and error.errno in _ERRNO
