//! Kubeconfig files: one for the administrator, one for each ServiceAccount that a process runs as.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use crate::pki::CertificateFiles;

/// Where the API server is and how to know it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) ca: PathBuf,
}

/// Who asks.
#[derive(Debug)]
pub(crate) enum Credential<'a> {
    Certificate(&'a CertificateFiles),
    Token(&'a str),
}

/// Writes a kubeconfig for somebody at home in this namespace. It is JSON, which is YAML too.
pub(crate) fn write(
    path: &Path,
    server: &Server,
    namespace: &str,
    credential: &Credential<'_>,
) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&render(server, namespace, credential))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn render(server: &Server, namespace: &str, credential: &Credential<'_>) -> Value {
    let user = match credential {
        Credential::Certificate(files) => {
            json!({ "client-certificate": files.certificate, "client-key": files.key })
        }
        Credential::Token(token) => json!({ "token": token }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "e2e", "cluster": { "server": server.url, "certificate-authority": server.ca } }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "user", "namespace": namespace } }],
        "current-context": "e2e",
    })
}
