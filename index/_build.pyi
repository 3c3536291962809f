"""What CMake wrote down when this was built."""

COMMIT: str  # abbreviated; "" if it was built without git
