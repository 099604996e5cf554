"""FedNS on ten simulated clients, start to finish."""

import fedns

X, y = fedns.load("breast_cancer")
shards = fedns.split(X, y, clients=10, how="iid", seed=0)
problem = fedns.Problem(loss=fedns.Logistic(), penalty=fedns.Ridge(1e-3))
history = fedns.simulate(fedns.FedNS(sketch=fedns.SRHT(17)), problem, shards, rounds=20, tol=1e-10, seed=0)

for number, gap, sent in zip(history.round, history.suboptimality, history.uplink_bytes, strict=True):
    print(f"round {number:2d}   gap {gap:.1e}   {sent} bytes sent by all clients")
print(history.stop_reason)
