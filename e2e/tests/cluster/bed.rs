//! The environment of a scenario: a cluster with nodes that run pods, the images, and Helm. Each scenario creates and removes its own
//! cluster, one at a time.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use e2e::{Simcloud, State, docs, eventually, merge, seconds};
use e2e_tools::cluster::Programs;
use e2e_tools::cluster::layout::NetworkNamespace;
use e2e_tools::cluster::up::Cloud;
use e2e_tools::cluster::{Layout, Order};
use e2e_tools::{Environment, Terminal, Tool};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// Deadline of everything that a scenario waits for. Kubelets and controllers retry after 10 s, and downloads of images are retried up to
/// 20 s later.
pub(crate) const WITHIN: Duration = seconds(120);
/// The name of the release and of the chart.
pub(crate) const RELEASE: &str = "cloud-controllers";
pub(crate) const NAMESPACE: &str = "kube-system";
/// The images that the chart runs here.
pub(crate) const IMAGES: [&str; 4] =
    ["adapter-sim", "node-controller", "route-controller", "service-controller"];
/// The image that only `helm test` runs.
const OF_TESTS: &str = "cloudctl";

/// There is one cluster per host, but cargo runs tests in several threads.
static STAGE: Mutex<()> = Mutex::new(());

/// Whether a signal ends this process. The process then cleans up and starts no further scenario. A separate thread waits for the signals
/// from the first scenario on, so that no signal is missed.
static ENDED: LazyLock<watch::Receiver<bool>> = LazyLock::new(|| {
    let (ends, ended) = watch::channel(false);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let signals = [SignalKind::interrupt(), SignalKind::terminate()];
    // From here on these signals do not end the process directly.
    let signals = runtime.block_on(async { signals.map(|kind| signal(kind).unwrap()) });
    thread::spawn(move || {
        let [mut interrupt, mut terminate] = signals;
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => (),
                _ = terminate.recv() => (),
            }
        });
        ends.send_replace(true);
    });
    ended
});

pub(crate) struct Bed {
    layout: Layout,
    programs: Programs,
    helm: PathBuf,
    images: PathBuf,
    begin: Instant,
    /// A client with the rights of the administrator.
    pub(crate) client: Client,
    pub(crate) cloud: Simcloud,
}

/// The cluster that a scenario needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) nodes: u8,
    /// Whether the nodes have this project's images, and their pods a network, from the start.
    pub(crate) complete: bool,
}

/// Runs a scenario on a new cluster with this number of nodes, and removes the cluster. After a failure, the logs are kept and their place
/// is printed.
pub(crate) fn scenario(nodes: u8, play: impl AsyncFnOnce(&Bed) -> anyhow::Result<()> + Send) {
    play_on(Wanted { nodes, complete: true }, play);
}

pub(crate) fn play_on(wanted: Wanted, play: impl AsyncFnOnce(&Bed) -> anyhow::Result<()> + Send) {
    let _alone = STAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = thread::current().name().unwrap_or_default().to_owned();
    tell(&format!("\n=== {name}"));
    LazyLock::force(&ENDED);
    let stage = Stage::new().unwrap();
    let _lock = e2e_tools::cluster::lock(&stage.layout).unwrap();
    stage.down().unwrap();
    // Another thread enters the cluster's network, with all processes that it starts; the current thread stays outside and cleans up.
    let end = thread::scope(|scope| scope.spawn(|| stage.play(wanted, play)).join());
    let failed = !matches!(end, Ok(Ok(()))) && !*ENDED.borrow();
    if failed {
        let logs = stage.keep_logs();
        let again = format!("`cargo xtask test cluster -- {name}`");
        tell(&format!("=== {name}: FAILED; logs: {}; run it again with {again}", logs.display()));
    }
    stage.down().unwrap();
    if *ENDED.borrow() {
        tell(&format!("=== {name}: interrupted; its cluster is removed"));
        leave();
    }
    match end {
        Ok(end) => end.unwrap(),
        Err(panic) => resume_unwind(panic),
    }
}

/// Ends the process without the remaining scenarios, as Ctrl-C requests.
#[expect(clippy::exit, reason = "a test cannot end its harness in another way")]
fn leave() -> ! {
    std::process::exit(130)
}

