//! LIF: how a process starts, reloads its files and ends.

mod config;
mod connections;
mod shutdown;

use super::{BALANCERS, CREATE, INSTANCES, START};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t3("LIF-01", "graceful-shutdown-drains-and-hands-over", run!(shutdown::graceful))
        .section("common.proto, REASON_DRAINING; replicas.md, When the leader changes")
        .needs(&[Need::Replicas, Need::Proxy, Need::Hook(Hook::StopAdapter), START, CREATE, BALANCERS])
        .within(120),
    Check::t1("LIF-02", "max-connection-age-does-not-lose-a-call", run!(connections::age))
        .section("reference/driver.md, Server settings")
        .needs(&[Need::Secured, Need::Param("timings.connectionAge")])
        .within(600),
    Check::t3("LIF-03", "invalid-config-reload-keeps-the-old-one", run!(config::invalid))
        .section("adapter_service.proto, WatchStatusResponse.config_revision")
        .needs(&[Need::Hook(Hook::BreakConfig), Need::Hook(Hook::MendConfig), INSTANCES])
        .within(300),
];
