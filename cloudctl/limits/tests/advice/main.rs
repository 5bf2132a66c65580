//! `cloudctl limits simulate`: its figures, its page in the documentation, and that its advice works when it is followed.

mod figures;
mod page;
mod properties;
