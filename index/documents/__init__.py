"""A library of documents: parsing, chunking, keyword and vector search."""
