//! Objects on which a step of a plan depends.

use crate::driver::{Fault, VendorError};

/// An object on which a step depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object exists, with this ID.
    Known(String),
    /// An earlier step of the plan creates the object.
    Coming,
}

impl Part {
    /// Returns the ID of the object.
    pub fn id(&self) -> Result<&str, VendorError> {
        match self {
            Self::Known(id) => Ok(id),
            Self::Coming => Err(not_created()),
        }
    }
}

/// Returns the object that a step needs, or an error if an earlier step has not created the object yet.
pub fn created<T>(known: Option<&T>) -> Result<&T, VendorError> {
    known.ok_or_else(not_created)
}

fn not_created() -> VendorError {
    VendorError::new(Fault::Nonsense, "the step needs an object that an earlier step creates")
}
