//! Tests of a release from a registry, with the commands of docs/install.md. Signatures are verified, the kubelets pull the images, and an
//! upgrade and a rollback change nothing in the cloud. Each combination of neighbouring releases that docs/upgrade.md allows works.
//!
//! `cargo xtask test release` builds the two releases and runs this scenario.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use e2e::{Launch, Process, eventually, service};
use e2e_tools::cluster::layout::REGISTRY;
use e2e_tools::pages::{Block, How, blocks};
use e2e_tools::{Environment, Terminal, Tool};
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, RELEASE, WITHIN, Wanted, play_on};
use crate::picture::Picture;

/// The text in docs/install.md that says why the test of the documentation skips this block of commands.
const BLOCK: &str = "it needs a registry; `cargo xtask test release` runs these commands with one";
const ADAPTER: &str = "cloud-adapter";

/// What `cargo xtask test release` has built.
struct Built {
    /// The folders of the releases, the older first.
    releases: [PathBuf; 2],
    /// The folder of the keys: `cosign.key`, `cosign.pub`, and `other.pub` of another pair.
    keys: PathBuf,
    cosign: PathBuf,
    crane: PathBuf,
}

impl Built {
    fn of_this_process() -> anyhow::Result<Self> {
        let given = |name| {
            env::var_os(name).map(PathBuf::from).with_context(|| {
                format!("{name} is not set; this scenario is run by `cargo xtask test release`")
            })
        };
        let environment = Environment::of_this_process()?;
        let find = |tool| anyhow::Ok(e2e_tools::find(tool, &environment, &mut Terminal::new())?.path);
        Ok(Self {
            releases: [given("RELEASE_OLD")?, given("RELEASE_NEW")?],
            keys: given("RELEASE_KEYS")?,
            cosign: find(Tool::Cosign)?,
            crane: find(Tool::Crane)?,
        })
    }

    fn versions(&self) -> anyhow::Result<[String; 2]> {
        let version = |folder: &Path| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_prefix("cloud-controllers-").map(str::to_owned).context("the folder has no version")
        };
        let [old, new] = &self.releases;
        Ok([version(old)?, version(new)?])
    }

    fn key(&self, name: &str) -> String {
        self.keys.join(name).display().to_string()
    }
}

#[test]
fn signed_release_is_installed_upgraded_and_rolled_back() {
    play_on(Wanted { nodes: 2, complete: false }, async |bed| {
        let built = Built::of_this_process()?;
        let [old, new] = built.versions()?;
        let mut registry = registry(bed, &built)?;
        push(bed, &built).await?;
        tampered_artifacts_are_refused(bed, &built, &old).await?;
        install(bed, &built, &old).await?;
        runs(bed, &[&old; 4]).await?;
        let before = has_work(bed).await?;

        adapter_of(bed, &new).await?;
        runs(bed, &[&new, &old, &old, &old]).await?;
        serves(bed, "old-controllers").await?;
        upgrade(bed, &new).await?;
        runs(bed, &[&new; 4]).await?;
        serves(bed, "new-controllers").await?;
        adapter_of(bed, &old).await?;
        runs(bed, &[&old, &new, &new, &new]).await?;
        serves(bed, "old-adapter").await?;
        before.is_still_so(bed).await?;

        let rollback = ["rollback", RELEASE, "1", "--wait", "--timeout", "5m"];
        bed.helm(&rollback).await.context("to roll back by hand: `helm rollback cloud-controllers 1`")?;
        bed.step("rolled back");
        runs(bed, &[&old; 4]).await?;
        serves(bed, "rolled-back").await?;
        before.is_still_so(bed).await?;
        registry.ensure_running()
    });
}

