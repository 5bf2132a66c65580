//! Tests of the containers' permissions: the rights of the mounted tokens at the API server and at the adapter, files, and kernel
//! restrictions. `chart_install` checks the same RBAC rights by user name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use adapter_client::AdapterChannel;
use anyhow::{Context, bail, ensure};
use cloud_api_proto::v1alpha1::adapter_service_client::AdapterServiceClient;
use cloud_api_proto::v1alpha1::{GetInfoRequest, RequestContext};
use cloud_api_proto::{AdapterError, Reason};
use e2e::{CONTROLLERS, GrpcPort, eventually, kubeconfig_with_token, rights_listed};
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, WITHIN, scenario};
use crate::inside::Container;

const ADAPTER: &str = "cloud-adapter";
/// The cloud credentials.
const KEY: &str = "the-clouds-own-key";
/// Folder of the token for the API server.
const API: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Folder of the token for the adapter.
const CLIENT: &str = "/var/run/secrets/cloud-adapter";
/// The user of all containers.
const USER: &str = "65532";

#[test]
fn each_container_has_only_the_listed_rights_and_files() {
    scenario(1, async |bed| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cloud", "namespace": NAMESPACE },
            "stringData": { "token": KEY },
        });
        bed.apply(&secret).await?;
        bed.install(&json!({ "adapter": { "credentialsSecret": "cloud" } })).await?;
        bed.until_initialised().await?;
        let all = Container::of_release(bed).await?;
        let names: BTreeSet<_> = all.iter().map(|it| it.name.as_str()).collect();
        ensure!(names == CONTROLLERS.into_iter().chain([ADAPTER]).collect(), "{names:?}");
        for container in &all {
            confined(container)?;
            files(container)?;
        }
        bed.step("user, root, capabilities and files are right");
        for container in &all {
            tokens(bed, container).await?;
        }
        bed.step("the tokens have exactly the listed rights");
        adapters_door(bed, &all).await?;
        bed.step("each token is only accepted by its own server");

        // If the adapter does not authenticate callers and has no CA to keep, it needs no access to the API server.
        let open =
            json!({ "credentialsSecret": "cloud", "authentication": "none", "tls": { "mode": "off" } });
        bed.upgrade(&json!({ "adapter": open })).await?;
        eventually("the adapter has no token", WITHIN, || async {
            let all = Container::of_release(bed).await?;
            let adapter = all.iter().find(|it| it.name == ADAPTER).context("the adapter does not exist")?;
            let (config, token) = (adapter.file("/etc/cloud-adapter"), adapter.file(API));
            ensure!(config.exists() && !token.exists(), "{} exists", token.display());
            Ok(())
        })
        .await?;
        bed.step("an adapter without authentication has no token");
        Ok(())
    });
}

/// Checks the restrictions by the kernel.
fn confined(container: &Container) -> anyhow::Result<()> {
    let (name, status) = (&container.name, container.kernel_says("status")?);
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let user = [USER; 4].join(" ");
    let none = "0".repeat(16);
    for (of, wanted) in [
        ("Uid", user.as_str()),
        ("Gid", &user),
        ("Groups", USER),
        ("CapPrm", &none),
        ("CapEff", &none),
        ("CapBnd", &none),
        ("CapAmb", &none),
        ("NoNewPrivs", "1"),
        // Mode 2: filtered.
        ("Seccomp", "2"),
    ] {
        let has = field(of);
        ensure!(has.as_deref() == Some(wanted), "{name}: {of} {has:?}, wanted {wanted}");
    }
    // Even the test, which runs as root, cannot write, because the mounts themselves are read-only.
    for folder in ["/", "/tmp", "/etc", CLIENT, API].map(|folder| container.file(folder)) {
        let refused = fs::write(folder.join("written"), "").err().map(|error| error.kind());
        let right = [std::io::ErrorKind::ReadOnlyFilesystem, std::io::ErrorKind::NotFound];
        ensure!(
            refused.is_some_and(|kind| right.contains(&kind)),
            "{name}: {} {refused:?}",
            folder.display()
        );
    }
    Ok(())
}

