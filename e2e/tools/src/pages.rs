//! Parses the pages of the documentation for tools: blocks of code, commands, and the table of contents of the book. Pure functions: no
//! files, no processes.

mod commands;
mod fences;
mod summary;

pub use commands::{Block, Command, How, STAGES, alike, blocks, says};
pub use fences::{Fence, fences};
pub use summary::{SUMMARY, listed, resolve};
