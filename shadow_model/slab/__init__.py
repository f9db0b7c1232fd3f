"""The slab core: a chunk-recurrent model whose every state is carried by three primitives."""
