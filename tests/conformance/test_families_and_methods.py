"""Every method minimises every kind of loss; what a loss has not is refused by name."""

from dataclasses import replace

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

import fedns
from fedns.methods import METHODS

pytestmark = pytest.mark.slow
# Without a line search a sketch may step too far, and so may any step on Huber's loss where many rows are beyond its
# threshold; what is asked here is whether a method finds its way about the loss.
CAREFUL = {"fedns": fedns.FedNS(fedns.SRHT(64), line_search=fedns.ArmijoSearch())}
LOSSES = [fedns.Probit(), fedns.NegativeBinomial(0.5), fedns.Gamma(), fedns.Huber(2.0), fedns.Softmax(3)]


def shards_for(loss):
    """Rows with targets that the loss takes and that depend on them."""
    shards = make_shards()
    x = dense_features(shards)
    random = np.random.default_rng(0)
    z = x @ random.normal(size=(x.shape[1], 3)) / np.sqrt(x.shape[1])
    kinds = (np.where(z[:, 0] > random.normal(size=len(z)), 1.0, -1.0), random.poisson(np.exp(z[:, 0])), np.exp(z[:, 0]))
    targets = {"negative_binomial": kinds[1], "gamma": kinds[2], "huber": z[:, 0], "softmax": z.argmax(axis=1)}
    return replace(shards, targets=targets.get(loss.name, kinds[0]).astype(float))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_improves_it_in_whatever_chunks(name, loss):
    shards, problem = shards_for(loss), fedns.Problem(loss, fedns.Ridge(0.05), intercept=True)
    method = CAREFUL.get(name) or METHODS[name]()
    histories = [fedns.simulate(method, problem, shards, rounds=3, chunk_clients=chunk) for chunk in (2, 1000)]
    assert histories[0].objective[-1] < histories[0].objective[0]
    assert histories[0].coefficients.tobytes() == histories[1].coefficients.tobytes()
