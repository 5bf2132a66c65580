//! Upgrade from the previous chart to this one and back, with existing load balancers and routes. Helm, the API server and the cloud are
//! real; the programs are the current ones, with the flags of each chart.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Bed, Cluster, ControlPlane, Pods, Release, Simcloud, Values, WITHIN, service};

const NAME: &str = "cloud-controllers";
/// Until there is a tag, the chart of this commit is used. It does not have the choice of the cloud and the names of a release yet.
const BEFORE_ALL_TAGS: &str = "113ad76a109d648de644529d55b21c0eac12240c";

/// However the values are passed, nothing is recreated or written, and everything becomes ready.
#[tokio::test]
async fn upgrade_from_the_previous_chart_changes_nothing_in_the_cloud() {
    let previous = previous_chart();
    let (mut bed, values) = installed(&previous.path().join("helm").join(NAME)).await;
    for (name, pods) in [("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")] {
        bed.join(name, Some(pods)).await.unwrap();
    }
    bed.targets(2).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    service("dns").port_of("UDP", 53).create(&bed.client()).await.unwrap();
    let addresses = addresses(&bed).await;
    rest(&mut bed).await;
    let cloud = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((cloud.load_balancers.len(), cloud.routes.len()), (2, 2));

    let values = values.display().to_string();
    let ways: [&[&str]; 3] = [&["--reset-then-reuse-values"], &["--reuse-values"], &["--values", &values]];
    // The previous chart simulated a cloud by default.
    let confirmed = ["--set", "adapter.kind=sim,adapter.sim.notForProduction=true"];
    for way in ways {
        let chart = root().join("helm").join(NAME).display().to_string();
        changed(&mut bed, &[&["upgrade", NAME, &chart], way, &confirmed].concat()).await;
        unchanged(&bed, &cloud, &addresses, &format!("upgrade with {way:?}")).await;
        // The previous chart itself writes the data of the Secret, which is now filled by the adapter. So the rollback has to force
        // conflicts.
        changed(&mut bed, &["rollback", NAME, "1", "--force-conflicts"]).await;
        unchanged(&bed, &cloud, &addresses, &format!("rollback from {way:?}")).await;
    }
    // A new Service shows that the controllers work and are not just idle.
    bed.expose("late", 80).await.unwrap();
}

/// Installs the previous release with a user's own values, and waits until it is ready. Returns the file of the values.
async fn installed(chart: &Path) -> (Bed, PathBuf) {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let cloud = Simcloud::start(&control_plane).await.unwrap();
    let mut values = Values::new().unwrap().simcloud(cloud.url()).render();
    // The previous chart does not know this value.
    values["adapter"]["sim"].as_object_mut().unwrap().remove("notForProduction");
    let file = control_plane.dir().join("mine.json");
    fs::write(&file, values.to_string()).unwrap();
    let (chart, path) = (chart.display().to_string(), file.display().to_string());
    let args = ["install", NAME, &chart, "--namespace", "kube-system", "--values", &path];
    control_plane.helm(&args).await.unwrap();
    let release = Release { namespace: "kube-system".to_owned() };
    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();
    pods.start().unwrap();
    let mut bed = Bed { cluster: Cluster { pods, cloud, release, control_plane }, within: WITHIN };
    bed.ready().await.unwrap();
    (bed, file)
}

/// Runs Helm with these arguments, and then restarts all pods.
async fn changed(bed: &mut Bed, command: &[&str]) {
    bed.cluster.cloud.reset_counts().await.unwrap();
    let Cluster { pods, release, control_plane, .. } = &mut bed.cluster;
    control_plane.helm(&[command, &["--namespace", &release.namespace]].concat()).await.unwrap();
    for name in pods.names() {
        pods.get(&name).unwrap().terminate().await.unwrap();
    }
    *pods = Pods::from_release(control_plane, release).await.unwrap();
    pods.start().unwrap();
    bed.ready().await.unwrap();
    rest(bed).await;
}

/// Waits until the controllers have nothing to do.
async fn rest(bed: &mut Bed) {
    bed.all_quiet().await.unwrap();
}

async fn unchanged(bed: &Bed, before: &e2e::State, addresses: &[String; 2], what: &str) {
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.writes, 0, "{what}: {counts:?}");
    let cloud = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((&cloud.load_balancers, &cloud.routes), (&before.load_balancers, &before.routes), "{what}");
    assert_eq!(&self::addresses(bed).await, addresses, "{what}");
    assert_eq!(bed.warnings().await.unwrap(), [""; 0], "{what}");
}

async fn addresses(bed: &Bed) -> [String; 2] {
    [bed.address("web").await.unwrap(), bed.address("dns").await.unwrap()]
}

/// The chart of the newest tag before this commit, in a folder of its own.
fn previous_chart() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]);
    let commit = tag.unwrap_or_else(|_| BEFORE_ALL_TAGS.to_owned());
    let archive = dir.path().join("chart.tar").display().to_string();
    let chart = format!("helm/{NAME}");
    let archived = git(&["archive", "--output", &archive, &commit, "--", &chart]);
    let shallow =
        |error| format!("{error}; a shallow clone has no earlier release: `git fetch --unshallow --tags`");
    archived.map_err(shallow).unwrap();
    let unpacked = Command::new("tar").args(["-xf", &archive]).current_dir(dir.path()).status().unwrap();
    assert!(unpacked.success(), "{commit}");
    dir
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}
