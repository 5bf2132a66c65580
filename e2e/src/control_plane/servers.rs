//! The files, ports and arguments of etcd and kube-apiserver.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use e2e_tools::Tools;

use crate::audit;
use crate::control_plane::APISERVER;
use crate::kubeconfig::Server;
use crate::pki::Pki;
use crate::process::Launch;

/// The range of cluster IPs. No client ever sends a packet to them.
const SERVICE_CIDR: &str = "10.96.0.0/16,fd00:96::/112";

/// Makes Go's runtime collect garbage less often. This takes a quarter less CPU time, but more memory.
const GC_ENVIRONMENT: [(&str, &str); 1] = [("GOGC", "400")];

/// The settings that stay the same when the servers restart.
#[derive(Debug)]
pub(super) struct Launches {
    pub(super) etcd: Launch,
    pub(super) etcd_url: String,
    pub(super) apiserver: Launch,
    pub(super) pki: Pki,
    pub(super) audit_log: PathBuf,
    port: u16,
}

impl Launches {
    /// Creates keys, the audit policy and ports. Does not start the servers.
    pub(super) fn prepare(tools: &Tools, dir: &Path) -> anyhow::Result<Self> {
        let pki = Pki::make(&dir.join("pki"))?;
        let (client, peer, port) =
            (test_support::ports::take()?, test_support::ports::take()?, test_support::ports::take()?);
        let policy = dir.join("audit-policy.json");
        fs::write(&policy, audit::policy().to_string()).context("cannot write the audit policy")?;
        let files =
            ApiserverFiles { pki: &pki, policy, audit_log: dir.join("audit.log"), certs: dir.join("pki") };
        let etcd_url = format!("http://127.0.0.1:{client}");
        let launch = |name: &str, program: &Path, args: Vec<String>| Launch {
            name: name.to_owned(),
            program: program.to_path_buf(),
            args,
            env: BTreeMap::from(GC_ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            log_dir: dir.join("logs"),
        };
        let etcd = launch("etcd", &tools.etcd.path, etcd_args(&dir.join("etcd"), &etcd_url, peer));
        let args = apiserver_args(&files, &etcd_url, port);
        let apiserver = launch(APISERVER, &tools.kube_apiserver.path, args);
        let audit_log = files.audit_log;
        Ok(Self { etcd, etcd_url, apiserver, pki, audit_log, port })
    }

    pub(super) fn server(&self) -> Server {
        Server { url: format!("https://127.0.0.1:{}", self.port), ca: self.pki.ca.clone() }
    }
}

fn etcd_args(data: &Path, client: &str, peer: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer}");
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data is not needed after the test, so etcd does not sync it to the disk.
        "--unsafe-no-fsync".to_owned(),
    ]
}

struct ApiserverFiles<'a> {
    pki: &'a Pki,
    policy: PathBuf,
    audit_log: PathBuf,
    /// The folder for certificates that the API server would generate.
    certs: PathBuf,
}

fn apiserver_args(files: &ApiserverFiles<'_>, etcd: &str, port: u16) -> Vec<String> {
    let pki = files.pki;
    let paths = [
        ("cert-dir", &files.certs),
        ("tls-cert-file", &pki.server.certificate),
        ("tls-private-key-file", &pki.server.key),
        ("client-ca-file", &pki.ca),
        ("service-account-key-file", &pki.service_accounts.public),
        ("service-account-signing-key-file", &pki.service_accounts.private),
        ("audit-policy-file", &files.policy),
        ("audit-log-path", &files.audit_log),
    ];
    let paths = paths.map(|(flag, path)| format!("--{flag}={}", path.display()));
    let values = [
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // The API server refuses a loopback address as the endpoint of `kubernetes.default`, which the tests do not use.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--service-cluster-ip-range={SERVICE_CIDR}"),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        // In blocking mode, the server writes the line before it answers, so that a reader of the log sees all answered requests.
        "--audit-log-mode=blocking".to_owned(),
        // In megabytes (default 100). Large, because the tests do not read rotated files.
        "--audit-log-maxsize=100000".to_owned(),
        "--allow-privileged".to_owned(),
    ];
    paths.into_iter().chain(values).collect()
}
