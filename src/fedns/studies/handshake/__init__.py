"""The handshake: descriptions of tables, what stands in the way of a fit, and what sites agree on."""