/// Starts a registry that the nodes pull from.
fn registry(bed: &Bed, built: &Built) -> anyhow::Result<Process> {
    let disk = bed.layout().home.join("registry");
    fs::create_dir_all(&disk)?;
    let disk = disk.display().to_string();
    let launch = Launch {
        name: "registry".to_owned(),
        program: built.crane.clone(),
        args: ["registry", "serve", "--address", REGISTRY, "--disk", &disk].map(str::to_owned).to_vec(),
        env: [("HOME".to_owned(), disk.clone())].into(),
        log_dir: bed.layout().logs(),
    };
    launch.start()
}

async fn push(bed: &Bed, built: &Built) -> anyhow::Result<()> {
    let answers = || async {
        bed.shell(&bed.layout().home, &format!("'{}' catalog --insecure {REGISTRY}", built.crane.display()))
            .await
    };
    eventually("the registry answers", WITHIN, answers).await?;
    for folder in &built.releases {
        let (folder, key) = (folder.display().to_string(), built.key("cosign.key"));
        bed.xtask(&["release", "push", &folder, "--registry", REGISTRY, "--http", "--key", &key]).await?;
        let key = built.key("cosign.pub");
        bed.xtask(&["release", "verify", &folder, "--registry", REGISTRY, "--http", "--key", &key]).await?;
    }
    bed.step("both releases are pushed, signed and verified");
    Ok(())
}

/// Checks that verification fails with another key, and for an image that replaces a signed one.
async fn tampered_artifacts_are_refused(bed: &Bed, built: &Built, version: &str) -> anyhow::Result<()> {
    let verify = async |key: &str| {
        let key = built.key(key);
        let args =
            ["release", "verify", "--registry", REGISTRY, "--version", version, "--http", "--key", &key];
        bed.xtask(&args).await
    };
    let refused = verify("other.pub").await.err().context("another key verifies the release")?.to_string();
    ensure!(refused.contains("is not signed by this key"), "{refused}");
    let image = format!("{REGISTRY}/simcloud:{version}");
    let crane = async |words: &str| {
        bed.shell(&bed.layout().home, &format!("'{}' --insecure {words}", built.crane.display())).await
    };
    let signed = crane(&format!("digest {image}")).await?;
    crane(&format!("mutate {image} --label tampered=yes --tag {image}")).await?;
    let refused = verify("cosign.pub").await.err().context("a changed image is verified")?.to_string();
    ensure!(refused.contains("simcloud@") && refused.contains("is not signed by this key"), "{refused}");
    crane(&format!("tag {REGISTRY}/simcloud@{} {version}", signed.trim())).await?;
    verify("cosign.pub").await?;
    bed.step("another key and a changed image are refused");
    Ok(())
}

/// Runs the commands of docs/install.md with this registry and version.
async fn install(bed: &Bed, built: &Built, version: &str) -> anyhow::Result<()> {
    let folder = bed.layout().home.join("install");
    fs::create_dir_all(&folder)?;
    fs::copy(built.keys.join("cosign.pub"), folder.join("cosign.pub"))?;
    let two = json!({ "replicas": 2 });
    let change = json!({
        "image": { "registry": REGISTRY, "pullPolicy": "IfNotPresent" },
        "nodeController": two, "serviceController": two, "routeController": two,
    });
    fs::write(folder.join("values.yaml"), bed.values(&change).to_string())?;
    let page = fs::read_to_string(crate::bed::chart().join("../../docs/install.md"))?;
    let blocks = blocks(&page);
    let block = blocks.iter().find(|block| block.how == Some(How::NotRun(BLOCK)));
    let block = block.context("docs/install.md lacks the block")?;
    let commands: Vec<_> = block.body.iter().map(|line| line.strip_prefix("$ ").unwrap_or(line)).collect();
    // The registry of this scenario has no TLS.
    let pull = commands.join("\n").replace("helm pull", "helm pull --plain-http");
    let install = blocks.iter().flat_map(Block::commands).find(|it| it.text.starts_with("helm install"));
    let install = install.context("docs/install.md does not install the chart")?.text;
    let script = format!("REGISTRY={REGISTRY}\nVERSION={version}\n{pull}\n{install} --wait --timeout 5m");
    let path = built.cosign.parent().unwrap_or(Path::new("/")).display();
    // A node accepts pods when its network works, as after the installation of a CNI plugin.
    let installed = async { bed.shell(&folder, &format!("PATH='{path}':\"$PATH\"\n{script}")).await };
    let (said, network) = tokio::join!(installed, bed.give_pods_a_network(2));
    network?;
    let said = said.context(
        "docs/install.md describes the installation; kubectl describe pod shows why a pod does not run",
    )?;
    ensure!(said.contains("STATUS: deployed"), "{said}");
    bed.step("installed from the registry");
    bed.until_initialised().await
}

