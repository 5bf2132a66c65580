//! Who may talk to a cloud adapter: TLS, identities, and what each identity may do.
//!
//! All cryptography and all parsing of tokens is left to well-known crates; what is here decides what is asked of them.

mod caller;
pub mod reload;

pub use self::caller::{Caller, Role};
