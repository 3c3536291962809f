"""The headless engine over HTTP, for `draftline ... --engine` on other machines."""
