"""Raw material becoming ids, shards, bins and batches."""
