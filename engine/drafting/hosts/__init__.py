"""Draftline's drafter inside other inference engines, which batch requests and verify the drafts.

`vllm` holds the class that vLLM loads. The rest knows no host: `batch_drafter` follows the requests
of a batch, `chain_drafter` drafts for one of them, from its prompt (`prompt_blocks`) and from texts
that all share (`shared_text`).
"""
