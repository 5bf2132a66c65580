//! The contract between the cloud controllers and a cloud adapter, and nothing else.
//!
//! The `.proto` files in `proto/` are the normative text; the committed code in [`v1alpha1`] is generated from these files. [`error`] turns
//! gRPC errors into typed reasons and back. [`features`] says which capabilities a load balancer needs.

pub mod error;
pub mod features;

/// The package `cloudadapter.v1alpha1`, generated as described in `codegen/`.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    reason = "generated code"
)]
pub mod v1alpha1 {
    include!("generated/cloudadapter.v1alpha1.rs");
}

pub use error::{AdapterError, Reason};

/// The domain of `ErrorInfo` and the prefix of this project's annotations, defined only here.
pub const DOMAIN: &str = "cloudadapter.dev";

/// The contract as a protobuf `FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptor.bin");
