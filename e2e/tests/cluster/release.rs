//! Tests of a release from a registry, with the commands of docs/install.md and docs/upgrade.md. Signatures are verified, the kubelets pull the images, and an
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
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, WITHIN, Wanted, play_on};
use crate::picture::Picture;

/// The pages, each with the text that says why the test of the documentation skips its block of commands with a registry.
const INSTALL: Page = Page {
    file: "docs/install.md",
    skipped: "it needs a registry; `cargo xtask test release` runs these commands with one",
};
const UPGRADE: Page = Page {
    file: "docs/upgrade.md",
    skipped: "it needs a registry; `cargo xtask test release` upgrades from one",
};
/// The commands of the README, which need a cloud of their own to work: the API server checks what they would create.
const README: &str = "README.md";
/// What the commands that users type need in a test.
const WAIT: &str = "--wait --timeout 5m";
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
        readme(bed).await?;
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

        roll_back(bed).await?;
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

/// A page of the documentation.
struct Page {
    file: &'static str,
    skipped: &'static str,
}

impl Page {
    /// The commands that get the chart of this version from the registry of this scenario, which has no TLS.
    fn pull(&self, version: &str) -> anyhow::Result<String> {
        let page = self.text()?;
        let block = blocks(&page).into_iter().find(|block| block.how == Some(How::NotRun(self.skipped)));
        let block = block.with_context(|| format!("{} lacks the block with a registry", self.file))?;
        let commands: Vec<_> =
            block.body.iter().map(|line| line.strip_prefix("$ ").unwrap_or(line)).collect();
        let pull = commands.join("\n").replace("helm pull", "helm pull --plain-http");
        Ok(format!("REGISTRY={REGISTRY}\nVERSION={version}\n{pull}"))
    }

    /// The first command that begins with these words.
    fn command(&self, words: &str) -> anyhow::Result<String> {
        let page = self.text()?;
        let command = blocks(&page).iter().flat_map(Block::commands).find(|it| it.text.starts_with(words));
        command.map(|it| it.text).with_context(|| format!("{} has no command `{words}`", self.file))
    }

    fn text(&self) -> anyhow::Result<String> {
        text(self.file)
    }
}

/// Reads a page of the project.
fn text(file: &str) -> anyhow::Result<String> {
    let path = crate::bed::chart().join("../..").join(file);
    fs::read_to_string(path).with_context(|| format!("cannot read {file}"))
}

/// Runs the commands of the README with this registry. They pull the newest chart, and nothing is installed.
async fn readme(bed: &Bed) -> anyhow::Result<()> {
    let page = text(README)?;
    let all = blocks(&page);
    let block =
        all.iter().find(|block| block.commands().iter().any(|it| it.text.starts_with("helm install")));
    let commands = block.context("README.md has no block with `helm install`")?.commands();
    let texts = commands.iter().map(|it| match it.text.split_once(' ') {
        Some(("helm", rest)) if rest.starts_with("pull ") => format!("helm {rest} --plain-http"),
        Some(("helm", rest)) if rest.starts_with("install ") => format!("helm {rest} --dry-run=server"),
        _ => format!("REGISTRY={REGISTRY}"),
    });
    let script = texts.collect::<Vec<_>>().join("\n");
    let folder = bed.layout().home.join("readme");
    fs::create_dir_all(&folder)?;
    let said = bed.shell(&folder, &script).await.context("the README says how to install a release")?;
    for part in ["STATUS: pending-install", &format!("image: \"{REGISTRY}/adapter-openstack")] {
        ensure!(said.contains(part), "no `{part}` in: {said}");
    }
    bed.step("the README's commands");
    Ok(())
}

/// The folder in which the user works.
fn folder(bed: &Bed) -> PathBuf {
    bed.layout().home.join("install")
}

/// Runs the commands of docs/install.md with this registry and version. The values do not name the registry of the images, because it is the
/// default of the chart in a release.
async fn install(bed: &Bed, built: &Built, version: &str) -> anyhow::Result<()> {
    let folder = folder(bed);
    fs::create_dir_all(&folder)?;
    fs::copy(built.keys.join("cosign.pub"), folder.join("cosign.pub"))?;
    let two = json!({ "replicas": 2 });
    let change = json!({
        "image": { "pullPolicy": "IfNotPresent" },
        "nodeController": two, "serviceController": two, "routeController": two,
    });
    let mut values = bed.values(&change);
    if let Some(image) = values.pointer_mut("/image").and_then(Value::as_object_mut) {
        image.remove("registry");
    }
    fs::write(folder.join("values.yaml"), values.to_string())?;
    let script = format!("{}\n{} {WAIT}", INSTALL.pull(version)?, INSTALL.command("helm install ")?);
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

/// Runs the commands of docs/upgrade.md with this registry and version.
async fn upgrade(bed: &Bed, version: &str) -> anyhow::Result<()> {
    let [values, upgrade] = [UPGRADE.command("helm get values ")?, UPGRADE.command("helm upgrade ")?];
    let script = format!("{}\n{values}\n{upgrade} {WAIT}", UPGRADE.pull(version)?);
    let said = bed.shell(&folder(bed), &script).await.context("docs/upgrade.md describes the upgrade")?;
    ensure!(said.contains("REVISION: 2"), "{said}");
    bed.step("upgraded from the registry");
    Ok(())
}

async fn roll_back(bed: &Bed) -> anyhow::Result<()> {
    let rollback = UPGRADE.command("helm rollback ")?;
    let said = bed.shell(&folder(bed), &format!("{rollback} {WAIT}")).await;
    said.context("docs/upgrade.md describes the rollback")?;
    bed.step("rolled back");
    Ok(())
}
