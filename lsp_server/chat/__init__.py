"""Questions about code: answers with links to the places that they copy from."""
