"""What the contract asks of every adapter, whatever its cloud: copy it as it is."""
