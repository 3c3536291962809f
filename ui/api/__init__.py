"""The HTTP API in OpenAI's protocol."""
