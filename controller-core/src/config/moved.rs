//! Flags of the former cloud controller manager that a controller does not have. The error for each flag names its replacement, so that a
//! manifest can be migrated flag by flag.

use std::ffi::OsString;

const NO_CALLERS: &str = "metrics and probes are read-only and contain no secrets: restrict access \
to --http-address and --secure-port with a NetworkPolicy; --status-pages restricts the other pages";
const PAGES: &str = "pages are served over HTTP/1.1: leave it out";
const ONE_CERTIFICATE: &str = "there is one certificate for all names: set --tls-cert-file";
const CIPHERS: &str = "weak cipher suites are never used: set --tls-min-version, or leave it out";
const ADAPTER: &str = "belongs to the adapter: --adapter-endpoint selects the adapter and with it the cloud";
const NO_WEBHOOKS: &str = "there are no webhooks: leave it out";
const LEFT_OUT: &str = "has no effect here: leave it out";
const ROUTES: &str = "belongs to route-controller";
const NODES: &str = "belongs to node-controller";
const SERVICES: &str = "belongs to service-controller";

/// Replacements by flag name. Flags that a controller has are not looked up here.
const MOVED: &[(&str, &str)] = &[
    ("allocate-node-cidrs", "kube-controller-manager allocates the CIDRs of nodes: leave it out"),
    ("allow-untagged-cloud", LEFT_OUT),
    ("cidr-allocator-type", "kube-controller-manager allocates the CIDRs of nodes: leave it out"),
    ("client-ca-file", NO_CALLERS),
    ("cloud-config", ADAPTER),
    ("cloud-provider", ADAPTER),
    ("cluster-cidr", ROUTES),
    ("concurrent-node-status-updates", NODES),
    ("concurrent-node-syncs", NODES),
    ("concurrent-service-syncs", SERVICES),
    ("configure-cloud-routes", "routes are created if route-controller runs: leave it out"),
    ("contention-profiling", LEFT_OUT),
    ("controller-start-interval", LEFT_OUT),
    ("controllers", "each controller is a separate program: run those that you want"),
    ("disable-http2-serving", PAGES),
    (
        "enable-leader-migration",
        "stop the former cloud controller manager before this controller starts: leave it out",
    ),
    ("external-cloud-volume-plugin", "volumes are handled by CSI drivers: leave it out"),
    ("feature-gates", LEFT_OUT),
    ("http2-max-streams-per-connection", PAGES),
    ("kube-api-content-type", LEFT_OUT),
    ("leader-elect-resource-lock", "Leases are the only supported lock: leave it out"),
    (
        "leader-migration-config",
        "stop the former cloud controller manager before this controller starts: leave it out",
    ),
    ("log-flush-frequency", "log lines are not buffered: leave it out"),
    ("log-text-info-buffer-size", "log lines are not buffered: leave it out"),
    ("log-text-split-stream", "all lines go to standard error: leave it out"),
    ("logging-format", "set --log-format to text, json or auto"),
    ("master", "set the API server's address in the file of --kubeconfig"),
    ("min-resync-period", "watches do not need a periodic resync: leave it out"),
    ("node-monitor-period", NODES),
    ("node-status-update-frequency", NODES),
    ("node-sync-period", LEFT_OUT),
    ("permit-address-sharing", LEFT_OUT),
    ("permit-port-sharing", LEFT_OUT),
    ("profiling", LEFT_OUT),
    ("route-reconciliation-period", ROUTES),
    ("tls-cipher-suites", CIPHERS),
    ("tls-curve-preferences", CIPHERS),
    ("tls-sni-cert-key", ONE_CERTIFICATE),
    ("use-service-account-credentials", "each controller has a ServiceAccount of its own: leave it out"),
    ("v", "set --log-level, such as debug"),
    ("vmodule", "set --log-level, such as info,node_controller=debug"),
];

/// Families of flags with a common prefix.
const FAMILIES: &[(&str, &str)] = &[
    ("authentication-", NO_CALLERS),
    ("authorization-", NO_CALLERS),
    ("requestheader-", NO_CALLERS),
    ("webhook", NO_WEBHOOKS),
];

/// Returns one error for each argument that is a flag of the former cloud controller manager and for which `known` is false. The error
/// quotes the argument as it was written.
pub(super) fn named(arguments: &[OsString], known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
        let Some((written, flag)) = long(argument).or_else(|| short(argument)) else { continue };
        if let Some(text) = replacement(flag).filter(|_| !known(flag)) {
            let fault = format!("unexpected argument '{written}': {text}");
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    faults
}

/// Splits `--flag` or `--flag=value`. Returns the text without the value, and the flag's name.
fn long(argument: &str) -> Option<(&str, &str)> {
    let written = argument.split('=').next().unwrap_or(argument);
    Some((written, written.strip_prefix("--")?))
}

/// Parses `-v`, the only short flag of the former cloud controller manager: `-v 2`, `-v=2`, `-v2`.
fn short(argument: &str) -> Option<(&str, &str)> {
    let value = argument.strip_prefix("-v")?;
    let is_level =
        value.is_empty() || value.starts_with('=') || value.bytes().all(|byte| byte.is_ascii_digit());
    is_level.then_some(("-v", "v"))
}

fn replacement(flag: &str) -> Option<&'static str> {
    let named = MOVED.iter().find(|(name, _)| *name == flag);
    let family = || FAMILIES.iter().find(|(prefix, _)| flag.starts_with(prefix));
    named.or_else(family).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_has_each_flag_once() {
        assert!(MOVED.is_sorted_by(|(a, _), (b, _)| a < b), "{MOVED:?}");
    }

    #[test]
    fn flags_of_the_former_ccm_are_explained() {
        let arguments = [
            "controller",
            "--cloud-provider=openstack",
            "--tls-cipher-suites",
            "TLS_AES_128_GCM_SHA256",
            "--v=2",
            "--webhook-secure-port=1",
            "--cloud-provider=again",
            "--no-such-flag",
            "--cluster-cidr=10.0.0.0/8",
            "--concurrent-node-syncs=3",
        ]
        .map(OsString::from);
        let found = named(&arguments, |flag| flag == "concurrent-node-syncs");
        let flags: Vec<&str> = found.iter().filter_map(|line| line.split('\'').nth(1)).collect();
        let wanted =
            ["--cloud-provider", "--tls-cipher-suites", "--v", "--webhook-secure-port", "--cluster-cidr"];
        assert_eq!(flags, wanted);
        assert!(found.iter().any(|line| line.contains("route-controller")), "{found:?}");
    }

    // Behaviour: P26
    #[test]
    fn the_short_verbosity_flag_is_explained() {
        for (given, written) in
            [("-v", "-v"), ("-v=4", "-v"), ("-v4", "-v"), ("--v", "--v"), ("--v=4", "--v")]
        {
            let found = named(&["controller", given, "-x", "-", "-vx"].map(OsString::from), |_| false);
            let wanted = format!("unexpected argument '{written}': set --log-level, such as debug");
            assert_eq!(found, [wanted], "{given}");
        }
    }
}
