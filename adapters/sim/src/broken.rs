//! Adapters with one deliberate fault each. A conformance suite must detect each fault.
//!
//! The code of the correct adapter is not changed. The fault is injected in front of its services (`front`), between the runtime and the
//! driver (`driver`), or between the driver and the vendor (`hop`). Some faults change the meaning of its flags (`flags`). `memory` is the
//! state that these modules share.

#![expect(clippy::wildcard_enum_match_arm, reason = "each module handles a few of the faults")]

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
    /// Creates an adapter whose fault is not injected yet.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, memory: Arc::default() }
    }

    /// Returns the flags as this adapter interprets them.
    #[must_use]
    pub fn flags(&self, options: &Options) -> Options {
        self.memory.notes().callers_prove = flags::callers_prove(options);
        flags::change(self.fault, options.clone())
    }

    /// Creates the driver, and logs a warning about the fault. `config`: see [`Options::config`].
    pub async fn driver(&self, mut cloud: SimOptions, options: &Options) -> anyhow::Result<BrokenDriver> {
        let Self { fault, memory } = self;
        warn!(fault = %fault, "THIS ADAPTER HAS A DELIBERATE FAULT, TO TEST THE CONFORMANCE SUITE: {}", fault.sentence());
        flags::follow(*fault, options)?;
        if *fault == Fault::TrustsStaleReads {
            cloud.client_tokens = ClientTokens::Unknown;
        }
        if matches!(fault, Fault::FansOutThrottledBatch | Fault::RetriesCreates) {
            cloud.endpoint = Some(Hop::start(*fault, cloud.endpoint().await?).await?);
        }
        Ok(BrokenDriver::new(*fault, cloud.driver().await?, Arc::clone(memory)))
    }

    /// Wraps the services in the layer in front of them.
    #[must_use]
    pub fn front(&self, services: Routes) -> Routes {
        Front::new(self.fault, Arc::clone(&self.memory), services).routes()
    }
}
