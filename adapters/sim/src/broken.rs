//! Adapters that are wrong in one way each, on purpose: what a conformance suite must find.
//!
//! The good adapter stays as it is. What is wrong stands around it: before its services (`front`), between the runtime and the
//! driver (`driver`), between the driver and the vendor (`hop`), or in what its flags say (`flags`). What the places tell each other
//! is in `memory`.

#![expect(clippy::wildcard_enum_match_arm, reason = "each place knows a few of the faults")]

mod driver;
mod fault;
mod flags;
mod front;
mod hop;
mod memory;

use std::sync::Arc;

use cloud_adapter::Options;
use tonic::service::Routes;
use tracing::warn;

pub use self::{driver::BrokenDriver, fault::Fault};
use self::{front::Front, hop::Hop, memory::Memory};
use crate::{ClientTokens, SimOptions};

/// An adapter with one fault.
#[derive(Clone, Debug)]
pub struct Broken {
    fault: Fault,
    memory: Arc<Memory>,
}

impl Broken {
    /// Nothing is broken yet.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, memory: Arc::default() }
    }

    /// The flags as this adapter takes them.
    #[must_use]
    pub fn flags(&self, options: &Options) -> Options {
        self.memory.notes().callers_prove = flags::callers_prove(options);
        flags::change(self.fault, options.clone())
    }

    /// Makes the driver. Says loudly what it is part of. `config`: as in [`Options::config`].
    ///
    /// # Errors
    /// Those of [`SimOptions::driver`]; no loopback port for what stands before the cloud.
    pub async fn driver(&self, mut cloud: SimOptions, options: &Options) -> anyhow::Result<BrokenDriver> {
        let Self { fault, memory } = self;
        warn!(fault = %fault, "THIS ADAPTER IS BROKEN ON PURPOSE, FOR TESTS OF TESTS: {}", fault.sentence());
        flags::follow(*fault, options)?;
        if *fault == Fault::TrustsStaleReads {
            cloud.client_tokens = ClientTokens::Unknown;
        }
        if matches!(fault, Fault::FansOutThrottledBatch | Fault::RetriesCreates) {
            cloud.endpoint = Some(Hop::start(*fault, cloud.endpoint().await?).await?);
        }
        Ok(BrokenDriver::new(*fault, cloud.driver().await?, Arc::clone(memory)))
    }

    /// What stands before the services.
    #[must_use]
    pub fn front(&self, services: Routes) -> Routes {
        Front::new(self.fault, Arc::clone(&self.memory), services).routes()
    }
}
