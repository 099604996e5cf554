"""NVFlare as an engine: its server under the coordinator, its client under every site, and no jobs."""
