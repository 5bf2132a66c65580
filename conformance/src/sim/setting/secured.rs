//! An adapter that authenticates callers by ServiceAccount tokens, over TLS. Each of its files has a second version, for rotations.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use cloud_adapter::testing::{Ca, ISSUER, TokenKey, jwks};
use serde_json::{Map, Value, json};

use super::{hooks, lane::Lane};
use crate::sim::command;

/// The only cluster that the adapter serves, and the audience of its tokens.
const CLUSTER: &str = "c1";
const SERVER_NAME: &str = "cloud-adapter";
/// Roles: the key in the parameter file, and the role's name in the adapter's flags.
const ROLES: [(&str, &str); 4] = [
    ("nodeController", "node-controller"),
    ("serviceController", "service-controller"),
    ("routeController", "route-controller"),
    ("operator", "operator"),
];
/// A ServiceAccount of the same cluster that has no role.
const STRANGER: (&str, &str) = ("stranger", "stranger");

pub(super) fn start(mut lane: Lane) -> anyhow::Result<Lane> {
    let file = |name: &str| lane.folder.join(name);
    let ca = Ca::new("conformance");
    fs::write(file("ca.pem"), ca.pair().certificate)?;
    let keys = [TokenKey::elliptic("a"), TokenKey::elliptic("b")];
    fs::write(file("jwks.json"), jwks(&keys.each_ref()))?;
    let [certificate, key] = command::SERVER_FILES.map(file);
    let mut identities = Map::new();
    for (at, next) in keys.iter().zip([false, true]) {
        let name = |path: &std::path::Path| if next { command::next(path) } else { path.to_owned() };
        let pair = ca.server(SERVER_NAME, tomorrow());
        fs::write(name(&certificate), pair.certificate)?;
        fs::write(name(&key), pair.key)?;
        for (role, account) in ROLES.into_iter().chain([STRANGER]) {
            let path = file(&format!("{account}.token"));
            fs::write(name(&path), at.token(&format!("kube-system:{account}")))?;
            identities.insert(role.to_owned(), json!({ "tokenFile": path }));
        }
    }
    let mut flags = vec![
        format!("--tls-cert={}", certificate.display()),
        format!("--tls-key={}", key.display()),
        "--authentication=service-account".to_owned(),
        // The adapter adds a random time of up to a tenth of this value.
        "--max-connection-age=5s".to_owned(),
        format!("--cluster-id={CLUSTER}"),
        format!("--token-issuer={ISSUER}"),
        format!("--token-jwks={}", file("jwks.json").display()),
    ];
    flags.extend(ROLES.map(|(_role, account)| format!("--identity={account}=kube-system/{account}")));
    let ca_file = file("ca.pem");
    lane = lane.adapter(&flags)?;
    let endpoint = lane.describe.get("endpoint").and_then(Value::as_str).unwrap_or_default();
    let endpoint = endpoint.replace("http://", "https://");
    lane.tell("endpoint", endpoint.into());
    lane.tell("tls", json!({ "caFile": ca_file, "serverName": SERVER_NAME }));
    lane.tell("clusterId", CLUSTER.into());
    lane.tell("identities", identities.into());
    lane.tell("hooks", hooks(&command::SECURED)?.into());
    Ok(lane)
}

#[expect(clippy::disallowed_methods, reason = "validity of certificates is checked against the wall clock")]
fn tomorrow() -> SystemTime {
    SystemTime::now() + Duration::from_hours(24)
}