/// Checks the mounted files, and which of them contain keys.
fn files(container: &Container) -> anyhow::Result<()> {
    let name = &container.name;
    let api = (API, ["ca.crt", "namespace", "token"].as_slice());
    let wanted: &[(&str, &[&str])] = if name == ADAPTER {
        &[
            ("/etc/cloud-adapter", &["config.yaml"]),
            ("/var/run/secrets/cloud", &["token"]),
            ("/var/run/secrets/cloud-adapter-tls", &["ca.crt", "ca.key"]),
            api,
        ]
    } else {
        &[(CLIENT, &["ca.crt", "token"]), api]
    };
    let wanted: BTreeMap<_, BTreeSet<_>> = wanted
        .iter()
        .map(|(folder, files)| ((*folder).to_owned(), files.iter().map(|&file| file.to_owned()).collect()))
        .collect();
    let mut has = BTreeMap::new();
    let mut keys = BTreeSet::new();
    for folder in mounted(container)? {
        let files = listed(&container.file(&folder))?;
        for file in &files {
            let text = fs::read_to_string(container.file(&folder).join(file))?;
            if text.contains(KEY) || text.contains("PRIVATE KEY") {
                keys.insert(format!("{folder}/{file}"));
            }
        }
        has.insert(folder, files);
    }
    ensure!(has == wanted, "{name} sees {has:?}, wanted {wanted:?}");
    let held: BTreeSet<_> = if name == ADAPTER {
        ["/var/run/secrets/cloud/token", "/var/run/secrets/cloud-adapter-tls/ca.key"]
            .map(str::to_owned)
            .into()
    } else {
        BTreeSet::new()
    };
    ensure!(keys == held, "{name} has keys in {keys:?}, wanted {held:?}");
    for of in ["environ", "cmdline"] {
        let says = container.kernel_says(of)?;
        ensure!(!says.contains(KEY), "{name}: the key is in {of}");
    }
    Ok(())
}

/// Mount points of this container, without those that every container has.
fn mounted(container: &Container) -> anyhow::Result<Vec<String>> {
    let mounts = container.kernel_says("mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let of_all = ["/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/sys", "/proc", "/dev"];
    let own = points.filter(|point| {
        let below = |folder: &str| point.starts_with(&format!("{folder}/"));
        !of_all.contains(point) && !["/sys", "/proc", "/dev"].into_iter().any(below)
    });
    Ok(own
        .map(|point| point.strip_prefix("/run").map_or(point.to_owned(), |rest| format!("/var/run{rest}")))
        .collect())
}

/// The files of a volume. Kubernetes puts them behind a link whose name starts with two dots.
fn listed(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| !name.starts_with("..")).collect())
}

/// Checks the rights of the container's token for the API server beyond those of an account without roles.
async fn tokens(bed: &Bed, container: &Container) -> anyhow::Result<()> {
    let name = &container.name;
    let as_itself = kubeconfig(bed, container, &format!("{API}/token"))?;
    let account = format!("system:serviceaccount:{NAMESPACE}:cloud-{}", name.trim_start_matches("cloud-"));
    let who = ["auth", "whoami", "--output", "jsonpath={.status.userInfo.username}"];
    let who = bed.kubectl_as(&as_itself, &who).await?;
    ensure!(who == account, "{name} is {who}");
    for namespace in [NAMESPACE, "default"] {
        let list = ["auth", "can-i", "--list", "--no-headers", "--namespace", namespace];
        let all = rights_listed(&bed.kubectl_as(&as_itself, &list).await?)?;
        let unprivileged = ["--as", "system:serviceaccount:kube-system:unprivileged"];
        let basic = rights_listed(&bed.kubectl(&[&list[..], &unprivileged].concat()).await?)?;
        ensure!(!basic.is_empty() && basic.is_subset(&all), "{basic:?} is not a subset of {all:?}");
        let (own, wanted) = (all.difference(&basic).cloned().collect(), wanted(name, namespace)?);
        let (more, less) = (missing(&wanted, &own), missing(&own, &wanted));
        ensure!(own == wanted, "{name} in {namespace} may {more:?}, and may not {less:?}");
    }
    // The API server must also refuse the actual requests.
    for args in [
        ["get", "secrets", "--all-namespaces"].as_slice(),
        &["get", "secret", "cloud", "--namespace", NAMESPACE],
        &["create", "secret", "generic", "another", "--namespace", NAMESPACE],
        &["get", "namespace", "default"],
        &["get", "pods", "--namespace", NAMESPACE],
        &["create", "token", "cloud-node-controller", "--namespace", NAMESPACE],
        &["get", "nodes", "--as", "system:admin"],
        &["get", "--raw", "/api/v1/nodes/node-1/proxy/pods"],
        &["delete", "lease", "cloud-adapter", "--namespace", NAMESPACE],
    ] {
        refused(&bed.kubectl_as(&as_itself, args).await, "forbidden", &format!("{name}: {args:?}"))?;
    }
    let nodes = bed.kubectl_as(&as_itself, &["get", "nodes"]).await;
    if name == ADAPTER { refused(&nodes, "forbidden", "the adapter reads nodes") } else { nodes.map(drop) }
}

fn missing(from: &BTreeSet<String>, of: &BTreeSet<String>) -> Vec<String> {
    of.difference(from).cloned().collect()
}

fn refused(answer: &anyhow::Result<String>, word: &str, what: &str) -> anyhow::Result<()> {
    match answer {
        Ok(done) => bail!("{what} was allowed: {done}"),
        Err(error) => {
            ensure!(format!("{error:#}").to_lowercase().contains(word), "{what}: {error:#}");
            Ok(())
        }
    }
}

