//! The whole controller.
