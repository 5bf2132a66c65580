//! The argument lists of all servers.

use crate::cluster::layout::{
    API_PORT, CLOUD_PORT, FABRIC_ADDRESS, Layout, Node, PODS, PRIVATE_DIRS, SERVICES,
};

const ETCD: &str = "http://127.0.0.1:2379";

pub(crate) fn etcd(layout: &Layout) -> Vec<String> {
    vec![
        format!("--data-dir={}", layout.etcd().display()),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

pub(crate) fn apiserver(layout: &Layout) -> Vec<String> {
    let pki = |file| layout.pki(file).display().to_string();
    vec![
        format!("--etcd-servers={ETCD}"),
        format!("--bind-address={FABRIC_ADDRESS}"),
        format!("--advertise-address={FABRIC_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--token-auth-file={}", pki("tokens.csv")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
        format!("--service-account-key-file={}", pki("service-accounts.key")),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--allow-privileged".to_owned(),
        "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("kubelet-client.key")),
        // No kube-proxy runs in the fabric, so the API server calls webhooks at the addresses of their pods.
        "--enable-aggregator-routing".to_owned(),
    ]
}

pub(crate) fn controller_manager(layout: &Layout) -> Vec<String> {
    vec![
        kubeconfig(layout, "kube-controller-manager"),
        "--use-service-account-credentials".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--service-account-private-key-file={}", layout.pki("service-accounts.key").display()),
        format!("--root-ca-file={}", layout.pki("ca.crt").display()),
        "--allocate-node-cidrs".to_owned(),
        format!("--cluster-cidr={PODS}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--configure-cloud-routes=false".to_owned(),
        format!("--flex-volume-plugin-dir={}", layout.home.join("volume-plugins").display()),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}

pub(crate) fn scheduler(layout: &Layout) -> Vec<String> {
    vec![
        kubeconfig(layout, "kube-scheduler"),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}

pub(crate) fn kubelet(layout: &Layout, node: Node) -> Vec<String> {
    let home = layout.node(node);
    vec![
        format!("--config={}", home.join("kubelet.json").display()),
        kubeconfig(layout, &node.to_string()),
        "--root-dir=/var/lib/kubelet".to_owned(),
        format!("--cert-dir={}", home.join("pki").display()),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", node.address()),
        "--cloud-provider=external".to_owned(),
    ]
}

pub(crate) fn proxy(layout: &Layout, node: Node) -> Vec<String> {
    vec![
        kubeconfig(layout, "kube-proxy"),
        "--proxy-mode=nftables".to_owned(),
        format!("--hostname-override={node}"),
        format!("--cluster-cidr={PODS}"),
        // The conntrack table belongs to the host, so kube-proxy must not resize it.
        "--conntrack-max-per-core=0".to_owned(),
    ]
}

pub(crate) fn cloud() -> Vec<String> {
    vec![format!("--listen={FABRIC_ADDRESS}:{CLOUD_PORT}")]
}

/// The shell script that keeps a node's mount namespace: it mounts [`PRIVATE_DIRS`], creates the ready file, and sleeps.
pub(crate) fn mounts(layout: &Layout, node: Node) -> String {
    let bind = |dir: &str| {
        format!("mount --bind {} {dir}", quoted(&layout.private_dir(node, dir).to_string_lossy()))
    };
    let mut lines = vec!["set -e".to_owned()];
    lines.extend(PRIVATE_DIRS.map(bind));
    lines.push(format!(": >{}", quoted(&layout.mounted(node).to_string_lossy())));
    lines.push("exec sleep infinity".to_owned());
    lines.join("\n")
}

fn kubeconfig(layout: &Layout, who: &str) -> String {
    format!("--kubeconfig={}", layout.kubeconfig_of(who).display())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout { home: "/c".into() }
    }

    #[test]
    fn kubelet_has_an_external_provider_and_its_own_address() {
        let args = kubelet(&layout(), Node(2));
        for wanted in
            ["--cloud-provider=external", "--node-ip=10.90.0.12", "--kubeconfig=/c/node-2.kubeconfig"]
        {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}: {args:?}");
        }
    }

    #[test]
    fn pod_cidrs_are_allocated_but_no_routes() {
        let args = controller_manager(&layout());
        for wanted in
            ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--configure-cloud-routes=false"]
        {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}: {args:?}");
        }
    }

    #[test]
    fn node_directories_are_mounted_over_those_of_the_host() {
        let script = mounts(&Layout { home: "/it's".into() }, Node(1));
        assert!(
            script.contains("mount --bind '/it'\\''s/node-1/private/var-lib-kubelet' /var/lib/kubelet\n"),
            "{script}"
        );
        assert!(script.ends_with("exec sleep infinity"));
    }
}