/// The rights that SECURITY.md lists.
fn wanted(name: &str, namespace: &str) -> anyhow::Result<BTreeSet<String>> {
    let node =
        ["get nodes", "list nodes", "watch nodes", "patch nodes", "delete nodes", "patch nodes/status"];
    let service = [
        "get services",
        "list services",
        "watch services",
        "patch services/status",
        "list nodes",
        "watch nodes",
    ];
    let releases = [
        "list configmaps named cloud-controllers-orphans",
        "watch configmaps named cloud-controllers-orphans",
    ];
    let record = [
        "create configmaps",
        "get configmaps named route-controller-routes",
        "patch configmaps named route-controller-routes",
    ];
    let cluster = "get namespaces named kube-system".to_owned();
    let (own, near): (&[&str], &[&str]) = match name {
        ADAPTER => {
            let ca = ["get", "patch"].map(|verb| format!("{verb} secrets named cloud-adapter-ca"));
            let near = ca.into_iter().filter(|_| namespace == NAMESPACE);
            return Ok(near.chain([cluster]).collect());
        }
        "node-controller" => (&node, &[]),
        "service-controller" => (&service, &releases),
        "route-controller" => (&["list nodes", "watch nodes", "patch nodes/status"], &record),
        other => bail!("unknown component {other}"),
    };
    let mut rights: BTreeSet<_> =
        own.iter().chain(&["create events", "patch events"]).map(|&right| right.to_owned()).collect();
    rights.insert(cluster);
    if namespace != NAMESPACE {
        return Ok(rights);
    }
    rights.extend(near.iter().map(|&right| right.to_owned()));
    rights.extend(["get", "list", "watch"].map(|verb| format!("{verb} endpointslices.discovery.k8s.io")));
    rights.insert("create leases.coordination.k8s.io".to_owned());
    // Leases of all possible shards.
    for shard in 0..64 {
        let of = if shard == 0 { String::new() } else { format!("-{shard}") };
        let lease = |verb| format!("{verb} leases.coordination.k8s.io named cloud-{name}{of}");
        rights.extend(["get", "watch", "patch"].map(lease));
    }
    Ok(rights)
}

/// The administrator's kubeconfig, with a container's token.
fn kubeconfig(bed: &Bed, container: &Container, token: &str) -> anyhow::Result<PathBuf> {
    let token = fs::read_to_string(container.file(token)).with_context(|| format!("no {token}"))?;
    let file = bed.layout().home.join("container.kubeconfig");
    kubeconfig_with_token(&bed.layout().kubeconfig(), &token, &file)?;
    Ok(file)
}

/// The API server refuses the token for the adapter, and the adapter refuses the token for the API server. Each of them accepts its own
/// token.
async fn adapters_door(bed: &Bed, all: &[Container]) -> anyhow::Result<()> {
    let id = ["get", "namespace", "kube-system", "--output", "jsonpath={.metadata.uid}"];
    let cluster = bed.kubectl(&id).await?;
    let adapter = all.iter().find(|it| it.name == ADAPTER).context("the adapter does not exist")?;
    for controller in all.iter().filter(|it| it.name != ADAPTER) {
        let name = &controller.name;
        let as_client = kubeconfig(bed, controller, &format!("{CLIENT}/token"))?;
        let asked = bed.kubectl_as(&as_client, &["get", "nodes"]).await;
        refused(&asked, "unauthorized", &format!("{name} with the token for the adapter"))?;
        let door = |token: PathBuf| {
            let ca = controller.file(&format!("{CLIENT}/ca.crt"));
            anyhow::Ok(GrpcPort::at(&adapter.at("grpc")?.to_string(), Some(ca), Some(token))?.channel())
        };
        let with_own = info(door(controller.file(&format!("{CLIENT}/token")))?, &cluster).await;
        with_own.with_context(|| format!("{name} with its own token"))?;
        for (whose, token) in [("its", controller), ("the adapter's", adapter)] {
            let other = info(door(token.file(&format!("{API}/token")))?, &cluster).await;
            let reason = other.as_ref().err().map(|error| error.reason);
            ensure!(
                reason == Some(Reason::CallerUnauthenticated),
                "{name} with {whose} token for the API server: {other:?}"
            );
        }
    }
    Ok(())
}

async fn info(door: AdapterChannel, cluster: &str) -> Result<(), AdapterError> {
    let context =
        RequestContext { cluster_id: cluster.to_owned(), request_id: "e2e".to_owned(), ..Default::default() };
    let request = GetInfoRequest { context: Some(context) };
    let answer = AdapterServiceClient::new(door).get_info(request).await;
    answer.map(drop).map_err(AdapterError::from)
}
