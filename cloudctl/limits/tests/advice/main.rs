//! `cloudctl limits simulate`: its figures, its page, and that its advice holds when it is taken.

mod figures;
mod page;
mod properties;
