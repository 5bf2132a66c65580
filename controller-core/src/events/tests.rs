//! Events as they reach the API server.
