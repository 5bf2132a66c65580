//! Keys, certificates and tokens, created once for each cluster. Each identity has one static token. This is safe because no other host can
//! reach the cluster.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::Context;

use crate::cluster::files;
use crate::cluster::layout::{API_SERVICE, FABRIC_ADDRESS, Layout, NODES_MAX, Node};
use crate::cluster::run::run;

/// The identities with tokens: file, user, groups.
fn identities() -> Vec<(String, String, &'static str)> {
    let system = |name: &str| (name.to_owned(), format!("system:{name}"), "");
    let mut all = vec![("admin".to_owned(), "admin".to_owned(), "system:masters")];
    all.extend(["kube-controller-manager", "kube-scheduler", "kube-proxy"].map(system));
    // The list contains all possible nodes, because the API server reads the file only once.
    let node = |node: Node| (node.to_string(), format!("system:node:{node}"), "system:nodes");
    all.extend(Node::up_to(NODES_MAX).map(node));
    all
}

/// Creates the files that are missing.
pub(crate) fn make(layout: &Layout) -> anyhow::Result<()> {
    let folder = layout.pki("");
    let done = layout.pki("done");
    if done.is_file() {
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650";
    openssl(&folder, &format!("req -x509 {key} -subj /CN=cluster-ca -keyout ca.key -out ca.crt"))?;
    openssl(&folder, "genrsa -out service-accounts.key 2048")?;
    issue(&folder, "apiserver", "/CN=kube-apiserver", Some(&apiserver_names()))?;
    issue(&folder, "kubelet-client", "/O=system:masters/CN=kubelet-client", None)?;
    let mut tokens = String::new();
    for (file, user, groups) in identities() {
        let token = token()?;
        writeln!(tokens, "{}", token_line(&token, &user, groups)).context("cannot write into memory")?;
        let kubeconfig = files::kubeconfig(&layout.pki("ca.crt"), &token).to_string();
        write(&layout.kubeconfig_of(&file), &kubeconfig)?;
    }
    write(&layout.pki("tokens.csv"), &tokens)?;
    // This file is written last, so that the next run repeats an interrupted creation.
    write(&done, "")
}

fn issue(folder: &Path, name: &str, subject: &str, names: Option<&str>) -> anyhow::Result<()> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let extension = names.map(|names| format!("-addext subjectAltName={names}")).unwrap_or_default();
    openssl(folder, &format!("req {key} -subj {subject} {extension} -keyout {name}.key -out {name}.csr"))?;
    openssl(
        folder,
        &format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -copy_extensions copy -out {name}.crt"
        ),
    )
}

fn apiserver_names() -> String {
    format!(
        "IP:{FABRIC_ADDRESS},IP:127.0.0.1,IP:{API_SERVICE},DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,\
         DNS:kubernetes.default.svc"
    )
}

fn openssl(folder: &Path, words: &str) -> anyhow::Result<()> {
    run(crate::cluster::run::words(&format!("openssl {words}")).current_dir(folder)).map(drop)
}

fn token_line(token: &str, user: &str, groups: &str) -> String {
    format!("{token},{user},{user},\"{groups}\"")
}

fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_own_identity() {
        let lines: Vec<_> =
            identities().iter().map(|(_, user, groups)| token_line("t", user, groups)).collect();
        assert!(
            lines.contains(&"t,system:node:node-3,system:node:node-3,\"system:nodes\"".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"t,admin,admin,\"system:masters\"".to_owned()), "{lines:?}");
    }
}