/// The tools, images and paths that exist before the cluster.
struct Stage {
    layout: Layout,
    programs: Programs,
    helm: PathBuf,
    images: PathBuf,
    xtask: PathBuf,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let environment = Environment::of_this_process()?;
        let find = |tool| Ok((tool, e2e_tools::find(tool, &environment, &mut Terminal::new())?.path));
        let programs = Tool::CLUSTER.into_iter().map(find).collect::<anyhow::Result<_>>()?;
        let cache = environment.cache.parent().context("the cache has no folder")?;
        let given = |name| {
            env::var_os(name).map(PathBuf::from).with_context(|| {
                format!("{name} is not set; these scenarios are run by `cargo xtask test cluster`")
            })
        };
        Ok(Self {
            layout: Layout::below(cache),
            programs: Programs(programs),
            helm: find(Tool::Helm)?.1,
            images: given("CLUSTER_IMAGES")?,
            xtask: given("CLUSTER_XTASK")?,
        })
    }

    fn play(&self, wanted: Wanted, play: impl AsyncFnOnce(&Bed) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut ended = ENDED.clone();
            tokio::select! {
                end = async { play(&self.up(wanted).await?).await } => end,
                _ = ended.wait_for(|ended| *ended) => bail!("interrupted"),
            }
        })
    }

    async fn up(&self, wanted: Wanted) -> anyhow::Result<Bed> {
        e2e_tools::cluster::up(&self.layout, &self.order(wanted)).await?;
        let network =
            File::open(NetworkNamespace::Fabric.namespace_file()).context("the cluster has no network")?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the cluster's network")?;
        let file = Kubeconfig::read_from(self.layout.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let bed = Bed {
            layout: self.layout.clone(),
            programs: self.programs.clone(),
            helm: self.helm.clone(),
            images: self.images.clone(),
            begin: Instant::now(),
            client: Client::try_from(config)?,
            cloud: Simcloud::at(&e2e_tools::cluster::cloud::url())?,
        };
        // A new cluster has no ServiceAccount in its first seconds, and refuses pods.
        let account = ["get", "serviceaccount", "default"];
        bed.until("pods have a ServiceAccount", &account, |_| true).await?;
        if wanted.complete {
            self.load(&bed)?;
        }
        Ok(bed)
    }

    fn load(&self, bed: &Bed) -> anyhow::Result<()> {
        IMAGES.iter().chain([&OF_TESTS]).try_for_each(|image| bed.load(image))
    }

    fn order(&self, wanted: Wanted) -> Order {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let cloud = Cloud {
            simcloud: self.xtask.with_file_name("simcloud"),
            ourselves: self.xtask.clone(),
            register: words(&["cluster", "register", &wanted.nodes.to_string()]),
            data_plane: words(&["cluster", "data-plane"]),
        };
        let programs = self.programs.clone();
        Order { nodes: wanted.nodes, cloud: Some(cloud), pod_network: wanted.complete, programs }
    }

    fn down(&self) -> anyhow::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(e2e_tools::cluster::down(&self.layout))
    }

    /// Keeps the logs of the servers and of the pods, and returns their folder.
    fn keep_logs(&self) -> PathBuf {
        let kept = tempfile::Builder::new().prefix("cloud-controllers-cluster-").tempdir();
        let kept = kept.unwrap().keep();
        for folder in fs::read_dir(&self.layout.home).into_iter().flatten().flatten() {
            let logs = folder.path().join("private").join("var-log");
            let from = if folder.file_name() == "log" { folder.path() } else { logs };
            if from.is_dir() {
                let to = kept.join(folder.file_name());
                std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().ok();
            }
        }
        kept
    }
}

impl Bed {
    /// Loads an image onto all nodes.
    pub(crate) fn load(&self, image: &str) -> anyhow::Result<()> {
        let archive = self.images.join(format!("{image}.tar"));
        e2e_tools::cluster::load(&self.layout, &self.programs, &[archive])
    }

    /// Gives the pods of all nodes a network, as a CNI's installer does once it can run.
    pub(crate) async fn give_pods_a_network(&self, nodes: u8) -> anyhow::Result<()> {
        let order = Order { nodes, cloud: None, pod_network: true, programs: self.programs.clone() };
        e2e_tools::cluster::up(&self.layout, &order).await
    }

    /// The default values of all scenarios, with changes.
    pub(crate) fn values(&self, change: &Value) -> Value {
        let mut values = json!({
            "image": { "registry": "localhost", "pullPolicy": "Never" },
            "adapter": { "kind": "sim", "sim": { "notForProduction": true, "endpoint": self.cloud.url() } },
            "routeController": { "clusterCidr": e2e_tools::cluster::layout::PODS },
        });
        merge(&mut values, change);
        values
    }

    /// Runs `helm VERB cloud-controllers CHART` with values, and waits until all pods are ready.
    pub(crate) async fn helm_with(&self, verb: &str, change: &Value) -> anyhow::Result<Duration> {
        let file = self.layout.home.join("values.json");
        fs::write(&file, self.values(change).to_string()).context("cannot write the values")?;
        let (chart, file) = (chart().display().to_string(), file.display().to_string());
        let begin = Instant::now();
        let args = [verb, RELEASE, &chart, "--values", &file, "--wait", "--timeout", "5m"];
        self.helm(&args).await?;
        self.step(&format!("helm {verb} --wait returned"));
        Ok(begin.elapsed())
    }

    pub(crate) async fn install(&self, change: &Value) -> anyhow::Result<Duration> {
        self.helm_with("install", change).await
    }

    pub(crate) async fn upgrade(&self, change: &Value) -> anyhow::Result<Duration> {
        self.helm_with("upgrade", change).await
    }

    /// Runs any Helm command in the release's namespace.
    pub(crate) async fn helm(&self, args: &[&str]) -> anyhow::Result<String> {
        self.helm_in(NAMESPACE, args).await
    }

