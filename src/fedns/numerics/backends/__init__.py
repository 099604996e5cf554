"""Choosing a backend, and backends that are no device's: Cox's, and those that stand around another."""
