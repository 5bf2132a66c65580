//! Flags of the classic cloud controller manager that a controller does not have: each is answered with where it went, so that a
//! manifest can be carried over flag by flag.

use std::ffi::OsString;

const NO_CALLERS: &str = "metrics and probes are read only and tell nothing secret: limit who reaches --http-address and --secure-port by a NetworkPolicy; \
                          --status-pages says who reads the others";
const PAGES: &str = "pages are served over HTTP/1.1: leave it out";
const ONE_CERTIFICATE: &str = "there is one certificate for all names: set --tls-cert-file";
const CIPHERS: &str = "what is known to be weak is not spoken: set --tls-min-version, or leave it out";
const ADAPTER: &str = "belongs to the adapter: choose the cloud by which one --adapter-endpoint leads to";
const NO_WEBHOOKS: &str = "there are no webhooks: leave it out";
const LEFT_OUT: &str = "has no effect here: leave it out";
const ROUTES: &str = "belongs to route-controller";
const NODES: &str = "belongs to node-controller";
const SERVICES: &str = "belongs to service-controller";

/// By name; those that a controller has are not looked up.
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
    ("configure-cloud-routes", "routes are laid where route-controller runs: run it, or do not"),
    ("contention-profiling", LEFT_OUT),
    ("controller-start-interval", LEFT_OUT),
    ("controllers", "each controller is a program of its own: run those that you want"),
    ("disable-http2-serving", PAGES),
    (
        "enable-leader-migration",
        "stop the classic cloud controller manager before this one starts: leave it out",
    ),
    ("external-cloud-volume-plugin", "volumes are the concern of CSI drivers: leave it out"),
    ("feature-gates", LEFT_OUT),
    ("http2-max-streams-per-connection", PAGES),
    ("kube-api-content-type", LEFT_OUT),
    ("leader-elect-resource-lock", "Leases are the only kind there is: leave it out"),
    (
        "leader-migration-config",
        "stop the classic cloud controller manager before this one starts: leave it out",
    ),
    ("log-flush-frequency", "lines are written at once: leave it out"),
    ("log-text-info-buffer-size", "lines are written at once: leave it out"),
    ("log-text-split-stream", "all lines go to standard error: leave it out"),
    ("logging-format", "set --log-format to text, json or auto"),
    ("master", "name the API server in the file of --kubeconfig"),
    ("min-resync-period", "watches are compared without it: leave it out"),
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

/// Whole families of flags.
const FAMILIES: &[(&str, &str)] = &[
    ("authentication-", NO_CALLERS),
    ("authorization-", NO_CALLERS),
    ("requestheader-", NO_CALLERS),
    ("webhook", NO_WEBHOOKS),
];

/// What is to be said of those arguments that are such flags, and that `known` does not know; each once, as it was written.
pub(super) fn named(arguments: &[OsString], known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
        let Some((written, flag)) = long(argument).or_else(|| short(argument)) else { continue };
        if let Some(place) = place(flag).filter(|_| !known(flag)) {
            let fault = format!("unexpected argument '{written}': {place}");
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    faults
}

/// `--flag`, or `--flag=value`: what was written without the value, and its name.
fn long(argument: &str) -> Option<(&str, &str)> {
    let written = argument.split('=').next().unwrap_or(argument);
    Some((written, written.strip_prefix("--")?))
}

/// The one flag of the classic controller that has a short form: `-v 2`, `-v=2`, `-v2`. The same of it.
fn short(argument: &str) -> Option<(&str, &str)> {
    let value = argument.strip_prefix("-v")?;
    let is_level =
        value.is_empty() || value.starts_with('=') || value.bytes().all(|byte| byte.is_ascii_digit());
    is_level.then_some(("-v", "v"))
}

fn place(flag: &str) -> Option<&'static str> {
    let named = MOVED.iter().find(|(name, _)| *name == flag);
    let family = || FAMILIES.iter().find(|(prefix, _)| flag.starts_with(prefix));
    named.or_else(family).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_has_each_flag_once() {
        assert!(MOVED.is_sorted_by(|(a, _), (b, _)| a < b), "{MOVED:?}");
    }

    #[test]
    fn flags_of_the_classic_controller_are_answered_with_where_they_went() {
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
        let said = named(&arguments, |flag| flag == "concurrent-node-syncs");
        let flags: Vec<&str> = said.iter().filter_map(|line| line.split('\'').nth(1)).collect();
        let wanted =
            ["--cloud-provider", "--tls-cipher-suites", "--v", "--webhook-secure-port", "--cluster-cidr"];
        assert_eq!(flags, wanted);
        assert!(said.iter().any(|line| line.contains("route-controller")), "{said:?}");
    }

    #[test]
    fn how_much_is_logged_is_answered_with_one_dash_too() {
        for (given, written) in
            [("-v", "-v"), ("-v=4", "-v"), ("-v4", "-v"), ("--v", "--v"), ("--v=4", "--v")]
        {
            let said = named(&["controller", given, "-x", "-", "-vx"].map(OsString::from), |_| false);
            let wanted = format!("unexpected argument '{written}': set --log-level, such as debug");
            assert_eq!(said, [wanted], "{given}");
        }
    }
}
