//! Translates health checks to Octavia's health monitors. The functions have no side effects.

use cloud_adapter::{
    driver::VendorError,
    kit::{invalid, port_number, whole_seconds},
};
use cloud_api_proto::v1alpha1::{HealthCheck, health_check::Kind};

use crate::{
    api::requests::{MonitorSettings, NewMonitor},
    port::{Port, Transport},
};

/// Defaults: times in seconds, and numbers of consecutive probes.
const INTERVAL: u32 = 10;
const TIMEOUT: u32 = 5;
const HEALTHY: u32 = 2;
const UNHEALTHY: u32 = 3;
/// Type of a monitor that probes the member's own port by UDP.
pub(super) const OF_UDP: &str = "UDP-CONNECT";
/// Maximum number of consecutive probes. Source: Octavia, `MAX_HM_RETRIES`.
const RETRIES_MAX: u32 = 10;

/// Returns the port that is probed. `None`: the member's own port.
pub(super) fn port(check: &HealthCheck) -> Result<Option<u16>, VendorError> {
    if check.kind() == Kind::None {
        return Ok(None);
    }
    check.port.map(|number| port_number("spec.health_check.port", number)).transpose()
}

/// Returns the health monitor of a port's pool. A separate health check port is probed by TCP, even if the member uses another protocol.
pub(super) fn monitor(check: &HealthCheck, of: Port) -> Result<Option<NewMonitor>, VendorError> {
    let kind = match (check.kind(), check.port, of.transport) {
        (Kind::None, _, _) => return Ok(None),
        (Kind::Http, _, _) => "HTTP",
        (Kind::Unspecified | Kind::Tcp, Some(_), _)
        | (Kind::Unspecified | Kind::Tcp, None, Transport::Tcp) => "TCP",
        (Kind::Unspecified | Kind::Tcp, None, Transport::Udp) => OF_UDP,
        (Kind::Unspecified | Kind::Tcp, None, Transport::Sctp) => "SCTP",
    };
    let field = |name: &str| format!("spec.health_check.{name}");
    let interval = whole_seconds(&field("interval"), check.interval)?;
    let timeout = whole_seconds(&field("timeout"), check.timeout)?;
    // If only one of the two times is set, the default of the other time depends on it.
    let delay = interval.unwrap_or_else(|| timeout.unwrap_or_default().max(INTERVAL));
    let timeout = timeout.unwrap_or(TIMEOUT.min(delay));
    if timeout > delay {
        return Err(invalid(
            field("timeout"),
            format!("{timeout} s is longer than the interval of {delay} s"),
        ));
    }
    let settings = MonitorSettings {
        delay,
        timeout,
        max_retries: threshold(&field("healthy_threshold"), check.healthy_threshold, HEALTHY)?,
        max_retries_down: threshold(&field("unhealthy_threshold"), check.unhealthy_threshold, UNHEALTHY)?,
        url_path: (kind == "HTTP").then(|| check.path.clone()),
    };
    Ok(Some(NewMonitor { name: of.name(), kind, settings }))
}

fn threshold(field: &str, asked: Option<u32>, default: u32) -> Result<u32, VendorError> {
    let asked = asked.unwrap_or(default);
    if (1..=RETRIES_MAX).contains(&asked) {
        return Ok(asked);
    }
    Err(invalid(field, format!("invalid threshold {asked}: use 1 to {RETRIES_MAX}")))
}
