"""What sites say of their tables, what stands in the way, and what they agree on."""
