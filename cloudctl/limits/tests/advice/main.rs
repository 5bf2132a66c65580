//! Tests of `cloudctl limits simulate`: its figures, its page in the documentation, and the effect of following its advice.

mod figures;
mod page;
mod properties;
