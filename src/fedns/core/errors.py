"""The errors a caller is meant to read: one sentence that names the thing and the fix."""


class FednsError(ValueError):
    """Base of every error this package raises on purpose."""


class DataError(FednsError):
    """A data set, file, split or column that cannot be used as it is."""


class ConfigError(FednsError):
    """A method, parameter or setting that does not exist or is out of range."""


class MessageError(FednsError):
    """A message that does not decode to what its kind promises."""


class NonFiniteError(MessageError):
    """A message that holds NaN or infinity: what a diverging method sends before anything else goes wrong."""
