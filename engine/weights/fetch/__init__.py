"""Downloads: the hub, package indexes, checksums."""
