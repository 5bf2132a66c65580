"""Rules of the contract that hold for every adapter and every cloud. Copy this package unchanged."""