    /// Runs any kubectl command as the administrator.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.kubectl_as(&self.layout.kubeconfig(), args).await
    }

    pub(crate) async fn kubectl_as(&self, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<String> {
        let program = self.programs.0.get(&Tool::Kubectl).context("kubectl is not installed")?;
        output(Command::new(program).arg("--kubeconfig").arg(kubeconfig).args(args)).await
    }

    pub(crate) async fn apply(&self, manifest: &Value) -> anyhow::Result<()> {
        let file = self.layout.home.join("manifest.json");
        fs::write(&file, manifest.to_string()).context("cannot write the manifest")?;
        self.kubectl(&["apply", "--filename", &file.display().to_string()]).await.map(drop)
    }

    /// Waits until kubectl's output satisfies `good`, and returns the output.
    pub(crate) async fn until(
        &self,
        what: &str,
        args: &[&str],
        good: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let good = &good;
        let seen = eventually(what, WITHIN, || async move {
            let answer = self.kubectl(args).await?;
            ensure!(good(&answer), "{answer}");
            Ok(answer)
        })
        .await?;
        self.step(what);
        Ok(seen)
    }

    /// Waits until `look` returns a value for the state of the cloud.
    pub(crate) async fn until_cloud<T>(
        &self,
        what: &str,
        look: impl Fn(&State) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let look = &look;
        let seen = eventually(what, WITHIN, || async move { look(&self.cloud.state().await?) }).await?;
        self.step(what);
        Ok(seen)
    }

    pub(crate) async fn until_initialised(&self) -> anyhow::Result<()> {
        let taints = ["get", "nodes", "--output", "jsonpath={.items[*].spec.taints[*].key}"];
        let none = |taints: &str| !taints.contains("node.cloudprovider.kubernetes.io/uninitialized");
        self.until("all nodes are initialised", &taints, none).await.map(drop)
    }

    /// Pod CIDRs of the cluster's own nodes. They are not always the first CIDRs, because a failed attempt leaves a gap.
    pub(crate) async fn pod_networks(&self) -> anyhow::Result<Vec<String>> {
        let networks = r#"jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR}{"\n"}{end}"#;
        let nodes = self.kubectl(&["get", "nodes", "--output", networks]).await?;
        let own = nodes.lines().filter_map(|line| line.strip_prefix("node-")?.split_once(' '));
        Ok(own.map(|(_number, network)| network.to_owned()).collect())
    }

    pub(crate) async fn address(&self, service: &str) -> anyhow::Result<String> {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        let args = ["get", "service", service, "--output", path];
        self.until(&format!("Service {service} has an address"), &args, |ip| !ip.is_empty()).await
    }

    /// Prints a step, and the time since the cluster started to run.
    pub(crate) fn step(&self, what: &str) {
        tell(&format!("  {:6.1} s  {what}", self.begin.elapsed().as_secs_f64()));
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) async fn helm_in(&self, namespace: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.helm);
        command.args(args).args(["--namespace", namespace]).arg("--kubeconfig").arg(self.layout.kubeconfig());
        output(command.envs(self.helm_homes())).await
    }

    /// Runs a shell script in a folder, with kubectl and Helm for the cluster. Returns its whole output.
    pub(crate) async fn shell(&self, folder: &Path, script: &str) -> anyhow::Result<String> {
        let kubectl = self.programs.0.get(&Tool::Kubectl).context("kubectl is not installed")?;
        let ours = [kubectl, &self.helm].map(|program| program.parent().map(Path::to_path_buf));
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(ours.into_iter().flatten().chain(env::split_paths(&path)))?;
        let mut shell = Command::new("sh");
        shell.args(["-ec", &format!("exec 2>&1\n{script}")]).current_dir(folder);
        shell.env("PATH", path).env("KUBECONFIG", self.layout.kubeconfig()).envs(self.helm_homes());
        let shown = script.trim().to_owned();
        let ended =
            shell.stdin(Stdio::null()).kill_on_drop(true).output().await.context("cannot start sh")?;
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        ensure!(ended.status.success(), "{shown}: {}: {said}", ended.status);
        Ok(said)
    }

    /// A terminal in which commands of the documentation run, with kubectl and Helm for the cluster.
    pub(crate) fn terminal(&self) -> anyhow::Result<docs::Terminal> {
        let kubectl = self.programs.0.get(&Tool::Kubectl).context("kubectl is not installed")?;
        docs::Terminal::new(&self.layout.kubeconfig(), &self.helm, kubectl)
    }

    fn helm_homes(&self) -> [(&'static str, PathBuf); 3] {
        let home = self.layout.home.join("helm");
        ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"].map(|name| (name, home.clone()))
    }

    /// Runs this repository's `cargo xtask` with these arguments.
    pub(crate) async fn xtask(&self, args: &[&str]) -> anyhow::Result<String> {
        let program = env::var_os("CLUSTER_XTASK").context("CLUSTER_XTASK is not set")?;
        output(Command::new(program).args(args)).await
    }
}

/// Prints a line at once; cargo would show it only at the end.
pub(crate) fn tell(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

async fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot start {shown}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shown}: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn chart() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("helm").join(RELEASE)
}
