"""What a site serves: columns as they are, or a table that studies are about."""
