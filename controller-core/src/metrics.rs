//! The metrics of one process: a registry, and the prefix that all controllers share.
//!
//! `cloud_controller_*` has the label `controller`. Names that existing dashboards use (`workqueue_*`, `node_controller_*`, …) are kept and
//! registered without a prefix.

use std::{borrow::Cow, fmt};

use cloud_api_proto::AdapterError;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family},
};

pub use prometheus_client::registry::Registry;

/// The content type of the text from [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the registry in which a controller registers metrics whose names begin with `cloud_controller_`.
pub fn controller_registry<'a>(registry: &'a mut Registry, controller: &'static str) -> &'a mut Registry {
    registry
        .sub_registry_with_prefix("cloud_controller")
        .sub_registry_with_label((Cow::from("controller"), Cow::from(controller)))
}

/// Renders all metrics as OpenMetrics text.
pub fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// Numbers of vendor calls, and of calls to the adapter by outcome.
#[derive(Clone, Debug, Default)]
pub struct AdapterMetrics {
    calls: Family<CallLabels, Counter>,
    vendor_calls: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
    /// `OK`, or the reason of the error.
    outcome: &'static str,
}

impl AdapterMetrics {
    /// Registers `adapter_calls_total` and `vendor_calls_total`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Calls to the adapter, by outcome: OK or the reason of the error";
        registry.register("adapter_calls", help, metrics.calls.clone());
        let help = "Vendor calls that the adapter made for calls of this controller";
        registry.register("vendor_calls", help, metrics.vendor_calls.clone());
        metrics
    }

    pub(crate) fn count(&self, call: &'static str, outcome: Result<u32, &AdapterError>) {
        let word = outcome.map_or_else(|error| error.reason.word(), |_cost| "OK");
        self.calls.get_or_create(&CallLabels { call, outcome: word }).inc();
        self.vendor_calls.inc_by(outcome.map_or(0, u64::from));
    }
}