/// Waits until each Deployment has only pods of its version. The versions are those of the adapter, node-controller, route-controller and
/// service-controller, in this order.
async fn runs(bed: &Bed, versions: &[&str; 4]) -> anyhow::Result<()> {
    for (name, version) in
        [ADAPTER, "node-controller", "route-controller", "service-controller"].iter().zip(versions)
    {
        let deployment = format!("deployment/{name}");
        let args = ["rollout", "status", &deployment, "--namespace", NAMESPACE, "--timeout", "5m"];
        bed.kubectl(&args).await?;
        let selector = format!("app.kubernetes.io/component={name}");
        let path = "jsonpath={.items[*].spec.containers[*].image}";
        let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", &selector, "--output", path];
        let right = |images: &str| {
            let mut images = images.split(' ').filter(|it| !it.is_empty()).peekable();
            images.peek().is_some()
                && images.all(|it| it.starts_with(REGISTRY) && it.ends_with(&format!(":{version}")))
        };
        bed.until(&format!("{name} is {version}"), &args, right).await?;
    }
    Ok(())
}

/// Creates Services, and waits until nothing is left to do.
async fn has_work(bed: &Bed) -> anyhow::Result<Picture> {
    serves(bed, "web").await?;
    bed.until_cloud("both nodes have a route", |state| {
        ensure!(state.routes.len() == 2, "{:?}", state.routes);
        Ok(())
    })
    .await?;
    let path = "jsonpath={.items[*].status.conditions[?(@.type==\"NetworkUnavailable\")].status}";
    let args = ["get", "nodes", "--output", path];
    bed.until("both nodes have a network", &args, |all| all == "False False").await?;
    Picture::take(bed).await
}

/// Checks that a new Service gets an address, which shows that the controllers and the adapter work together.
async fn serves(bed: &Bed, name: &str) -> anyhow::Result<()> {
    service(name).port(80).create(&bed.client).await?;
    bed.address(name).await.map(drop)
}

/// Replaces only the adapter, like an installation that upgrades it separately.
async fn adapter_of(bed: &Bed, version: &str) -> anyhow::Result<()> {
    let deployment = format!("deployment/{ADAPTER}");
    let path = "jsonpath={.spec.template.spec.containers[0].name}";
    let get = ["get", &deployment, "--namespace", NAMESPACE, "--output", path];
    let container = bed.kubectl(&get).await?;
    let image = format!("{container}={REGISTRY}/adapter-sim:{version}");
    bed.kubectl(&["set", "image", &deployment, &image, "--namespace", NAMESPACE]).await.map(drop)
}

/// Upgrades the release as docs/upgrade.md describes, with the values of the release.
async fn upgrade(bed: &Bed, version: &str) -> anyhow::Result<()> {
    let chart = format!("oci://{REGISTRY}/charts/{RELEASE}:{version}");
    let args = [
        "upgrade",
        RELEASE,
        &chart,
        "--plain-http",
        "--reset-then-reuse-values",
        "--wait",
        "--timeout",
        "5m",
    ];
    bed.helm(&args).await.context("to return: `helm rollback cloud-controllers 1`")?;
    bed.step("upgraded from the registry");
    Ok(())
}
