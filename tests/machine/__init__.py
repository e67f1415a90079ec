"""All engines and a model of the contract, driven by the same random steps."""
