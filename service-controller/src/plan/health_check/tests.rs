//! Health checks by traffic policy, mode and other annotations.

use super::*;
use crate::plan::{
    annotations::{keys::PREFIX, settings::Defaults, wishes},
    service::Transport,
};

const LOCAL: Traffic = Traffic::Local { health_check_node_port: 32_000 };

/// Annotations without their common prefix.
type Said = &'static [(&'static str, &'static str)];

/// Returns the health check in the form `http 32000 /healthz`, and the setting that requires HTTP.
fn probed(traffic: Traffic, said: Said) -> Result<String, String> {
    let annotations =
        said.iter().map(|(key, value)| (format!("{PREFIX}health-check.{key}"), (*value).to_owned()));
    let port = Port::plain(Transport::Tcp, 80, 30_080);
    let service =
        Service { traffic, annotations: annotations.collect(), ports: vec![port], ..Service::default() };
    let (wishes, _none) = wishes(&service, &Defaults::default());
    let probe = probe(&service, &wishes.health)
        .map_err(|refusals| refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let check = probe.check.unwrap();
    let kind = check.kind().as_str_name().trim_start_matches("KIND_").to_lowercase();
    let port = check.port.map(|port| format!(" {port}")).unwrap_or_default();
    Ok(format!("{kind}{port} {}", check.path).trim_end().to_owned())
}

#[test]
fn health_check_mode_and_overrides() {
    let rows: [(Traffic, Said, &str); 15] = [
        (Traffic::Cluster, &[], "tcp"),
        (LOCAL, &[], "http 32000 /healthz"),
        (LOCAL, &[("mode", "auto")], "http 32000 /healthz"),
        (LOCAL, &[("mode", "local")], "http 32000 /healthz"),
        (LOCAL, &[("mode", "node-port")], "tcp"),
        (Traffic::Cluster, &[("mode", "kube-proxy")], "http 10256 /healthz"),
        (LOCAL, &[("mode", "kube-proxy")], "http 10256 /healthz"),
        (Traffic::Cluster, &[("protocol", "http")], "http /"),
        (Traffic::Cluster, &[("protocol", "http"), ("path", "/ready")], "http /ready"),
        (Traffic::Cluster, &[("protocol", "http"), ("port", "30080")], "http 30080 /"),
        (Traffic::Cluster, &[("port", "10256")], "tcp 10256"),
        (LOCAL, &[("path", "/ready")], "http 32000 /ready"),
        (LOCAL, &[("protocol", "tcp")], "tcp 32000"),
        (LOCAL, &[("enabled", "false"), ("path", "/ready")], "none"),
        (LOCAL, &[("enabled", "true")], "http 32000 /healthz"),
    ];
    for (traffic, said, want) in rows {
        assert_eq!(probed(traffic, said).as_deref(), Ok(want), "{traffic:?} {said:?}");
    }
}

#[test]
fn contradictory_health_check_settings_are_refused() {
    let faults = [
        probed(Traffic::Cluster, &[("mode", "local")]),
        probed(Traffic::Local { health_check_node_port: 0 }, &[("mode", "local")]),
        probed(Traffic::Cluster, &[("path", "/x"), ("interval", "5s"), ("timeout", "6s")]),
    ];
    insta::assert_snapshot!(faults.map(Result::unwrap_err).join("\n"), @r"
    annotation lb.cloudadapter.dev/health-check.mode: the Service has no health check node port: set spec.externalTrafficPolicy to Local, or another mode
    annotation lb.cloudadapter.dev/health-check.mode: the Service has no health check node port: set spec.externalTrafficPolicy to Local, or another mode
    annotation lb.cloudadapter.dev/health-check.path: only HTTP has paths: set lb.cloudadapter.dev/health-check.protocol to http, or remove the annotation
    annotation lb.cloudadapter.dev/health-check.timeout: 6s is longer than the interval, 5s: reduce the timeout or increase the interval
    ");
}
