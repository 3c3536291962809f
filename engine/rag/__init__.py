"""Questions about documents and summaries of them."""
