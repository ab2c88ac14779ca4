"""OPC UA: the server of OPC 40100-1 Machine Vision."""
