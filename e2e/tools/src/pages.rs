//! Parses the pages of the documentation for tools: links, anchors, commands, and the table of contents of the book.
//!
//! It supports the Markdown that these pages use: fences, code spans, inline links, headings with `#`, comments. Pure functions: no
//! files, no processes.

mod commands;
mod lines;
mod links;
mod paths;
mod summary;

pub use commands::{Block, Command, How, STAGES, alike, blocks, says};
pub use lines::{Kind, Line, lines};
pub use links::{Change, Link, anchors, links, with_links};
pub use paths::{relative, resolve};
pub use summary::{Entry, entries};
