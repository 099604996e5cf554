"""What a backend says when it cannot do what it is asked; this package knows nothing of the errors above it."""


class BackendError(ValueError):
    """Something that the chosen device cannot do, or a device that is not there: one sentence with the fix."""

    exit_status = 2  # of a command that it ends
