import numpy as np
import pytest

from fedns.core.clients import on_client
from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import WIRE_PRECISIONS, Discloses, Message, Payload, batch_on_wire, wire


class Gradient(Message):
    gradient: Payload = wire("features")


def test_a_batch_with_nan_is_refused():
    bad = Gradient(np.array([[1.0, 2.0], [3.0, np.nan]]))
    with pytest.raises(MessageError, match="field 'gradient' of Gradient holds NaN"):
        batch_on_wire(bad, WIRE_PRECISIONS["float64"])


def test_types_that_cannot_travel_are_refused():
    with pytest.raises(ConfigError, match="messages cannot carry complex128"):
        wire("features", dtype="complex128")


def test_a_field_may_say_what_it_tells_in_one_of_a_few_words_only():
    assert wire("features", discloses="gradient").metadata["wire"].discloses is Discloses.GRADIENT
    with pytest.raises(ConfigError, match=r"discloses must be one of nothing, schema, .*, rows, got 'secrets'"):
        wire("features", discloses="secrets")


def test_a_handler_whose_reply_does_not_say_what_it_tells_is_refused():
    class Silent(Message):
        loud: Payload = wire(discloses="loss")
        silent: Payload = wire("features")

    with pytest.raises(ConfigError, match=r"field 'silent' of Silent must say what it tells: wire\(..., discloses="):
        on_client(Gradient, Silent)
