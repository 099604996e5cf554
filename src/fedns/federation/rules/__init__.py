"""The rules of a site's owner, a class for each: its limits, what it refuses and in which words, and what it means."""
