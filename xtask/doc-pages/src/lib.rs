//! What tools look for in the pages of the documentation: links, anchors, commands, and the contents of the book.
//!
//! It reads the Markdown that these pages are written in, and not all that there is: fences, code spans, inline links, headings with `#`,
//! comments. Pure: no files, no processes.

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
