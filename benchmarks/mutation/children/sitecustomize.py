"""Python imports this when it starts, in every process that a test starts while lines are watched."""

from benchmarks.mutation.tracing import watch_child

watch_child()
