"""InfiniBand and RoCE adapters: their ports, their subnets, and the fabrics that they make up."""
